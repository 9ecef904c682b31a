"""Classify the padding of a row: none, on one side or both, with holes, or an empty row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.text import StrEnum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MATRIX_RANK = 2


class Padding(StrEnum):
    """The place of a row's padding."""

    NONE = "none"
    RIGHT = "right"
    LEFT = "left"
    BOTH = "both"
    INSIDE = "inside"
    EMPTY = "empty"


class PaddingSeen(Struct, frozen=True, kw_only=True):
    """The kinds of padding in the samples, in the order of `Padding`; the fewest and most real positions of a row."""

    kinds: tuple[Padding, ...] = ()
    shortest: int | None = None
    longest: int | None = None


def real_positions(array: NDArray[np.generic], pad: float = 0) -> NDArray[np.bool_] | None:
    """Return flags [row, position] of the positions that are not `pad`; None for an input without positions."""
    if array.ndim < _MATRIX_RANK or not array.size:
        return None
    is_real: NDArray[np.bool_] = (array != pad).reshape(*array.shape[:2], -1).any(axis=2)
    return is_real


def kinds_by_row(real: NDArray[np.bool_]) -> Mapping[Padding, NDArray[np.bool_]]:
    """Return for each kind of padding which rows have it; every row has exactly one."""
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
