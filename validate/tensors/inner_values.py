"""Run a model and read its inner tensors, with values of another model in the place of some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from paritygate.validate.tensors.tensor_graph import Arrays, Feed, TensorGraph

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Arrays", "Feed", "read_inner", "read_outputs"]

# Each inner tensor that is read lives until the run ends, so a graph is read in parts of about so many bytes. Sizes are
# known only after a run: the first part has few tensors.
_BYTES_AT_ONCE = 256 * 2**20
_FIRST, _FEWEST, _MOST = 64, 4, 1000
_NOTHING: Mapping[str, Arrays] = {}


def read_inner(
    graph: TensorGraph, names: Sequence[str], feeds: Sequence[Feed], values: Mapping[str, Arrays] = _NOTHING
) -> Iterator[tuple[str, list[NDArray[np.generic]]]]:
    """Yield name and values of each tensor, one array for each feed, in the order of the names.

    `names` are inner tensors, outputs or constants. `values` replace inner tensors and weights, one array for each
    feed.

    Raises:
        BackendError: The model cannot run, or not with these values.
        BudgetSpentError: The runs would compute more tensors than the meter of the graph allows.
    """
    forced = [{**feed, **{name: arrays[at] for name, arrays in values.items()}} for at, feed in enumerate(feeds)]
    start, size = 0, _FIRST
    while start < len(names):
        graph.meter.take(len(graph.nodes) * len(feeds))
        part = list(names[start : start + size])
        own = [name for name in part if name not in values]
        computed = graph.values.open(own, values)
        read: dict[str, list[NDArray[np.generic]]] = {name: [] for name in own}
        for feed in forced:
            for name, array in zip(own, computed(feed), strict=True):
                read[name].append(array)
        held = sum(array.nbytes for arrays in read.values() for array in arrays)
        start, size = start + len(part), _next_size(held, len(own))
        # What has been read goes as soon as its reader is done.
        yield from ((name, read.pop(name) if name in read else list(values[name])) for name in part)


def _next_size(held: int, tensors: int) -> int:
    """Return how many tensors to read at once after so many of so many bytes."""
    return min(max(_BYTES_AT_ONCE * tensors // max(held, 1), _FEWEST), _MOST)


def read_outputs(graph: TensorGraph, feeds: Iterable[Feed]) -> Iterator[Feed]:
    """Yield the outputs of the model for each feed; raise what `read_inner` raises."""
    computed = graph.values.open(graph.outputs, _NOTHING)
    for feed in feeds:
        graph.meter.take(len(graph.nodes))
        yield dict(zip(graph.outputs, computed(feed), strict=True))
