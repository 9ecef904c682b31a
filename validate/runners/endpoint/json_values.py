"""The one rule by which values in JSON become arrays: only floats are rounded.

Clients in Go, JavaScript and PHP write 3.0 as 3, 3 as 3.0, and true as 1, so these are read. A text is not a number, a
fraction no integer, and nothing is cut off.
"""

from __future__ import annotations

import base64
import itertools
import math
import reprlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401 - makes bfloat16 a dtype of NumPy
import numpy as np
from numpy.typing import NDArray

from paritygate.signature import is_float_dtype
from paritygate.utf8 import is_utf8

# NumPy's arrays have at most so many axes.
_MOST_AXES = 32
# Above it, one float represents several integers.
_LARGEST_IN_A_FLOAT = 2**53
_SHOWN = reprlib.Repr()
_SHOWN.maxlist = _SHOWN.maxdict = 6
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 60
_SHOWN.maxlevel = 3
_MOST_SHOWN = 120


def array_of(data: object, dtype: str, shape: Sequence[int] | None = None) -> NDArray[np.generic]:
    """Return the values of JSON data as an array; text is one of Python's strings, or bytes where it was base64.

    `data` is a value, or lists of equal lengths. With a `shape`, values may also be in one flat list. ValueError is
    raised where a value is of another kind or beyond the dtype, lists are uneven, or values do not fill the shape. Its
    message ends a sentence.
    """
    own_shape, values = _flat(data)
    if shape is not None:
        wanted = tuple(shape)
        if own_shape != wanted and own_shape != (math.prod(wanted),):
            raise ValueError(f"values of the shape {_listed(own_shape)} (expected {_listed(wanted)})")
        own_shape = wanted
    flat: NDArray[np.generic]
    if dtype == "string":
        flat = _texts(values)
    elif dtype == "bool":
        flat = np.asarray(_booleans(values), dtype=np.bool_)
    elif is_float_dtype(dtype):
        flat = _floats(values, dtype)
    else:
        flat = np.asarray(_integers(values, dtype), dtype=dtype)
    return flat.reshape(own_shape)


def shape_of(data: object) -> tuple[int, ...]:
    """Return the shape that an answer declares; raise ValueError unless it is a list of integers from 0 on."""
    if not isinstance(data, list) or len(data) > _MOST_AXES:
        raise ValueError(f"the shape {shown(data)}")
    return tuple(_integers(data, "uint32", what="in its shape "))


def shown(data: object) -> str:
    """Return JSON data as a message has them: the beginning, however much or deep they are."""
    text = _SHOWN.repr(data)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def _listed(shape: tuple[int, ...]) -> str:
    return shown(list(shape))


def _flat(data: object) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested lists, and their values in row-major order."""
    shape: list[int] = []
    level: list[Any] = [data]
    while level and set(map(type, level)) == {list}:
        lengths = set(map(len, level))
        if len(lengths) > 1 or len(shape) == _MOST_AXES:
            raise ValueError(f"{shown(data)}, not lists of one length")
        shape.append(lengths.pop())
        level = list(itertools.chain.from_iterable(level))
    return tuple(shape), level


def _refuse(values: Sequence[object], allowed: frozenset[type], dtype: str, what: str = "") -> None:
    """Raise ValueError for the first value of another type."""
    if not allowed.issuperset(map(type, values)):
        wrong = next(value for value in values if type(value) not in allowed)
        raise ValueError(f"{what}{shown(wrong)}, not a value of {dtype}")


def _integers(values: list[Any], dtype: str, *, what: str = "") -> list[int]:
    _refuse(values, frozenset({int, float}), dtype, what)
    limits = np.iinfo(dtype)
    wrong = next((value for value in values if type(value) is float and not _is_whole(value)), None)
    if wrong is None and values and not limits.min <= min(values) <= max(values) <= limits.max:
        wrong = next(value for value in values if not limits.min <= value <= limits.max)
    if wrong is not None:
        raise ValueError(f"{what}{shown(wrong)}, not a value of {dtype}")
    return list(map(int, values))


def _is_whole(value: float) -> bool:
    return value.is_integer() and abs(value) <= _LARGEST_IN_A_FLOAT


def _booleans(values: list[Any]) -> list[bool]:
    _refuse(values, frozenset({bool, int}), "bool")
    wrong = next((value for value in values if value not in {0, 1}), None)
    if wrong is not None:
        raise ValueError(f"{shown(wrong)}, not a value of bool")
    return list(map(bool, values))


def _floats(values: list[Any], dtype: str) -> NDArray[np.generic]:
    _refuse(values, frozenset({int, float}), dtype)
    try:
        wide = np.asarray(values, dtype=np.float64)
    except OverflowError as err:
        raise ValueError(f"an integer that is beyond what {dtype} holds") from err
    with np.errstate(over="ignore"):
        rounded: NDArray[np.generic] = wide.astype(np.dtype(dtype))
    is_beyond = np.isfinite(wide) & ~np.isfinite(rounded.astype(np.float64))
    if is_beyond.any():
        # An infinity that nobody sent could equal one of the reference's.
        raise ValueError(f"{wide[is_beyond][0]}, which is beyond what {dtype} holds")
    return rounded


def _texts(values: list[Any]) -> NDArray[np.generic]:
    _refuse(values, frozenset({str, dict}), "string")
    texts = np.empty(len(values), dtype=object)
    texts[:] = [_text(value) for value in values]
    return texts


def _text(value: Any) -> str | bytes:  # noqa: ANN401 - JSON data
    """Return a text, or the bytes of `{"b64": ...}`, as TensorFlow Serving writes them."""
    if isinstance(value, str):
        if is_utf8(value):
            return value
    elif value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError:
            pass
    raise ValueError(f"{shown(value)}, not a value of string")
