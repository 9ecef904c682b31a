"""How the real positions of a row lie: all of them, padded on one side or on both, with holes, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MATRIX_RANK = 2


class Padding(str, Enum):
    """Where a row is padded."""

    NONE = "none"
    RIGHT = "right"
    LEFT = "left"
    BOTH = "both"
    INSIDE = "inside"
    EMPTY = "empty"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddingSeen:
    """What the samples show of the real positions of an input.

    Attributes:
        kinds: The kinds of padding, in the order of `Padding`.
        shortest: The fewest real positions of a row that has any; None where no row has.
    """

    kinds: tuple[Padding, ...] = ()
    shortest: int | None = None


def real_positions(array: NDArray[np.generic], pad: float = 0) -> NDArray[np.bool_] | None:
    """Return which positions of each row count, of shape (rows, positions); None where there are no positions.

    Args:
        array: A mask, or ids; the first axis holds rows, the second one positions.
        pad: What stands where nothing counts.
    """
    if array.ndim < _MATRIX_RANK or not array.size:
        return None
    real = np.asarray(array != pad).reshape(*array.shape[:2], -1)
    found: NDArray[np.bool_] = np.logical_or.reduce(real, axis=2)
    return found


def kinds_by_row(real: NDArray[np.bool_]) -> Mapping[Padding, NDArray[np.bool_]]:
    """Return for each kind of padding which rows have it; every row has one."""
    count = real.sum(axis=1)
    first, behind_last = real.argmax(axis=1), real.shape[1] - real[:, ::-1].argmax(axis=1)
    is_empty, is_full = count == 0, count == real.shape[1]
    is_one_piece = (behind_last - first == count) & ~is_empty & ~is_full
    at_start, at_end = first == 0, behind_last == real.shape[1]
    return {
        Padding.NONE: is_full,
        Padding.RIGHT: is_one_piece & at_start,
        Padding.LEFT: is_one_piece & at_end,
        Padding.BOTH: is_one_piece & ~at_start & ~at_end,
        Padding.INSIDE: ~(is_one_piece | is_empty | is_full),
        Padding.EMPTY: is_empty,
    }
