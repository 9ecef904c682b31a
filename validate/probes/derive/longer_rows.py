"""Rows brought to another size: cut, or continued with values of other real rows.

Repeated values leave a maximum or a mean as it is, so they would not reveal a model that cuts its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def of_size(
    array: NDArray[Any], axis: int, places: NDArray[np.intp], *, has_rows: bool, elsewhere: Sequence[NDArray[Any]]
) -> NDArray[Any] | None:
    """Return the rows with one axis of another size, or None where the input is empty.

    A row continues with the rows that follow it, then with `elsewhere` (the input in rows of other shapes), then with
    itself. `places` are taken from the continued row; with `has_rows` the first axis holds rows.
    """
    parts: list[NDArray[Any]] = []
    filled = 0
    for part in _parts(array, axis, has_rows=has_rows, elsewhere=elsewhere):
        if filled > int(places.max()):
            break
        parts.append(part)
        filled += part.shape[axis]
    return np.take(np.concatenate(parts, axis=axis), places % filled, axis=axis) if filled else None


def real_throughout(size: int) -> NDArray[np.intp]:
    """Return the places of a row that is real from its beginning to its end."""
    return np.arange(size)


def real_at_both_ends(size: int) -> NDArray[np.intp]:
    """Return places for a row with real first and last quarters and one place repeated between, so that cuts show."""
    places = np.arange(size)
    quarter = max(1, size // 4)
    return np.where(places < size - quarter, np.minimum(places, quarter - 1), places - size + 2 * quarter)


def _parts(
    array: NDArray[Any], axis: int, *, has_rows: bool, elsewhere: Sequence[NDArray[Any]]
) -> Iterator[NDArray[Any]]:
    yield array
    if has_rows:
        for step in range(1, len(array)):
            yield np.roll(array, -step, axis=0)
    for other in elsewhere:
        is_alike = other.ndim == array.ndim and all(
            other.shape[at] == array.shape[at] for at in range(int(has_rows), array.ndim) if at != axis
        )
        if not is_alike:
            continue
        if not has_rows:
            yield other
            continue
        # Each row continues with a different one, as far as there are.
        for step in range(len(other)):
            yield other[np.arange(step, step + len(array)) % len(other)]
