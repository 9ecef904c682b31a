"""The contract of a converter, and the table of those there are.

A converter is a module with one function `convert(job)`. It writes into the empty folder it is given
and returns what it wrote; checking that is not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.source import Source, SourceKind

__all__ = ["CONVERTERS", "Conversion", "ConversionJob", "Converter"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionJob:
    """What a converter is asked to do.

    Attributes:
        source: The model to convert, its kind known.
        model: The model object of a `module:callable` source, already made; None for a path.
        folder: The empty folder to write into.
        signature: Names (as served), dtypes, symbolic dims and their ranges that the result shall
            have; None where it is to be taken from the source (ONNX, SavedModel, Keras).
        rename: The name served, by the source's name, for inputs and outputs.
        opset: The ONNX opset to write; None for the converter's default.
        precision: What the result shall compute in. Converters write what the source computes in; a lower
            precision is made from their result, see `paritygate.convert.onnx_to_fp16`.
    """

    source: Source
    model: Any = None
    folder: Path
    signature: Signature | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    opset: int | None = None
    precision: Precision = Precision.FP32


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


# From the kind of the source to the format of the variant.
CONVERTERS: Mapping[tuple[SourceKind, str], str] = {
    (SourceKind.ONNX, "onnx"): "paritygate.convert.onnx_to_onnx",
    (SourceKind.TORCH, "onnx"): "paritygate.convert.torch_to_onnx",
    (SourceKind.KERAS, "onnx"): "paritygate.convert.keras_to_onnx",
    (SourceKind.KERAS, "savedmodel"): "paritygate.convert.keras_to_savedmodel",
    (SourceKind.SAVEDMODEL, "onnx"): "paritygate.convert.savedmodel_to_onnx",
    (SourceKind.SAVEDMODEL, "savedmodel"): "paritygate.convert.savedmodel_to_savedmodel",
}
