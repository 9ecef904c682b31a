"""The contract of a converter, and the tables of those there are.

A converter is a module with one function `convert(job)`. It writes into the empty folder it is given
and returns what it wrote. What is written has to pass the check of its format, a module with one function
`check(job, conversion)`: a converter that ended without an error has proved nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paritygate.engine.settings import EngineSettings
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.signature import Signature

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Real inputs that the ranges of integers are chosen by; none of their rows is ever compared.

    Tool, method and activations are about ONNX: OpenVINO and TFLite have one way to quantize each, and take the rows.

    Attributes:
        read: Starts reading the batches from the first one on, inputs by the names served, as often as it is called.
        tool: `onnxruntime` or `nncf`: what quantizes ONNX.
        method: How the ranges of activations are chosen: `minmax`, `entropy`, `percentile` or `dynamic`.
        activations: What activations become: `int8` or `uint8`.
        facts: What they are: rows, digest, where from. It goes into the artifact's record.
    """

    read: Callable[[], Iterator[Mapping[str, NDArray[np.generic]]]]
    tool: str
    method: str = "minmax"
    activations: str = "int8"
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionJob:
    """What a converter is asked to do.

    Attributes:
        source: The model to convert, its kind known: the trained one, or for a derivation the artifact that it is
            derived from.
        model: The model object of a `module:callable` source, already made; None for a path.
        folder: The empty folder to write into.
        signature: Names (as served), dtypes, symbolic dims and their ranges that the result shall
            have; None where it is to be taken from the source (ONNX, SavedModel, Keras).
        rename: The name served, by the source's name, for inputs and outputs.
        opset: The ONNX opset to write; None for the converter's default.
        precision: What the result shall compute in. Converters write what the source computes in; a lower
            precision is derived from what they wrote.
        calibration: Real inputs to quantize by; None where there are none.
        files: Files that the code of a `module:callable` reads, relative to the source's folder.
        engine: How to build, where an engine is made.
        rows: The first batch of real inputs by the names served, for what is found out by running the model; empty
            where there is none.
        ties: What a symbolic dim of the inputs is in all samples, as a sum of others: `{"total": "past + new"}`.
        exporter: What exports a PyTorch module to ONNX, `dynamo` or `torchscript`; None for the first that does.
    """

    source: ModelRef
    model: Any = None
    folder: Path
    signature: Signature | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    opset: int | None = None
    precision: Precision = Precision.FP32
    calibration: Calibration | None = None
    files: tuple[str, ...] = ()
    engine: EngineSettings = field(default_factory=EngineSettings)
    rows: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    ties: Mapping[str, str] = field(default_factory=dict)
    exporter: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """What a converter wrote.

    Attributes:
        main: What the runtime opens, relative to the job's folder; `.` for a folder format.
        signature: Read back from the files written, not from the job.
        notes: What the user should know, one sentence each, such as that a module was in train mode.
        facts: Read back: opset, ir_version, versions of the tools used.
    """

    main: str
    signature: Signature
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Converter(Protocol):
    """What every converter module offers."""

    def convert(self, job: ConversionJob) -> Conversion:
        """Write the converted model into `job.folder`.

        Raises:
            ConversionError: It could not be converted; UnsupportedOperatorsError with the table of
                operators where that is the reason.
            MissingBackendError: A package the converter needs is not installed.
        """
        ...


class ArtifactCheck(Protocol):
    """What every module that checks a format offers."""

    def check(self, job: ConversionJob, conversion: Conversion) -> Conversion:
        """Return the conversion with the signature promised and what was seen, once the files have proved sound.

        Raises:
            ConversionError: The converter wrote something else than was promised.
            MissingBackendError: The runtime to check with is not installed.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivation:
    """How a variant is made from another one.

    Attributes:
        base: The variant it is made from.
        module: The converter; its job's source is the base's artifact.
    """

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
# What is made from an artifact instead, by variant.
DERIVATIONS: Mapping[str, Derivation] = {
    "onnx-fp16": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_low_precision"),
    "onnx-bf16": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_low_precision"),
    "onnx-int8": Derivation(base="onnx-fp32", module="paritygate.convert.onnx.onnx_to_int8"),
    "openvino-fp32": Derivation(base="onnx-fp32", module="paritygate.convert.openvino.onnx_to_openvino"),
    "openvino-bf16": Derivation(base="onnx-fp32", module="paritygate.convert.openvino.onnx_to_openvino"),
    "openvino-int8": Derivation(base="openvino-fp32", module="paritygate.convert.openvino.openvino_to_int8"),
    "tensorrt-fp32": Derivation(base="onnx-fp32", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-fp16": Derivation(base="onnx-fp16", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-bf16": Derivation(base="onnx-bf16", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-int8": Derivation(base="onnx-int8", module="paritygate.convert.engine.onnx_to_tensorrt"),
    "tensorrt-rtx-fp32": Derivation(base="onnx-fp32", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tensorrt-rtx-fp16": Derivation(base="onnx-fp16", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
    "tensorrt-rtx-bf16": Derivation(base="onnx-bf16", module="paritygate.convert.engine.onnx_to_tensorrt_rtx"),
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
