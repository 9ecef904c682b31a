"""Find the usual targets that a model cannot become, by making them."""

from __future__ import annotations

from pathlib import Path

from paritygate.backends import backend_state
from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import DERIVATIONS, ConversionJob
from paritygate.errors import NotAvailableError, ParitygateError
from paritygate.files import temporary_folder
from paritygate.formats import FORMATS
from paritygate.models.digest import files_of_model
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Variant

# Made where the source allows it and their packages are installed. They need no rows of the samples.
USUAL_TARGETS = ("onnx-fp32", "onnx-fp16", "openvino-fp32", "tflite-fp32")
# Tried by kind of source: they take seconds for a small file.
_TRIED = {
    SourceKind.ONNX: ("onnx-fp16", "openvino-fp32"),
    SourceKind.KERAS: ("tflite-fp32",),
    SourceKind.SAVEDMODEL: ("tflite-fp32",),
}
_LARGEST_BYTES = 256 << 20


def impossible_targets(loaded: LoadedModel) -> dict[str, str]:
    """Return usual targets that the file of a small model cannot become, with reasons; none for other models.

    Only missing operators count, because a run shows other errors in full.
    """
    # A model that a function returned is not a file.
    tried = _TRIED.get(loaded.ref.kind, ()) if loaded.model is None else ()
    if not tried or sum(path.stat().st_size for path in files_of_model(loaded.ref).values()) > _LARGEST_BYTES:
        return {}
    reasons = {name: _why_not(loaded.ref, Variant.parse(name)) for name in tried}
    return {name: reason for name, reason in reasons.items() if reason}


def _why_not(source: ModelRef, variant: Variant) -> str:
    if not backend_state(FORMATS[variant.format].runtime).is_available:
        return ""
    with temporary_folder("init") as folder:
        try:
            base = _made(source, Variant.parse(DERIVATIONS[str(variant)].base), folder / "base")
            _made(base, variant, folder / "target")
        except NotAvailableError as err:
            return str(err).partition("\n")[0]
        except ParitygateError:
            return ""
    return ""


def _made(source: ModelRef, variant: Variant, folder: Path) -> ModelRef:
    folder.mkdir()
    conversion = convert_and_check(
        ConversionJob(source=source, folder=folder, precision=variant.precision), variant.format
    )
    return ModelRef(text=conversion.main, folder=folder, kind=FORMATS[variant.format].kind, name=str(variant))
