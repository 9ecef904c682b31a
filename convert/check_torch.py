"""Whether the copy of a PyTorch source is sound: it makes the same parameters, and answers like the source."""

from __future__ import annotations

from dataclasses import replace

from paritygate.backends import version_of
from paritygate.convert.contract import as_promised
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch_answers import check_answers, module_call
from paritygate.errors import ArtifactIntegrityError, ConversionError, UsageError
from paritygate.source_copy import load_source_copy, read_source_copy
from paritygate.torch_module import as_named_module, put_in_eval_mode

__all__ = ["check"]


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion, once a model was made from the copied code alone.

    Raises:
        ConversionError: The copied code does not make it, or makes another one.
        MissingBackendError: PyTorch is not installed.
    """
    copy = read_source_copy(job.folder)
    try:
        _, model = load_source_copy(copy.source_in(job.folder))
    except (ArtifactIntegrityError, UsageError) as err:
        raise ConversionError(str(err), hint=err.hint) from err
    put_in_eval_mode(model)
    signature = conversion.signature
    copied, source = (as_named_module(module, signature, job.rename) for module in (model, job.model))
    note = check_answers(module_call(copied), signature, expected=module_call(source))
    facts = {"loaded_in": f"torch {version_of('torch')}"}
    checked = as_promised(job, conversion, signature, facts, keeps_names=True)
    return replace(checked, notes=(*checked.notes, *([note] if note else [])))
