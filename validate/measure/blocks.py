"""Splits the work on an output's values: by blocks of rows, by threads, and by channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Kind = TypeVar("_Kind", bound="np.generic")
_Part = TypeVar("_Part")
_Found = TypeVar("_Found")

# Rows are worked on in blocks of about this many values: the float64 copies of a block stay in the cache.
_BLOCK_VALUES = 1 << 17
# Each thread has about ten float64 copies of its part: with so many values, 160 MB.
_MOST_VALUES = 1 << 21
_MOST_THREADS = 4


def blocks_of_rows(shape: tuple[int, ...], rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about as many values each; one range without an axis of rows, or without values."""
    if not shape or shape[0] != rows or 0 in shape:
        yield 0, rows
        return
    step = max(1, _BLOCK_VALUES // max(1, math.prod(shape[1:])))
    for first in range(0, rows, step):
        yield first, min(rows, first + step)


def by_block(work: Callable[[slice], _Found], shape: tuple[int, ...]) -> list[_Found]:
    """Return the result of `work` for each block of rows, in order, by several threads; blocks are independent."""
    blocks = [slice(*block) for block in blocks_of_rows(shape, shape[0])]
    return by_threads(work, blocks, values=values_of_block(shape))


def values_of_block(shape: tuple[int, ...]) -> int:
    """Return about how many values a block of rows holds; a block has one row at least."""
    return max(_BLOCK_VALUES, math.prod(shape[1:]))


def by_channel(values: NDArray[np.float64], axis: int | None) -> NDArray[np.float64]:
    """Return `values` as shape (channels, n): one row a channel, one channel where `axis` is None."""
    if axis is None:
        return values.reshape(1, -1)
    channels = values.shape[axis]
    # Of no channel, or of channels without values, the number of values is not to be found by dividing.
    each = values.size // channels if channels else 0
    return np.moveaxis(values, axis, 0).reshape(channels, each)


def on_axis(values: NDArray[_Kind], axis: int | None, rank: int) -> NDArray[_Kind]:
    """Return one value a channel in a shape that broadcasts over an array of this rank."""
    shape = [1] * rank
    if axis is not None:
        shape[axis] = -1
    return values.reshape(shape)


def rows_of(array: NDArray[_Kind], batch_rows: int) -> NDArray[_Kind]:
    """Return `array` with its rows along axis 0; an output without an axis of rows is one row."""
    if array.ndim and array.shape[0] == batch_rows:
        return array
    return array[np.newaxis]


def by_threads(work: Callable[[_Part], _Found], parts: Sequence[_Part], *, values: int) -> list[_Found]:
    """Return the result of `work` for each part, in order; it must not depend on other threads.

    There are as many threads as this process may use processors, at most four; one for parts of more than
    `_MOST_VALUES`.
    """
    if len(parts) < 2 or values > _MOST_VALUES:  # noqa: PLR2004 - one part needs this thread alone
        return [work(part) for part in parts]
    # The command, which reads profiles alone, is spared them.
    from concurrent.futures import ThreadPoolExecutor

    from paritygate.machine import available_processors

    with ThreadPoolExecutor(min(len(parts), available_processors(), _MOST_THREADS)) as pool:
        return list(pool.map(work, parts))
