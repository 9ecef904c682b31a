"""The formats a model is served in: which runtime runs each, and which kind of model its files are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paritygate.models.source import SourceKind
from paritygate.precision import Precision, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A format of artifacts.

    Attributes:
        name: Its name: that of a variant before the last dash.
        runtime: The backend that runs it.
        kind: The kind of model that an artifact of this format is to converters and runners.
        is_built_on_gpu: Whether it is built on the GPU that will run it, and nowhere else.
    """

    name: str
    runtime: str
    kind: SourceKind
    is_built_on_gpu: bool = False


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
        Format(name="tensorrt", runtime="tensorrt", kind=SourceKind.TENSORRT, is_built_on_gpu=True),
        Format(name="tensorrt-rtx", runtime="tensorrt-rtx", kind=SourceKind.TENSORRT_RTX),
    )
}
# Engines: compiled for kinds of GPUs, by versions of a library.
ENGINE_FORMATS = frozenset({"tensorrt", "tensorrt-rtx"})
# Formats whose runtime is driven on the CPU alone, and its title.
_CPU_RUNTIMES: Mapping[str, str] = {"openvino": "OpenVINO", "tflite": "LiteRT"}
CPU_FORMATS = frozenset(_CPU_RUNTIMES)
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
        runtime = _CPU_RUNTIMES.get(variant.format)
        return None if runtime is None else f"{runtime} is run on the CPU only"
    if variant.format in ENGINE_FORMATS:
        return "engines run on NVIDIA GPUs only"
    return _NOT_ON_CPU.get((variant.format, variant.precision))
