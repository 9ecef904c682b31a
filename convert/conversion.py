"""Define the contract of a converter, and the tables of converters and checks.

A converter is a module with one function `convert(job)`, which writes into the job's empty folder and returns a
`Conversion`. The files must then pass the format's check, a module with one function `check(job, conversion)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from paritygate.batch import Arrays
from paritygate.engine.settings import EngineSettings
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.signature import Signature


class Calibration(Struct, frozen=True, kw_only=True):
    """Real inputs that the ranges of integers are chosen by; none of their rows is ever compared.

    Tool, method and activations are about ONNX. OpenVINO and TFLite quantize in one way, with the same rows.
    """

    read: Callable[[], Iterator[Arrays]]  # starts at the first batch, by the names served
    tool: str  # onnxruntime or nncf
    method: str = "minmax"  # for ranges of activations: or entropy, percentile, dynamic
    activations: str = "int8"  # or uint8
    facts: Mapping[str, Any] = field(default_factory=dict)  # rows, digest and origin, for the artifact's record


class ConversionJob(Struct, frozen=True, kw_only=True):
    """The task of a converter."""

    source: ModelRef  # its kind known; a derivation's is the artifact that it derives from
    model: Any = None  # of a `module:callable`; None for a path
    folder: Path  # empty, to write into
    signature: Signature | None = None  # as served; None: the source's (ONNX, SavedModel, Keras)
    rename: Mapping[str, str] = field(default_factory=dict)  # the name served, by the source's
    opset: int | None = None  # of ONNX; None for the converter's default
    precision: Precision = Precision.FP32  # converters keep the source's; lower ones are derived
    lower: Precision | None = None  # of the nodes that `mixed` does not keep
    kept: Mapping[str, str] = field(default_factory=dict)  # nodes that stay in FP32, each with the reason
    calibration: Calibration | None = None
    files: tuple[str, ...] = ()  # read by the code of a `module:callable`, relative to its folder
    engine: EngineSettings = field(default_factory=EngineSettings)
    rows: Arrays = field(default_factory=dict)  # a first batch to run, or empty
    ties: Mapping[str, str] = field(default_factory=dict)  # in all samples: {"total": "past + new"}
    exporter: str | None = None  # dynamo or torchscript; None for the first that works


class Conversion(Struct, frozen=True, kw_only=True):
    """The result of a converter."""

    main: str  # opened by the runtime, relative to the job's folder; `.` for a folder format
    signature: Signature  # read back from the files written
    notes: tuple[str, ...] = ()  # for the user, one sentence each
    facts: Mapping[str, Any] = field(default_factory=dict)  # read back: opset, ir_version, versions of tools


class Converter(Protocol):
    """The function of every converter module."""

    def convert(self, job: ConversionJob) -> Conversion:
        """Write the converted model into `job.folder`.

        Raises:
            ConversionError: It could not be converted; UnsupportedOperatorsError with a table if operators are the
                cause.
            MissingBackendError: A package the converter needs is not installed.
        """


class ArtifactCheck(Protocol):
    """The function of every module that checks a format."""

    def check(self, job: ConversionJob, conversion: Conversion) -> Conversion:
        """Return the conversion with the promised signature and more facts, once the files are proved sound.

        Raises:
            ConversionError: The converter broke its promise.
            MissingBackendError: The runtime to check with is not installed.
        """


class Derivation(Struct, frozen=True, kw_only=True):
    """A variant that is made from the artifact of another one, `base`, by a converter module."""

    base: str
    module: str


# From the kind of the source to the format, in FP32.
CONVERTERS: Mapping[tuple[SourceKind, str], str] = {
    (SourceKind.ONNX, "onnx"): "paritygate.convert.onnx.onnx_to_onnx",
    (SourceKind.TORCH, "onnx"): "paritygate.convert.torch.torch_to_onnx",
    (SourceKind.TORCH, "torch"): "paritygate.convert.torch.torch_to_torch",
    (SourceKind.TORCH, "torchscript"): "paritygate.convert.torch.torch_to_torchscript",
    (SourceKind.TORCH, "pt2"): "paritygate.convert.torch.torch_to_pt2",
    (SourceKind.TORCHSCRIPT, "onnx"): "paritygate.convert.torch.torchscript_to_onnx",
    (SourceKind.TORCHSCRIPT, "torchscript"): "paritygate.convert.torch.torchscript_to_torchscript",
    (SourceKind.PT2, "onnx"): "paritygate.convert.torch.pt2_to_onnx",
    (SourceKind.PT2, "pt2"): "paritygate.convert.torch.pt2_to_pt2",
    (SourceKind.KERAS, "onnx"): "paritygate.convert.tensorflow.keras_to_onnx",
    (SourceKind.KERAS, "savedmodel"): "paritygate.convert.tensorflow.keras_to_savedmodel",
    (SourceKind.SAVEDMODEL, "onnx"): "paritygate.convert.tensorflow.savedmodel_to_onnx",
    (SourceKind.SAVEDMODEL, "savedmodel"): "paritygate.convert.tensorflow.savedmodel_to_savedmodel",
}
# Variants that are made from an artifact instead.
DERIVATIONS: Mapping[str, Derivation] = {
    "onnx-fp16": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_low_precision"),
    "onnx-bf16": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_low_precision"),
    "onnx-int8": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_int8"),
    "onnx-mixed": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_mixed"),
    "openvino-fp32": Derivation(base="onnx-fp32", module="paritygate.convert.openvino.onnx_to_openvino"),
    "openvino-bf16": Derivation(base="onnx-fp32", module="paritygate.convert.openvino.onnx_to_openvino"),
    "openvino-mixed": Derivation(base="onnx-fp32", module="paritygate.convert.openvino.onnx_to_mixed"),
    "openvino-int8": Derivation(base="openvino-fp32", module="paritygate.convert.openvino.openvino_to_int8"),
    "tensorrt-fp32": Derivation(base="onnx-fp32", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-fp16": Derivation(base="onnx-fp16", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-bf16": Derivation(base="onnx-bf16", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-mixed": Derivation(base="onnx-mixed", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-int8": Derivation(base="onnx-int8", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-rtx-fp32": Derivation(base="onnx-fp32", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tensorrt-rtx-fp16": Derivation(base="onnx-fp16", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tensorrt-rtx-bf16": Derivation(base="onnx-bf16", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tensorrt-rtx-mixed": Derivation(base="onnx-mixed", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tensorrt-rtx-int8": Derivation(base="onnx-int8", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tflite-fp32": Derivation(base="savedmodel-fp32", module="paritygate.convert.tensorflow.savedmodel_to_tflite"),
    "tflite-fp16": Derivation(base="savedmodel-fp32", module="paritygate.convert.tensorflow.savedmodel_to_tflite"),
    "tflite-int8": Derivation(base="savedmodel-fp32", module="paritygate.convert.tensorflow.savedmodel_to_tflite"),
}
# By format.
CHECKS: Mapping[str, str] = {
    "onnx": "paritygate.convert.onnx.check_onnx",
    "openvino": "paritygate.convert.openvino.check_openvino",
    "torch": "paritygate.convert.torch.check_torch",
    "torchscript": "paritygate.convert.torch.check_torchscript",
    "pt2": "paritygate.convert.torch.check_pt2",
    "tflite": "paritygate.convert.tensorflow.check_tflite",
    "savedmodel": "paritygate.convert.tensorflow.check_savedmodel",
    "tensorrt": "paritygate.convert.engine.check_tensorrt",
    "tensorrt-rtx": "paritygate.convert.engine.check_tensorrt",
}
