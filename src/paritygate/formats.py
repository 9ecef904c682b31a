"""The formats a model is served in: which runtime runs each, and which kind of model its files are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paritygate.precision import Precision, Variant
from paritygate.source import SourceKind

__all__ = ["ENGINE_FORMATS", "FORMATS", "Format", "why_not_run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A format of artifacts.

    Attributes:
        name: Its name: that of a variant before the last dash.
        runtime: The backend that runs it.
        kind: The kind of model that an artifact of this format is to converters and runners.
    """

    name: str
    runtime: str
    kind: SourceKind


FORMATS: Mapping[str, Format] = {
    item.name: item
    for item in (
        Format(name="onnx", runtime="onnxruntime", kind=SourceKind.ONNX),
        Format(name="openvino", runtime="openvino", kind=SourceKind.OPENVINO),
        Format(name="torch", runtime="torch", kind=SourceKind.CALLABLE),
        Format(name="torchscript", runtime="torch", kind=SourceKind.TORCHSCRIPT),
        Format(name="pt2", runtime="torch", kind=SourceKind.PT2),
        Format(name="savedmodel", runtime="tensorflow", kind=SourceKind.SAVEDMODEL),
        Format(name="tflite", runtime="litert", kind=SourceKind.TFLITE),
        Format(name="tensorrt", runtime="tensorrt", kind=SourceKind.TENSORRT),
        Format(name="tensorrt-rtx", runtime="tensorrt-rtx", kind=SourceKind.TENSORRT_RTX),
    )
}
# Engines: compiled for kinds of GPUs, by versions of a library.
ENGINE_FORMATS = frozenset({"tensorrt", "tensorrt-rtx"})
# What a runtime has no operators for on a CPU: such a variant is built and emulated there, and not run.
_NOT_ON_CPU: Mapping[tuple[str, Precision], str] = {
    ("onnx", Precision.BF16): "ONNX Runtime's CPU provider has no BF16 operators",
}


def why_not_run(variant: Variant, device: str) -> str | None:
    """Return why the variant is not run on the device, as far as that is known without trying; None if it is.

    Args:
        variant: The variant.
        device: `cpu`, or `cuda`.
    """
    if device != "cpu":
        return None
    if variant.format in ENGINE_FORMATS:
        return "engines run on NVIDIA GPUs only"
    return _NOT_ON_CPU.get((variant.format, variant.precision))
