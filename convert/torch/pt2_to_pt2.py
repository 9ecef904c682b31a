"""Copy a program of torch.export, with the names served written into it."""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.models.torch.archive import copy_archive
from paritygate.models.torch.names import said_by_copy
from paritygate.models.torch.pt2_file import known_names, load_pt2, notes_of

_MAIN = "model.pt2"


def convert(job: ConversionJob) -> Conversion:
    """Copy the file to `model.pt2`; its computation stays byte for byte."""
    source = job.source.path
    program = load_pt2(source)
    names = said_by_copy(known_names(source, program, job.signature, job.rename))
    copy_archive(source, job.folder / _MAIN, names)
    return Conversion(main=_MAIN, signature=names.signature, notes=tuple(notes_of(program)))
