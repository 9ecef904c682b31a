"""List the formats that models are served in, with the runtime and the kind of model of each."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from paritygate.models.source import SourceKind
from paritygate.precision import Precision, Variant


class Format(Struct, frozen=True, kw_only=True):
    """A format of artifacts."""

    name: str  # a variant's name before its last dash
    runtime: str  # the backend that runs it
    kind: SourceKind  # of the model, for converters and runners
    is_built_on_gpu: bool = False  # only on the GPU that will run it


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
# Engines are compiled for kinds of GPUs, by versions of a library.
ENGINE_FORMATS = frozenset({"tensorrt", "tensorrt-rtx"})
# Formats that run on the CPU only, with the title of their runtime.
_CPU_RUNTIMES: Mapping[str, str] = {"openvino": "OpenVINO", "tflite": "LiteRT"}
CPU_FORMATS = frozenset(_CPU_RUNTIMES)
# Runtimes without CPU operators for a precision: such a variant is built and emulated there, but does not run.
_NOT_ON_CPU: Mapping[tuple[str, Precision], str] = {
    ("onnx", Precision.BF16): "ONNX Runtime's CPU provider has no BF16 operators"
}


def why_not_run(variant: Variant, device: str) -> str | None:
    """Return why the variant cannot run on the device `cpu` or `cuda`, as far as is known without trying, or None."""
    if device != "cpu":
        runtime = _CPU_RUNTIMES.get(variant.format)
        return None if runtime is None else f"{runtime} is run on the CPU only"
    if variant.format in ENGINE_FORMATS:
        return "engines run on NVIDIA GPUs only"
    return _NOT_ON_CPU.get((variant.format, variant.precision))


def why_no_bf16() -> str:
    """Return why nothing is repaired to BF16, as a sentence."""
    return f"a file partly in bf16 cannot be checked here: {_NOT_ON_CPU['onnx', Precision.BF16]}"
