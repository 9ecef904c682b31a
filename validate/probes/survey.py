"""What the samples hold: the range of every input, the sizes seen, and some real rows to derive others from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["InputSurvey", "Rows", "Survey"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSurvey:
    """What was seen of one input.

    Attributes:
        dtype: NumPy's name of its dtype.
        has_rows: Whether its first axis holds the rows of the batch.
        low: The smallest finite value; None if there is none, or for texts.
        high: The largest finite value.
        has_nan: Whether a value is NaN.
        has_infinity: Whether a value is infinite.
        distinct: Its distinct values, in order, where they are few; None otherwise.
        shapes: Distinct shapes, the first ones.
    """

    dtype: str
    has_rows: bool
    low: float | None
    high: float | None
    has_nan: bool
    has_infinity: bool
    distinct: tuple[float, ...] | None
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Real rows whose inputs have the same shapes, so that they fit into one batch.

    Attributes:
        inputs: Every input, the rows along the first axis of those that have rows.
        ids: The id of each row.
        with_rows: The inputs that have rows; the others are the same in every call.
    """

    inputs: Mapping[str, NDArray[np.generic]]
    ids: tuple[str, ...]
    with_rows: frozenset[str]

    def take(self, at: Sequence[int]) -> dict[str, NDArray[np.generic]]:
        """Return the inputs of the rows at these positions, in this order, as often as they are named."""
        chosen = list(at)
        return {name: array[chosen] if name in self.with_rows else array for name, array in self.inputs.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What the samples hold.

    Attributes:
        rows: How many rows there are.
        batch_sizes: The smallest and the largest batch.
        inputs: What was seen of each input.
        groups: Real rows, those of one shape together; the group of most rows first.
    """

    rows: int
    batch_sizes: tuple[int, int]
    inputs: Mapping[str, InputSurvey]
    groups: tuple[Rows, ...]
