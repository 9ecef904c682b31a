"""Check that the copy of a PyTorch source makes the same parameters, and the same outputs as the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.backends import version_of
from paritygate.convert.contract import as_promised
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.error_origin import causes
from paritygate.convert.torch.shape_check import check_all_sizes, module_call
from paritygate.errors import ArtifactIntegrityError, ConversionError, UsageError
from paritygate.models.source_copy import CODE_FOLDER, load_source_copy, read_source_copy
from paritygate.models.torch.module import as_named_module, put_in_eval_mode

if TYPE_CHECKING:
    import torch


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion, once a model was made from the copied code alone.

    Raises:
        ConversionError: The copied code does not make it, or makes another one.
    """
    copy = read_source_copy(job.folder)
    with _missing_files(job):
        try:
            _, model = load_source_copy(copy.source_in(job.folder))
        except (ArtifactIntegrityError, UsageError) as err:
            raise ConversionError(str(err), hint=err.hint) from err
    put_in_eval_mode(model)
    signature = conversion.signature
    copied, source = (as_named_module(module, signature, job.rename) for module in (model, job.model))
    call_copied = module_call(copied)

    def call(inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        # The model may read files as late as it runs.
        with _missing_files(job):
            return call_copied(inputs)

    answered = check_all_sizes(
        call, signature, expected=module_call(source), is_module=True, rows=job.rows, ties=job.ties
    )
    facts = {"loaded_in": f"torch {version_of('torch')}"}
    checked = as_promised(job, conversion, signature, facts, keeps_names=True)
    return replace(checked, notes=(*checked.notes, *answered.notes))


@contextmanager
def _missing_files(job: ConversionJob) -> Iterator[None]:
    """Report the file that the copied code misses, which the spec must name, because only the user knows it."""
    try:
        yield
    except Exception as err:
        missing = next((name for cause in causes(err) if (name := _missing_file(cause, job)) is not None), None)
        if missing is None:
            raise
        msg = f"the code of {job.source.text} reads {missing}, which was not copied with it"
        hint = f"name it in the spec: model.files: [{', '.join([*job.files, missing])}]"
        raise ConversionError(msg, hint=hint) from err


def _missing_file(err: BaseException, job: ConversionJob) -> str | None:
    """Return the file that is missing beside the copied code and exists beside the source, relative to that."""
    named = err.filename if isinstance(err, FileNotFoundError) else None
    code = (job.folder / CODE_FOLDER).resolve()
    if not isinstance(named, str | Path) or not Path(named).resolve().is_relative_to(code):
        return None
    name = Path(named).resolve().relative_to(code)
    return name.as_posix() if (job.source.folder / name).exists() else None
