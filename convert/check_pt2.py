"""Whether a program of torch.export is sound: it loads, with the dims promised, and answers at every size of them."""

from __future__ import annotations

from dataclasses import replace

from paritygate.backends import version_of
from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch_answers import check_answers, module_call
from paritygate.pt2_file import interface_of, known_names, load_pt2, taking_its_names
from paritygate.torch_module import as_named_module
from paritygate.torch_names import named_file

__all__ = ["check"]


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the signature promised, once the file has proved sound.

    Raises:
        ConversionError: It is not.
        MissingBackendError: PyTorch is not installed.
    """
    path = job.folder / conversion.main
    with our_file():
        program = load_pt2(path)
        known = known_names(path, program, None, {})
    found = interface_of(program, known).found
    facts = {"loaded_in": f"torch {version_of('torch')}"}
    # First what the file says of its dims, because that names what is wrong; then what it answers.
    checked = as_promised(job, conversion, found, facts, keeps_names=job.model is not None)
    module = program.module()
    named, signature = named_file(taking_its_names(program, module, module), known)
    expected = None if job.model is None else module_call(as_named_module(job.model, signature, job.rename))
    note = check_answers(module_call(named), signature, expected=expected)
    dims = checked.signature.dims or signature.dims
    return replace(
        checked,
        signature=replace(checked.signature, dims=dims),
        notes=(*checked.notes, *([note] if note else [])),
    )
