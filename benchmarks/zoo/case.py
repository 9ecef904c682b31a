"""What a case of the zoo is: an architecture, how it is built, and how inputs of it are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Case", "Drawn", "batches", "flags", "ids", "mask", "normal", "uniform"]

Arrays = dict[str, NDArray[Any]]
TORCH_TARGETS = ("onnx-fp32", "onnx-fp16", "openvino-fp32", "torchscript-fp32")
KERAS_TARGETS = ("onnx-fp32", "onnx-fp16", "openvino-fp32", "savedmodel-fp32", "tflite-fp32")


@dataclass(frozen=True, slots=True)
class Drawn:
    """An input: its shape, such as `batch sequence 3`, and what draws an array of such a shape."""

    shape: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """An architecture.

    Attributes:
        name: Its name, unique in the zoo.
        family: What kind of architecture it is.
        build: Returns the model with lively weights: a PyTorch module in evaluation mode, or a Keras model.
        inputs: Its inputs, in the order of its parameters.
        sizes: The smallest and largest size of every dim with a name; that of `batch` is 1 to 16 if not given.
        targets: What it is converted to.
        outputs: The outputs that are served; all arrays if empty.
        joint: Makes inputs that were drawn apart fit together.
        spec: What else the spec of the case says.
        note: What the table says of the case besides.
        is_unwritable: Whether what is not converted of it is written by no exporter there is, as the note then says.
    """

    name: str
    family: str
    build: Callable[[], Any]
    inputs: Mapping[str, Drawn]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    targets: Sequence[str] = TORCH_TARGETS
    outputs: Sequence[str] = ()
    joint: Callable[[Arrays], Arrays] | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    is_unwritable: bool = False

    @property
    def is_keras(self) -> bool:
        """Says that the model is one of Keras, whose inputs and outputs a spec need not name."""
        return "savedmodel-fp32" in self.targets

    def draw(self, random: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
        """Draw one batch of such sizes."""
        # The dim `total` of a decoder with a cache is the sum of what is cached and what is new.
        sizes = {**sizes, "total": sizes.get("past", 0) + sizes.get("new", 0)}
        arrays = {}
        for name, drawn in self.inputs.items():
            shape = tuple(int(dim) if dim.isdigit() else sizes[dim] for dim in drawn.shape.split())
            arrays[name] = drawn.draw(random, shape)
        return self.joint(arrays) if self.joint else arrays


def batches(case: Case, *, seed: int, number: int, rows: int) -> Iterator[Arrays]:
    """Draw so many batches of so many rows; every other dim takes sizes between its ends, both ends among them."""
    random = np.random.default_rng(seed)
    for index in range(number):
        sizes = {"batch": rows}
        for name, (least, most) in case.sizes.items():
            sizes[name] = (most, least)[index] if index < 2 else int(random.integers(least, most + 1))
        yield case.draw(random, sizes)


def ids(high: int, shape: str = "batch sequence", low: int = 0) -> Drawn:
    """Draw whole numbers from `low` to `high - 1`."""
    return Drawn(shape, lambda random, size: random.integers(low, high, size))


def normal(shape: str) -> Drawn:
    """Draw normal numbers."""
    return Drawn(shape, lambda random, size: random.standard_normal(size, np.float32))


def uniform(shape: str, low: float = 0.0, high: float = 1.0) -> Drawn:
    """Draw numbers between two ends."""
    return Drawn(shape, lambda random, size: random.uniform(low, high, size).astype(np.float32))


def flags(shape: str) -> Drawn:
    """Draw bools."""
    return Drawn(shape, lambda random, size: random.random(size) < 0.5)


def mask(shape: str = "batch sequence") -> Drawn:
    """Draw masks of int64 over rows of two positions and more, filled up on the right."""

    def draw(random: np.random.Generator, size: tuple[int, ...]) -> NDArray[Any]:
        lengths = random.integers(min(2, size[1]), size[1] + 1, size[0])
        lengths[0] = size[1]
        return (np.arange(size[1])[None] < lengths[:, None]).astype(np.int64)

    return Drawn(shape, draw)
