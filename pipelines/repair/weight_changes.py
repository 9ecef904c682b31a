"""Find weights of a converted file that may have to take the values of the source's."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from paritygate.convert.onnx.changes import ChangedWeight
from paritygate.validate.divergence.weights import difference
from paritygate.validate.tensors.tensor_graph import TensorGraph, Weight
from paritygate.validate.words.sentence import render

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A weight that a converter computed, such as one with a folded scale, has partners of its shape, but is like none.
_MOST_OF_ONE = 3
_MATRIX = 2
# Constants of the source reach an operator through so many nodes, such as a transpose of a weight.
_DEPTH = 4


class _Pair(Struct, frozen=True, kw_only=True):
    """A weight of the source in one order of its axes, and how far the file's weight is from it."""

    source: str
    axes: tuple[int, ...]
    off: float
    was: str


class Weights(Struct, frozen=True):
    """The float weights of the file and of the source."""

    ours: TensorGraph
    theirs: TensorGraph
    _digests: dict[str, dict[str, None]] = field(default_factory=dict)  # by digest of values: the source's weights

    def __post_init__(self) -> None:
        for name, weight in _floats(self.theirs):
            values = weight.load()
            for axes in _orders(values.ndim):
                self._digests.setdefault(_digest(values.transpose(axes)), {})[name] = None

    def changed(self) -> list[ChangedWeight]:
        """Return a change for each weight that is none of the source's, where the source has one that no other is.

        A weight of the same name comes first, and then the nearest.
        """
        equal = {name: self._digests.get(_digest(weight.load()), {}) for name, weight in _floats(self.ours)}
        taken = {other for names in equal.values() for other in names}
        changes = []
        for name, weight in _floats(self.ours):
            if equal[name]:
                # Two weights of one shape may be exchanged: their names show it.
                if name in self.theirs.weights and name not in equal[name]:
                    changes += self._pairs(name, weight.load(), [name])[:1]
                continue
            free = [other for other, _ in _floats(self.theirs) if other not in taken or other == name]
            pairs = self._pairs(name, weight.load(), free)
            changes += sorted(pairs, key=lambda item: item.source != name)[:_MOST_OF_ONE]
        return changes

    def at(self, nodes: Collection[str], others: Collection[str]) -> list[ChangedWeight]:
        """Return changes of the weights that nodes of the file read to those that the source's nodes read there."""
        read = _weights_read(self.theirs, others)
        changes = []
        for name in _weights_read(self.ours, nodes):
            weight = self.ours.weights[name]
            if weight.is_float and weight.shape:
                changes += self._pairs(name, weight.load(), read)
            elif weight.is_float:
                changes += self._numbers(name, float(weight.load()), read)
        return changes

    def _pairs(self, name: str, values: NDArray[Any], others: Collection[str]) -> list[ChangedWeight]:
        """Return the weights of the source that fit and differ, nearest first."""
        found = [pair for other in others for pair in self._fitting(values, other)]
        found.sort(key=lambda pair: pair.off)
        return [ChangedWeight(name=name, source=pair.source, axes=pair.axes, was=pair.was) for pair in found]

    def _fitting(self, values: NDArray[Any], other: str) -> Iterator[_Pair]:
        weight = self.theirs.weights[other]
        if not weight.is_float or not weight.shape or _size(weight.shape) != values.size:
            return
        loaded = weight.load()
        size = float(np.linalg.norm(loaded.astype(np.float64))) or 1.0
        for axes in _orders(loaded.ndim):
            way = loaded.transpose(axes)
            if _plain(way.shape) != _plain(values.shape):
                continue
            way = way.reshape(values.shape)
            off = float(np.linalg.norm(values.astype(np.float64) - way.astype(np.float64))) / size
            if off > 0:
                is_own = axes == tuple(range(loaded.ndim))
                yield _Pair(source=other, axes=() if is_own else axes, off=off, was=render(difference(values, way)))

    def _numbers(self, name: str, value: float, others: Collection[str]) -> Iterator[ChangedWeight]:
        """Yield changes of a number to those that the source has there."""
        for other in others:
            weight = self.theirs.weights[other]
            if weight.is_float and _size(weight.shape) == 1 and float(weight.load().reshape(-1)[0]) != value:
                yield ChangedWeight(name=name, source=other, was=f"is {value:.6g}")


def numbers_read(graph: TensorGraph, nodes: Collection[str]) -> list[str]:
    """Return the float weights of one number that the nodes read."""
    names = _weights_read(graph, nodes)
    return [name for name in names if graph.weights[name].is_float and _size(graph.weights[name].shape) == 1]


def _floats(graph: TensorGraph) -> Iterator[tuple[str, Weight]]:
    return (item for item in graph.weights.items() if item[1].is_float and _size(item[1].shape) > 1)


def _weights_read(graph: TensorGraph, nodes: Collection[str]) -> list[str]:
    """Return the weights that the nodes read, directly or through nodes without other inputs."""
    wanted = set(nodes)
    waiting = [(name, 0) for node in graph.nodes if node.name in wanted for name in node.input]
    found: dict[str, None] = {}
    while waiting:
        name, depth = waiting.pop(0)
        if name in graph.weights:
            found[name] = None
        elif name in graph.constants and name in graph.producers and depth < _DEPTH:
            waiting += [(each, depth + 1) for each in graph.producers[name].input]
    return list(found)


def _orders(rank: int) -> list[tuple[int, ...]]:
    """Return the orders of axes in which frameworks store a weight."""
    own = tuple(range(rank))
    if rank <= _MATRIX:
        return list(itertools.permutations(own))
    last, before, spatial = rank - 1, rank - 2, own[:-2]
    return [own, (last, before, *spatial), (before, last, *spatial), (1, 0, *own[2:]), (*own[2:], 1, 0)]


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _digest(values: NDArray[Any]) -> str:
    head = repr(_plain(values.shape)).encode()
    plain = np.ascontiguousarray(values.astype(np.float64))
    return hashlib.sha256(head + plain.tobytes()).hexdigest()
