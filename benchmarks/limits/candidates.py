"""The candidates of an ONNX model: other files, runtimes and precisions of it, each by the product's own converters."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritygate.convert.conversion import DERIVATIONS, Calibration, ConversionJob
from paritygate.models.source import parse_source
from paritygate.precision import Precision
from paritygate.validate.runners.opening import open_model

__all__ = ["CANDIDATES", "Answers", "Source", "answers_of", "one_at_a_time", "reference_of"]

Answers = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A model in FP32, the rows that it is compared on, and those that INT8 is calibrated on.

    Attributes:
        path: The ONNX file.
        inputs: The rows by input.
        calibration: Other rows by input.
        folder: Where candidates are written.
        others: Files of the same model by what is another in them.
        ask: What the reference answers to rows, where that is a framework; None where the file is the reference.
        hows: The candidates that can be made of it.
    """

    path: Path
    inputs: Answers
    calibration: Answers
    folder: Path
    others: Mapping[str, Path] = field(default_factory=dict)
    ask: Callable[[Answers], Answers] | None = None
    hows: tuple[str, ...] = ()


def answers_of(path: Path, inputs: Answers, *, emulate: Precision | None = None, is_optimised: bool = True) -> Answers:
    """Return all outputs of a model for all rows."""
    runner = open_model(parse_source(path.name, path.parent), "cpu", emulate=emulate, is_optimised=is_optimised)
    return dict(runner.run(inputs))


def one_at_a_time(ask: Callable[[Answers], Answers], inputs: Answers) -> Answers:
    """Return all outputs, each row asked alone."""
    rows = len(next(iter(inputs.values())))
    parts = [ask({name: array[row : row + 1] for name, array in inputs.items()}) for row in range(rows)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def reference_of(path: Path) -> Callable[[Answers], Answers]:
    """Return what asks an ONNX file, as it is deployed."""
    runner = open_model(parse_source(path.name, path.parent), "cpu")
    return lambda inputs: dict(runner.run(inputs))


def _derived(source: Source, variant: str, tool: str = "", **calibration: str) -> Path:
    """Return the file of a variant, made if it is not there yet."""
    derivation = DERIVATIONS[variant]
    name = "-".join(filter(None, [variant, tool, *calibration.values()]))
    folder = source.folder / name
    if folder.exists():
        return next(path for path in folder.iterdir() if path.suffix in {".onnx", ".xml"})
    base = source.path if derivation.base == "onnx-fp32" else _derived(source, derivation.base)
    folder.mkdir(parents=True)

    def read() -> Iterator[Answers]:
        yield source.calibration

    given = Calibration(read=read, tool=tool or "onnxruntime", facts={}, **calibration)
    job = ConversionJob(
        source=parse_source(base.name, base.parent),
        folder=folder,
        precision=Precision(variant.rpartition("-")[2]),
        calibration=given if "int8" in variant else None,
    )
    conversion = importlib.import_module(derivation.module).convert(job)
    return folder / str(conversion.main)


def _low(precision: Precision) -> Callable[[Source], Answers]:
    def answer(source: Source) -> Answers:
        path = _derived(source, f"onnx-{precision}")
        return answers_of(path, source.inputs, emulate=precision)

    return answer


def _whole(precision: Precision) -> Callable[[Source], Answers]:
    """Every value is rounded, as a device does that computes nothing in FP32."""
    return lambda source: answers_of(source.path, source.inputs, emulate=precision)


def _int8(variant: str, tool: str, **settings: str) -> Callable[[Source], Answers]:
    return lambda source: answers_of(_derived(source, variant, tool, **settings), source.inputs)


# The precision that each is judged as, and what it answers.
CANDIDATES: Mapping[str, tuple[str, Callable[[Source], Answers]]] = {
    "export": ("fp32", lambda source: answers_of(source.path, source.inputs)),
    "unoptimised": ("fp32", lambda source: answers_of(source.path, source.inputs, is_optimised=False)),
    "one-at-a-time": ("fp32", lambda source: one_at_a_time(reference_of(source.path), source.inputs)),
    "openvino": ("fp32", lambda source: answers_of(_derived(source, "openvino-fp32"), source.inputs)),
    "fp16": ("fp16", _low(Precision.FP16)),
    "fp16-whole": ("fp16", _whole(Precision.FP16)),
    "bf16": ("bf16", _low(Precision.BF16)),
    "bf16-whole": ("bf16", _whole(Precision.BF16)),
    "int8": ("int8", _int8("onnx-int8", "onnxruntime")),
    "int8-unsigned": ("int8", _int8("onnx-int8", "onnxruntime", activations="uint8")),
    "int8-percentile": ("int8", _int8("onnx-int8", "onnxruntime", method="percentile")),
    "int8-dynamic": ("int8", _int8("onnx-int8", "onnxruntime", method="dynamic")),
    "int8-nncf": ("int8", _int8("onnx-int8", "nncf")),
    "int8-openvino": ("int8", _int8("openvino-int8", "nncf")),
}
