"""Convert a model, or fix dims of an artifact, and check the files written.

A converter without an error proves nothing, so the check of the format has to pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from msgspec.structs import replace

from paritygate.backends import require_backend
from paritygate.convert.conversion import (
    CHECKS,
    CONVERTERS,
    DERIVATIONS,
    ArtifactCheck,
    Conversion,
    ConversionJob,
    Converter,
)
from paritygate.convert.error_origin import one_line
from paritygate.engine.gpu_fit import require_builder
from paritygate.errors import (
    BackendError,
    ConversionError,
    NotAvailableError,
    ParitygateError,
    StorageError,
    UsageError,
)
from paritygate.files import MARKER, storage_errors
from paritygate.formats import FORMATS
from paritygate.models.fixed_shape import FixedShape, write_fixed_shape
from paritygate.models.half_precision import LOAD_IN_FP32, half_dtype_of_model
from paritygate.models.source import SourceKind
from paritygate.precision import Precision, Variant

# The formats whose artifacts can have dims fixed.
FIXERS: Mapping[str, str] = {
    "onnx": "paritygate.convert.onnx.fixed_shape",
    "openvino": "paritygate.convert.openvino.fixed_shape",
}
# The opsets that the exporter of a source writes.
_OPSETS: Mapping[SourceKind, range] = {
    SourceKind.TORCH: range(7, 26),
    SourceKind.PT2: range(7, 26),
    SourceKind.TORCHSCRIPT: range(7, 21),
    SourceKind.KERAS: range(7, 19),
    SourceKind.SAVEDMODEL: range(7, 19),
}


def convert_and_check(job: ConversionJob, target_format: str) -> Conversion:
    """Convert the model into an empty folder, except our marker, and return the conversion once it is proved sound.

    The format's check decides: at least, its runtime loads the files, and names, order, dtypes, ranks and symbolic dims
    are those of the job's signature. The result has the names and ranges of dims that were promised.

    Raises:
        UsageError: There is no such converter or opset, or the job does not fit the model.
        InputFileError: The source is missing or corrupt.
        ConversionError: The converter failed or broke its promise; UnsupportedOperatorsError if operators are the
            cause.
        MissingBackendError: A package that is needed is not installed.
        StorageError: The folder is not empty, or cannot be written.
    """
    variant = Variant(format=target_format, precision=job.precision)
    _check_exporter(job)
    _check_opset(job)
    converter = cast("Converter", importlib.import_module(_module(job, variant)))
    # First, because minutes of converting are useless without a check.
    require_builder(target_format)
    _check_empty(job)
    checker = cast("ArtifactCheck", importlib.import_module(CHECKS[target_format]))
    try:
        conversion = _guarded(lambda: converter.convert(job), job, f"converting {job.source.kind} to {variant}")
        return _guarded(lambda: checker.check(job, conversion), job, f"checking the converted {variant} model")
    except (ConversionError, NotAvailableError) as err:
        dtype = half_dtype_of_model(job.model)
        if dtype is None:
            raise
        # Runtimes lack many operators for these dtypes, so the operators are not the cause.
        msg = f"the source computes in half precision ({dtype}), so it cannot become {variant}"
        raise ConversionError(msg, hint=LOAD_IN_FP32) from err


def _module(job: ConversionJob, variant: Variant) -> str:
    kind = job.source.kind
    derivation = DERIVATIONS.get(str(variant))
    if derivation is not None and kind is FORMATS[Variant.parse(derivation.base).format].kind:
        return derivation.module
    if derivation is None and variant.precision is Precision.FP32 and (kind, variant.format) in CONVERTERS:
        return CONVERTERS[kind, variant.format]
    made = [f"{form}-{Precision.FP32}" for source, form in CONVERTERS if source == kind]
    for name, derivation in DERIVATIONS.items():
        # In the table's order, because a derived variant may be the base of another.
        made += [name] if derivation.base in made else []
    allowed = ", ".join(made) or "none"
    msg = f"a model of kind {str(kind)!r} cannot be converted to {str(variant)!r} (allowed: {allowed})"
    raise UsageError(msg, hint="name one of the variants above in targets")


def _check_exporter(job: ConversionJob) -> None:
    if job.exporter is None or job.source.kind is SourceKind.TORCH:
        return
    msg = (
        f"model.exporter is {job.exporter}, which exports PyTorch modules, and {job.source.text} is a model of kind "
        f"{str(job.source.kind)!r}"
    )
    raise UsageError(msg, hint="remove model.exporter, or name a module:callable that returns a torch.nn.Module")


def _check_opset(job: ConversionJob) -> None:
    kind = SourceKind.TORCHSCRIPT if job.exporter == "torchscript" else job.source.kind
    allowed = _OPSETS.get(kind)
    if job.opset is None or allowed is None or job.opset in allowed:
        return
    msg = f"opset {job.opset} is not supported for a model of kind {kind} (allowed: {allowed[0]} to {allowed[-1]})"
    raise UsageError(msg, hint="set opset (also below repair.accept) to one of these, or leave it out")


def _check_empty(job: ConversionJob) -> None:
    with storage_errors(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in job.folder.iterdir() if path.name != MARKER]
    if names:
        raise StorageError(f"{job.folder} is not empty (found {names[0]})", hint="name a folder that does not exist")


def _guarded(work: Callable[[], Conversion], job: ConversionJob, what: str) -> Conversion:
    try:
        with storage_errors(job.folder, runs_other_code=True):
            return work()
    except BackendError as err:
        raise ConversionError(f"{what} failed: {err}", hint=err.hint) from err
    except ParitygateError:
        raise
    except Exception as err:
        msg = f"{what} failed: {type(err).__name__}: {one_line(err)}"
        raise ConversionError(msg, hint="the log holds the whole trace") from err


class Fixer(Protocol):
    """The function of every module that fixes dims."""

    def fix(self, job: ConversionJob, rule: FixedShape) -> Conversion:
        """Write the job's source, an artifact, into `job.folder`, with the rule's dims and dtypes.

        Raises:
            ConversionError: The dims could not be fixed.
        """


def fix_and_check(job: ConversionJob, target_format: str, rule: FixedShape) -> Conversion:
    """Fix dims of an artifact, and return the conversion once it is proved sound, with the rule beside it.

    Its signature has the fixed sizes and dtypes of the rule. `target_format` is one of `FIXERS`.

    Raises:
        ConversionError: The dims could not be fixed, or the result is unsound.
        MissingBackendError: A package that is needed is not installed.
        StorageError: The folder is not empty, or cannot be written.
    """
    fixer = cast("Fixer", importlib.import_module(FIXERS[target_format]))
    checker = cast("ArtifactCheck", importlib.import_module(CHECKS[target_format]))
    require_backend(FORMATS[target_format].runtime)
    _check_empty(job)
    promised = replace(job, signature=rule.fixed_signature)
    conversion = _guarded(lambda: fixer.fix(promised, rule), job, f"fixing {rule} in the {target_format} model")
    checked = _guarded(lambda: checker.check(promised, conversion), job, f"checking the model with {rule} fixed")
    write_fixed_shape(rule, job.folder)
    return replace(checked, facts={**checked.facts, "fixed": dict(rule.dims)})
