"""Converting, and checking what was written: a converter's exit without an error proves nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from paritygate.backends import backend_state, require_backend
from paritygate.convert.causes import one_line
from paritygate.convert.contract import agreed_signature
from paritygate.convert.conversion import CONVERTERS, Conversion, ConversionJob, Converter
from paritygate.convert.onnx_load import load_in_onnxruntime
from paritygate.convert.onnx_operators import check_operators
from paritygate.convert.onnx_to_fp16 import lower_to_fp16
from paritygate.errors import (
    BackendError,
    ConversionError,
    InputFileError,
    ParitygateError,
    StorageError,
    UsageError,
)
from paritygate.files import MARKER, storage_errors
from paritygate.onnx_file import check_onnx, read_onnx, signature_of_onnx
from paritygate.precision import Precision
from paritygate.savedmodel import load_savedmodel
from paritygate.signature import Signature

__all__ = ["convert_and_check"]

_LOADED_BY = {"onnx": "onnxruntime", "savedmodel": "tensorflow"}
_OPERATOR_HINT = "write the model with operators that ONNX has, or serve it in its own format"


def convert_and_check(job: ConversionJob, target_format: str) -> Conversion:
    """Convert the model, and return what was written once it has proved sound.

    ONNX passes onnx.checker's full check and loads in ONNX Runtime; a SavedModel loads. Names, order,
    dtypes, ranks and symbolic dims are those of the job's signature.

    Args:
        job: What to convert; its folder is empty but for our own marker.
        target_format: Format of the variant, such as `onnx`.

    Returns:
        The conversion, its signature with the names and ranges of dims that were promised.

    Raises:
        UsageError: There is no such converter, or the job does not fit the model.
        InputFileError: The source is missing or corrupt.
        ConversionError: The converter failed, or wrote something else than was promised;
            UnsupportedOperatorsError where it is for operators.
        MissingBackendError: A package that is needed is not installed.
        StorageError: The folder is not empty, or cannot be written.
    """
    converter = _converter(job, target_format)
    if target_format in _LOADED_BY:
        # Before the work: what cannot be checked is not worth minutes of converting.
        require_backend(_LOADED_BY[target_format])
    _check_empty(job)
    conversion = _guarded(lambda: converter.convert(job), job, f"converting {job.source.kind} to {target_format}")
    check = _CHECKS.get(target_format)
    if check is None:
        return conversion
    checked = _guarded(lambda: check(job, conversion), job, f"checking the converted {target_format} model")
    if job.precision is Precision.FP32:
        return checked
    if (target_format, job.precision) != ("onnx", Precision.FP16):
        msg = f"{target_format} cannot be made in {job.precision} (allowed: onnx in fp16)"
        raise UsageError(msg, hint="name another target")
    # Sound in FP32 first: what fails after that is the rewriting's.
    lowered = _guarded(lambda: lower_to_fp16(job.folder, checked), job, "rewriting the model to fp16")
    return _guarded(lambda: check(job, lowered), job, "checking the model in fp16")


def _converter(job: ConversionJob, target_format: str) -> Converter:
    kind = job.source.kind
    if (kind, target_format) not in CONVERTERS:
        allowed = ", ".join(sorted(form for source, form in CONVERTERS if source == kind)) or "none"
        msg = f"a model of kind {str(kind)!r} cannot be converted to {target_format!r} (allowed: {allowed})"
        raise UsageError(msg, hint="name one of the formats above in targets")
    return cast("Converter", importlib.import_module(CONVERTERS[kind, target_format]))


def _check_empty(job: ConversionJob) -> None:
    with storage_errors(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        found = [path.name for path in job.folder.iterdir() if path.name != MARKER]
    if found:
        msg = f"{job.folder} is not empty: it holds {found[0]}"
        raise StorageError(msg, hint="name a folder that does not exist")


def _guarded(work: Callable[[], Conversion], job: ConversionJob, what: str) -> Conversion:
    try:
        with storage_errors(job.folder):
            return work()
    except BackendError as err:
        msg = f"{what} failed: {err}"
        raise ConversionError(msg, hint=err.hint) from err
    except ParitygateError:
        raise
    except Exception as err:
        msg = f"{what} failed: {type(err).__name__}: {one_line(err)}"
        raise ConversionError(msg, hint="the log holds the whole trace") from err


@contextmanager
def _our_file() -> Iterator[None]:
    """Take an unsound file for the converter's failure: it is not the one that the user gave."""
    try:
        yield
    except InputFileError as err:
        msg = f"the converted model is unsound: {err}"
        raise ConversionError(msg, hint=err.hint) from err


def _check_onnx(job: ConversionJob, conversion: Conversion) -> Conversion:
    path = job.folder / conversion.main
    with _our_file():
        model = read_onnx(path)
        check_operators(model, hint=_OPERATOR_HINT)
        check_onnx(path)
    version = load_in_onnxruntime(path)
    found = signature_of_onnx(model)
    return _with(job, conversion, found, {"loaded_in": f"onnxruntime {version}"}, keeps_names=True)


def _check_savedmodel(job: ConversionJob, conversion: Conversion) -> Conversion:
    path = job.folder / conversion.main
    with _our_file():
        found = load_savedmodel(path).signature
    facts = {"loaded_in": f"tensorflow {backend_state('tensorflow').version}"}
    return _with(job, conversion, found, facts, keeps_names=False)


def _with(
    job: ConversionJob, conversion: Conversion, found: Signature, facts: Mapping[str, Any], *, keeps_names: bool
) -> Conversion:
    signature = found if job.signature is None else agreed_signature(found, job.signature, keeps_names=keeps_names)
    return replace(conversion, signature=signature, facts={**conversion.facts, **facts})


_CHECKS: Mapping[str, Callable[[ConversionJob, Conversion], Conversion]] = {
    "onnx": _check_onnx,
    "savedmodel": _check_savedmodel,
}
