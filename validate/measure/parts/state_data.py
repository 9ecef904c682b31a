"""The states of measurements as JSON data, and back: each field by a table of types, because files are untrusted."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from paritygate.codec import UnreadError, read_as
from paritygate.validate.measure.figures import WorstRow

# JSON has no text for these numbers.
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class _AnyNumber:
    """Marks a number that may be infinite or none, which is then written as a text."""

    reads = float | str

    @staticmethod
    def read(value: float | str) -> float:
        if isinstance(value, str) and value not in _ODD:
            raise UnreadError(f"is {value!r}, not a number")
        return _ODD[value] if isinstance(value, str) else value


Number = Annotated[float, _AnyNumber]
# The fields of a `WorstRow` in their order, those that results leave out among them.
Row = tuple[str, Number, tuple[int, ...], Number, Number, Number, Number, int]
Counts = list[tuple[int, int]]


def spelled(data: Any) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data with texts for numbers that are not finite."""
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, Mapping):
        return {name: spelled(item) for name, item in data.items()}
    return [spelled(item) for item in data] if isinstance(data, list | tuple) else data


def fields_data(state: object, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a table names as JSON data; numbers without a text in JSON become one."""
    return {name: spelled(getattr(state, name)) for name in kinds}


def read_fields(kinds: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that `fields_data` wrote; raise ValueError or KeyError for anything else."""
    return {name: read_as(kind, data[name]) for name, kind in kinds.items()}


def row_data(row: WorstRow) -> list[Any]:
    """Return a row as JSON data."""
    return list(spelled(astuple(row)))


def row_of(values: Sequence[Any]) -> WorstRow:
    """Return the row that was read as `Row`."""
    names = ("row_id", "max_abs_diff", "index", "actual", "expected", "limit", "in_limits", "channel")
    return WorstRow(**dict(zip(names, values, strict=True)))


def sparse(counts: NDArray[np.int64]) -> list[list[int]]:
    """Return the counts that are not 0, each after its place."""
    flat = counts.ravel()
    places = np.flatnonzero(flat)
    return [[int(place), int(flat[place])] for place in places]


def dense(pairs: Counts, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the counts that `sparse` returned; raise ValueError for a place that the shape lacks."""
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    for place, count in pairs:
        if not (0 <= place < counts.size and count >= 0):
            raise ValueError(f"a count of {count} at place {place} of {counts.size}")
        counts[place] = count
    return counts.reshape(shape)


def packed(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> str:
    """Return the bytes of arrays, one after the other, as a text."""
    return base64.b64encode(b"".join(array.astype(dtype).tobytes() for array in arrays)).decode()


def unpacked(text: object, dtype: type[np.generic]) -> NDArray[Any]:
    """Return the array of a text that `packed` returned; raise ValueError for another text."""
    try:
        return np.frombuffer(base64.b64decode(read_as(str, text), validate=True), dtype=dtype)
    except binascii.Error as err:
        raise ValueError(str(err)) from err
