"""Match the inner tensors of two models by their values, whatever their names are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.errors import UsageError
from paritygate.validate.divergence.same_values import MOVING, passed_on
from paritygate.validate.divergence.sketch import Sketch, sketch_of
from paritygate.validate.tensors.inner_values import Arrays, Feed, read_inner
from paritygate.validate.tensors.tensor_graph import TensorGraph

# No tolerance is larger, so partners that differ more are not kept.
_FARTHEST = 0.1
_SOME = 16


class Partner(Struct, frozen=True, kw_only=True):
    """A tensor of the other model, and the largest relative error between the two."""

    name: str
    error: float


class Matching(Struct, frozen=True, kw_only=True):
    """The partners of each tensor of one model in the other one, nearest first, then in the other's order.

    Attributes:
        partners: For each inner tensor and input. Empty where no tensor of the other model is near.
        sketches: Of the tensors of this model.
    """

    partners: Mapping[str, Sequence[Partner]]
    sketches: Mapping[str, Sketch]

    def matched(self, name: str, tolerance: float) -> list[str]:
        """Return the partners within the tolerance."""
        return [partner.name for partner in self.partners.get(name, ()) if partner.error <= tolerance]


def sketches_of(graph: TensorGraph, feeds: Sequence[Feed], values: Mapping[str, Arrays]) -> dict[str, Sketch]:
    """Return the sketch of each inner tensor and each input of the model, run on the feeds with these inner values.

    Raises:
        BackendError: ONNX Runtime cannot run the model.
    """
    inputs = {name: sketch_of([feed[name] for feed in feeds]) for name in graph.inputs if name in feeds[0]}
    names = [*graph.inner(), *graph.layouts]
    return {**inputs, **{name: sketch_of(arrays) for name, arrays in read_inner(graph, names, feeds, values)}}


def match(
    graphs: tuple[TensorGraph, TensorGraph],
    sketches: tuple[Mapping[str, Sketch], Mapping[str, Sketch]],
    known: Iterable[tuple[str, str]],
) -> Matching:
    """Return the partners of each tensor of the first graph in the second.

    `known` pairs are partners whatever their values. A tensor whose values are all equal has many partners, so of these
    only those count that are computed by the same operator, or read by the same ones. What moves it has its partners.
    """
    ours, theirs = sketches
    groups: dict[object, list[str]] = defaultdict(list)
    for name, sketch in theirs.items():
        if sketch.kind != "x":
            groups[sketch.key].append(name)
    stacks = {key: _Stack(names, theirs) for key, names in groups.items()}
    partners: dict[str, Sequence[Partner]] = {
        name: stacks[sketch.key].near(sketch) if sketch.key in stacks else () for name, sketch in ours.items()
    }
    for name in (name for name, sketch in ours.items() if sketch.is_flat):
        partners[name] = [each for each in partners[name] if _have_one_role(graphs, name, each.name)]
    for name, base in graphs[0].layouts.items():
        # The tensor itself has the partners of its layouts.
        both = [*partners.get(base, ()), *partners.pop(name, ())]
        partners[base] = sorted(both, key=lambda partner: partner.error)
    for node in graphs[0].nodes:
        before = passed_on(node, graphs[0], ours)
        if before is not None and node.op_type in MOVING and ours[before].is_flat:
            partners[node.output[0]] = partners[node.output[0]] or partners[before]
    partners.update({name: (Partner(name=other, error=0.0),) for name, other in known})
    return Matching(partners=partners, sketches=ours)


def _have_one_role(graphs: tuple[TensorGraph, TensorGraph], name: str, other: str) -> bool:
    (maker, readers), (other_maker, other_readers) = (
        (graph.operator(tensor), sorted(node.op_type for node in graph.consumers.get(tensor, ())))
        for graph, tensor in zip(graphs, (name, other), strict=True)
    )
    return (bool(maker) and maker == other_maker) or (bool(readers) and readers == other_readers)


class _Stack:
    """The sketches of tensors of one kind and size, to be compared with one at a time."""

    def __init__(self, names: Sequence[str], sketches: Mapping[str, Sketch]) -> None:
        self._names = names
        self._values = np.stack([sketches[name].values for name in names])
        self._scale = np.stack([sketches[name].scale for name in names])
        self._some = np.linspace(0, self._values.shape[1] - 1, min(_SOME, self._values.shape[1])).astype(int)
        self._few = self._values[:, self._some], self._scale[:, self._some]

    def near(self, sketch: Sketch) -> list[Partner]:
        """Return the tensors whose largest error is at most `_FARTHEST`, the nearest first."""
        # Most pairs differ in some values already.
        few = _largest_errors(sketch.values[self._some], *self._few, kind=sketch.kind)
        at = np.flatnonzero(few <= _FARTHEST)
        errors = _largest_errors(sketch.values, self._values[at], self._scale[at], kind=sketch.kind)
        order = np.argsort(errors, kind="stable")
        return [
            Partner(name=self._names[at[index]], error=float(errors[index]))
            for index in order
            if errors[index] <= _FARTHEST
        ]


def _largest_errors(
    values: NDArray[np.float64], others: NDArray[np.float64], scale: NDArray[np.float64], *, kind: str
) -> NDArray[np.float64]:
    """Return the largest error of the values against each row of the others."""
    off = np.abs(others - values)
    if kind != "f":
        return np.where(off.any(axis=1), np.inf, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors: NDArray[np.float64] = np.nan_to_num(off / scale, nan=0.0, posinf=np.inf).max(axis=1, initial=0.0)
    return errors


def pairs_of(names: Sequence[str], others: Sequence[str]) -> dict[str, str] | None:
    """Return the other model's name of each, by name, or in order where names differ; None if the numbers differ."""
    if set(names) == set(others):
        return {name: name for name in names}
    return dict(zip(names, others, strict=True)) if len(names) == len(others) else None


def check_feeds(graph: TensorGraph, feeds: Sequence[Feed]) -> None:
    """Raise a `UsageError` if the feeds lack an input of the graph."""
    if all(name in feeds[0] for name in graph.inputs):
        return
    msg = f"the samples lack inputs of the reference (got {', '.join(feeds[0])}; expected {', '.join(graph.inputs)})"
    raise UsageError(msg, hint="give samples with these inputs; --columns renames those of a table")
