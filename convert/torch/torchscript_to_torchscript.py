"""Copy TorchScript, with the names served written into it."""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.models.torch.archive import copy_archive, names_in_archive
from paritygate.models.torch.names import KnownNames, said_by_copy
from paritygate.models.torch.torchscript_file import load_torchscript, notes_of

_MAIN = "model.pt"


def convert(job: ConversionJob) -> Conversion:
    """Copy the file to `model.pt`; its computation stays byte for byte."""
    source = job.source.path
    notes = tuple(notes_of(load_torchscript(source)))
    file_names = KnownNames(file=source, said=names_in_archive(source), declared=job.signature, rename=job.rename)
    names = said_by_copy(file_names)
    copy_archive(source, job.folder / _MAIN, names)
    return Conversion(main=_MAIN, signature=names.signature, notes=notes)
