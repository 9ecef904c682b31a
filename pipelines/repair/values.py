"""Read how large the values of a model are, and their shapes, on real rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.validate.tensors.inner_values import read_inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.tensors.tensor_graph import TensorGraph


class ValueFacts(Struct, frozen=True, kw_only=True):
    """A float32 value: its largest finite magnitude, and its shape and elements in the largest batch."""

    largest: float
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


def facts_of_values(graph: TensorGraph, feeds: Sequence[Mapping[str, NDArray[np.generic]]]) -> dict[str, ValueFacts]:
    """Return facts on the float32 values of a model on some batches: inputs, and what depends on them.

    Raises:
        BackendError: ONNX Runtime cannot run the model.
    """
    facts = {}
    for name, arrays in (*_inputs(graph, feeds), *read_inner(graph, graph.inner(), feeds)):
        floats = [array for array in arrays if array.dtype == np.float32]
        if floats:
            shape = max((array.shape for array in floats), key=lambda shape: int(np.prod(shape, dtype=np.int64)))
            facts[name] = ValueFacts(largest=max(map(_largest, floats)), shape=shape)
    return facts


def _inputs(
    graph: TensorGraph, feeds: Sequence[Mapping[str, NDArray[np.generic]]]
) -> Iterator[tuple[str, list[NDArray[np.generic]]]]:
    for name in graph.inputs:
        yield name, [feed[name] for feed in feeds if name in feed]


def _largest(array: NDArray[Any]) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
