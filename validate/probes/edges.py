"""What makes a made-up row unlike every sample, so that a right conversion may answer it otherwise.

Nothing in the samples says that such a row occurs, and of some there is no right answer: where a row attends to
nothing, one runtime answers zero and another the mean. A difference at the edge is a finding, which is reported and
fails nothing. The other rows of the same call have to hold, so that what leaks from one row to another is a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from paritygate.signature import is_float_dtype
from paritygate.validate.probes.roles import InputRole, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.probes.survey import InputSurvey, Survey

__all__ = ["Edge", "EdgeKind", "edges_in_words", "edges_of", "rows_at_edge", "without_positions"]


class EdgeKind(str, Enum):
    """How a row is unlike every sample."""

    EMPTY_MASK = "empty_mask"
    NAN = "nan"
    INFINITY = "infinity"

    def __str__(self) -> str:
        return self.value


_WORDS: Mapping[EdgeKind, str] = {
    EdgeKind.EMPTY_MASK: "an empty row of {input}",
    EdgeKind.NAN: "NaN in {input}",
    EdgeKind.INFINITY: "infinity in {input}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """Rows of a batch that are unlike every sample in one way.

    Attributes:
        input: The input that they are unlike in.
        kind: How.
        rows: Their positions in the batch.
    """

    input: str
    kind: EdgeKind
    rows: tuple[int, ...]

    def __str__(self) -> str:
        return _WORDS[self.kind].format(input=self.input)


def edges_of(
    inputs: Mapping[str, NDArray[np.generic]], rows: int, roles: Mapping[str, InputRole], survey: Survey
) -> tuple[Edge, ...]:
    """Return in which ways rows of a batch are unlike every sample.

    Args:
        inputs: Every input of the batch.
        rows: How many rows it has.
        roles: What each input is: only a mask has empty rows.
        survey: What the samples hold.
    """
    found = []
    for name, array in inputs.items():
        for kind, at in _unseen(array, roles.get(name), survey.inputs[name]):
            # What an input without rows holds, every row of the batch meets.
            places = np.flatnonzero(at) if survey.inputs[name].has_rows else np.arange(rows) if at.any() else at[:0]
            if places.size:
                found.append(Edge(input=name, kind=kind, rows=tuple(int(row) for row in places)))
    return tuple(found)


def _unseen(
    array: NDArray[np.generic], role: InputRole | None, seen: InputSurvey
) -> Iterator[tuple[EdgeKind, NDArray[np.bool_]]]:
    """Yield what no sample holds, with where it is along the first axis."""
    if role is not None and role.role is Role.MASK and seen.has_rows and not seen.has_empty_row:
        yield EdgeKind.EMPTY_MASK, without_positions(array)
    if is_float_dtype(array.dtype.name):
        wide = np.atleast_1d(array.astype(np.float64))
        if not seen.has_nan:
            yield EdgeKind.NAN, _any_by_row(np.isnan(wide))
        if not seen.has_infinity:
            yield EdgeKind.INFINITY, _any_by_row(np.isinf(wide))


def without_positions(mask: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return which rows of a mask are zero at every position; none where it has no positions."""
    if mask.ndim < 2 or not mask.size:  # noqa: PLR2004 - rows and positions
        return np.zeros(len(mask) if mask.ndim else 1, dtype=bool)
    return ~_any_by_row(np.asarray(mask != 0))


def _any_by_row(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.logical_or.reduce(flags, axis=tuple(range(1, flags.ndim)))
    return found


def rows_at_edge(edges: Iterable[Edge]) -> tuple[int, ...]:
    """Return the positions of the rows that are unlike every sample in some way, in order."""
    return tuple(sorted({row for edge in edges for row in edge.rows}))


def edges_in_words(edges: Iterable[Edge]) -> str:
    """Return in which ways rows are unlike every sample, such as `an empty row of attention_mask`."""
    return " and ".join(dict.fromkeys(map(str, edges)))
