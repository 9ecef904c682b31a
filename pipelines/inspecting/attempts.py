"""Find the usual targets that a model cannot become, by making them."""

from __future__ import annotations

from paritygate.backends import backend_state
from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import ConversionJob
from paritygate.errors import NotAvailableError, ParitygateError
from paritygate.files import temporary_folder
from paritygate.formats import FORMATS
from paritygate.models.digest import files_of_model
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind
from paritygate.precision import Variant

# Made where the source allows it and their packages are installed. They need no rows of the samples.
USUAL_TARGETS = ("onnx-fp32", "onnx-fp16", "openvino-fp32", "tflite-fp32")
# These take seconds for an ONNX file.
_TRIED = ("onnx-fp16", "openvino-fp32")
_LARGEST_BYTES = 256 << 20


def impossible_targets(loaded: LoadedModel) -> dict[str, str]:
    """Return usual targets that a small ONNX model cannot become, with reasons; none for other models.

    Only missing operators count, because a run shows other errors in full.
    """
    if loaded.ref.kind is not SourceKind.ONNX:
        return {}
    if sum(path.stat().st_size for path in files_of_model(loaded.ref).values()) > _LARGEST_BYTES:
        return {}
    reasons = {name: _why_not(loaded, Variant.parse(name)) for name in _TRIED}
    return {name: reason for name, reason in reasons.items() if reason}


def _why_not(loaded: LoadedModel, variant: Variant) -> str:
    if not backend_state(FORMATS[variant.format].runtime).is_available:
        return ""
    with temporary_folder("init") as folder:
        job = ConversionJob(source=loaded.ref, folder=folder, precision=variant.precision)
        try:
            convert_and_check(job, variant.format)
        except NotAvailableError as err:
            return str(err).partition("\n")[0]
        except ParitygateError:
            return ""
    return ""
