"""Check that a TorchScript file loads, and gives its original's outputs at every promised size."""

from __future__ import annotations

from msgspec.structs import replace

from paritygate.backends import version_of
from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch.shape_check import check_all_sizes, module_call
from paritygate.models.torch.archive import names_in_archive
from paritygate.models.torch.module import as_named_module
from paritygate.models.torch.names import KnownNames, named_file
from paritygate.models.torch.torchscript_file import load_torchscript, taking_its_names


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the file is proved sound."""
    path = job.folder / conversion.main
    with our_file():
        module = load_torchscript(path)
        in_file = names_in_archive(path)
    named, signature = named_file(taking_its_names(module), KnownNames(file=path, said=in_file, rename={}))
    expected = None if job.model is None else module_call(as_named_module(job.model, conversion.signature, job.rename))
    answered = check_all_sizes(
        module_call(named), signature, expected=expected, is_module=job.model is not None, rows=job.rows, ties=job.ties
    )
    facts = {"loaded_in": f"torch {version_of('torch')}"}
    checked = as_promised(job, conversion, signature, facts, keeps_names=False)
    return replace(checked, notes=(*checked.notes, *answered.notes))
