"""Find tensors of the reference that may replace the candidate's, and run the candidate with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.validate.divergence.node_differences import Sides
from paritygate.validate.divergence.region import Region
from paritygate.validate.divergence.sketch import Sketch
from paritygate.validate.tensors.inner_values import Arrays, Feed, read_inner
from paritygate.validate.tensors.meter import BudgetSpentError
from paritygate.validate.tensors.tensor_graph import TensorGraph

# The reference's tensor that stands for the candidate's is looked for so many nodes after the last one that both have.
_HOPS = 4
_MOST_TRIED = 6
_FAR_BETTER = 0.1
# Values of tensors that were tried are kept up to this size, to be tried again.
_MOST_BYTES = 128 * 2**20
# A value has at most so many bytes.
_LONGEST = 8
_NOTHING: Mapping[str, NDArray[Any]] = {}


class Forcing:
    """Runs the candidate with tensors of the reference in the place of its own.

    Attributes:
        forced: What every run has so far: the candidate's tensor, and the reference's in its place.
    """

    def __init__(
        self,
        candidate: TensorGraph,
        reference: TensorGraph,
        sketches: tuple[Mapping[str, Sketch], Mapping[str, Sketch]],
        feeds: tuple[Sequence[Feed], Sequence[Feed]],
        error_of: Callable[[Mapping[str, Arrays]], float],
    ) -> None:
        """Take both graphs, sketches and feeds, the candidate's first, and what measures the candidate's outputs."""
        self._candidate, self._reference = candidate, reference
        self._sketches, self._wanted = sketches
        self._feeds, self._reference_feeds = feeds
        self._error_of = error_of
        self._own: dict[str, Arrays] = {}
        self._theirs: dict[str, Arrays] = {}
        self.forced: dict[str, str] = {}

    def best_of(self, region: Region, sides: Sides) -> tuple[str | None, float]:
        """Return the reference's tensor that best replaces the region's output, and the error that it leaves."""
        best: tuple[str | None, float] = (None, float("inf"))
        name = self.output_of(region)
        for other in [] if name is None else self._stand_ins(name, region, sides)[:_MOST_TRIED]:
            error = self.error_with({**self.forced, str(name): other})
            # Where another fault follows, errors say little: only one far smaller outweighs the likelier tensor.
            if error < (best[1] if best[0] is None else _FAR_BETTER * best[1]):
                best = other, error
        return best

    def output_of(self, region: Region) -> str | None:
        """Return the first output of the region's last node; None if it is not a tensor that depends on the inputs."""
        return next((name for name in region.candidate[-1].output if name in self._sketches), None)

    def rank_of(self, name: str) -> int | None:
        """Return the rank of a tensor of the candidate that was replaced; None if its values are not kept."""
        arrays = self._own.get(name)
        return arrays[0].ndim if arrays else None

    def error_with(self, pairs: Mapping[str, str], constants: Mapping[str, NDArray[Any]] = _NOTHING) -> float:
        """Return the error of the outputs with the reference's tensors in these places; infinity if they do not fit.

        `constants` are new values of constants. Where the budget does not allow the run, it is infinity too.
        """
        try:
            changed = {name: [array] * len(self._feeds) for name, array in constants.items()}
            return self._error_of({**self.values_of(pairs), **changed})
        except (BackendError, BudgetSpentError, ValueError, LookupError, TypeError):
            # A tensor of another shape or dtype does not fit here; nor does a sequence or a map.
            return float("inf")

    def prepare(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Read the tensors of the pairs in one run of each model, if they are small enough to be kept."""
        sides = {name for name, _ in pairs}, {other for _, other in pairs}
        sketches = [self._sketches[name] for name in sides[0]] + [self._wanted[name] for name in sides[1]]
        if _LONGEST * sum(sum(sketch.sizes) for sketch in sketches) > _MOST_BYTES:
            return
        try:
            _read_missing(self._own, sorted(sides[0]), self._candidate, self._feeds)
            _read_missing(self._theirs, sorted(sides[1]), self._reference, self._reference_feeds)
        except BudgetSpentError:
            # The first run with one of them ends the search.
            return

    def values_of(self, pairs: Mapping[str, str]) -> dict[str, Arrays]:
        """Return the reference's values in the shape and dtype of the candidate's tensors.

        Raises:
            ValueError: A tensor has another number of values.
        """
        for known, needed in ((self._own, pairs.keys()), (self._theirs, set(pairs.values()))):
            _drop_others(known, needed)
        _read_missing(self._own, pairs, self._candidate, self._feeds)
        _read_missing(self._theirs, list(pairs.values()), self._reference, self._reference_feeds)
        # FP16 overflows to infinity.
        with np.errstate(over="ignore"):
            return {
                name: [
                    value.reshape(mine.shape).astype(mine.dtype)
                    for value, mine in zip(self._theirs[other], self._own[name], strict=True)
                ]
                for name, other in pairs.items()
            }

    def _stand_ins(self, name: str, region: Region, sides: Sides) -> list[str]:
        """Return the reference's tensors near the region that have the size of the candidate's, likeliest first."""
        ours = self._sketches[name]
        op_type = self._candidate.producers[name].op_type
        own = [other for node in region.reference for other in node.output]
        near = dict.fromkeys([*own, *self._read_with(name, sides), *self._after([other for _, other in region.start])])
        fitting = [other for other in near if other in self._wanted and self._wanted[other].key == ours.key]
        return sorted(
            fitting, key=lambda other: (self._reference.operator(other) != op_type, bool(own) and other not in own)
        )

    def _read_with(self, name: str, sides: Sides) -> list[str]:
        """Return what the reference's nodes read that read the partner of what the tensor's readers read beside it."""
        names = []
        for reader in self._candidate.consumers.get(name, ()):
            for other in (each for each in self._candidate.data_inputs(reader) if each != name):
                partners = sides.partners.matched(other, sides.tolerance)
                nodes = [node for partner in partners for node in self._reference.consumers.get(partner, ())]
                names += [each for node in nodes if node.op_type == reader.op_type for each in node.input]
        return names

    def _after(self, tensors: Sequence[str]) -> list[str]:
        """Return the reference's tensors that are computed from these in a few steps, nearest first, then these."""
        names: dict[str, None] = {}
        front = list(tensors)
        for _ in range(_HOPS):
            readers = [node for tensor in front for node in self._reference.consumers.get(tensor, ())]
            front = [name for node in readers for name in node.output if name and name not in names]
            names.update(dict.fromkeys(front))
        return [*names, *tensors]


def _drop_others(known: dict[str, Arrays], needed: AbstractSet[str]) -> None:
    """Drop the oldest values that are not needed, so that those of tensors that were tried do not pile up."""
    sizes = {name: sum(array.nbytes for array in arrays) for name, arrays in known.items()}
    held = sum(sizes.values())
    for name in [name for name in known if name not in needed]:
        if held <= _MOST_BYTES:
            return
        held -= sizes[name]
        del known[name]


def _read_missing(
    known: dict[str, Arrays], names: Mapping[str, str] | Sequence[str], graph: TensorGraph, feeds: Sequence[Feed]
) -> None:
    missing = list(dict.fromkeys(name for name in names if name not in known))
    known.update({name: [feed[name] for feed in feeds] for name in missing if name in graph.inputs})
    known.update(read_inner(graph, [name for name in missing if name not in graph.inputs], feeds))
