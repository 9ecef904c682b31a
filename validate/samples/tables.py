"""Rows of a table as batches, with padded lists: JSON lines, and what all kinds of tables share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.errors import InputFileError, UsageError
from paritygate.files import parse_json
from paritygate.text import a_or_an, row_name, row_range
from paritygate.validate.samples.columns import ID_COLUMN, inputs_of_columns, wanted_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.samples.source import SampleSource

# Ids that are Python objects before they are packed.
_RECENT_IDS = 1 << 17


class SeenIds:
    """The ids of all rows so far, by their hashes: 8 bytes an id, in sorted order, except the latest."""

    def __init__(self) -> None:
        self._packed = np.zeros(0, dtype=np.int64)
        self._recent: set[int] = set()

    def add(self, ids: Sequence[str], what: str) -> None:
        """Add the ids of one batch; raise UsageError if one of them was there before."""
        values = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))
        at = np.searchsorted(self._packed, values)
        packed = (
            self._packed[np.minimum(at, self._packed.size - 1)] == values if self._packed.size else [False] * len(ids)
        )
        for row_id, value, is_packed in zip(ids, values.tolist(), packed, strict=True):
            if is_packed or value in self._recent:
                msg = f"{what}: the id {row_id!r} occurs twice"
                raise UsageError(msg, hint="give every row its own id, because results name the ids")
            self._recent.add(value)
        if len(self._recent) >= _RECENT_IDS:
            recent = np.fromiter(self._recent, dtype=np.int64, count=len(self._recent))
            self._packed = np.sort(np.concatenate([self._packed, recent]))
            self._recent.clear()


def batch_of_rows(
    path: Path, ids: Sequence[str], columns: Mapping[str, Sequence[NDArray[np.generic]]], source: SampleSource
) -> Batch:
    """Return rows of a table as one batch; values that are lists may differ in length along axis 0."""
    _check_pads(path, ids, columns, source)
    return Batch(
        inputs={name: _stack(path, name, ids, values, source) for name, values in columns.items()},
        ids=ids,
        lengths={name: [len(value) for value in values] for name, values in columns.items() if values[0].ndim},
    )


def _stack(
    path: Path, name: str, ids: Sequence[str], values: Sequence[NDArray[np.generic]], source: SampleSource
) -> NDArray[np.generic]:
    # An empty list has neither a shape of items nor a dtype.
    not_empty = [(row_id, value) for row_id, value in zip(ids, values, strict=True) if value.shape != (0,)]
    for row_id, value in not_empty[1:]:
        first_id, first = not_empty[0]
        if (first.ndim, first.shape[1:], first.dtype.kind == "U") != (
            value.ndim,
            value.shape[1:],
            value.dtype.kind == "U",
        ):
            why = f"{row_name(first_id)} holds {_words(first)}, {row_name(row_id)} {_words(value)}"
            raise not_an_array(path, name, why)
    if not not_empty:
        return np.stack(values)
    dtype = np.result_type(*(value.dtype for _, value in not_empty))
    lengths = [len(value) if value.ndim else 1 for value in values]
    if min(lengths) == max(lengths):
        return np.stack(values).astype(dtype, copy=False)
    fill = _fill(path, name, lengths, dtype, source)
    stacked = np.full((len(values), max(lengths), *not_empty[0][1].shape[1:]), fill, np.result_type(dtype, fill))
    for row, (value, length) in enumerate(zip(values, lengths, strict=True)):
        if length:
            stacked[row, :length] = value
    return stacked


def _check_pads(
    path: Path, ids: Sequence[str], columns: Mapping[str, Sequence[NDArray[np.generic]]], source: SampleSource
) -> None:
    """Raise InputFileError with all columns whose lists differ in length and that have no padding."""
    ragged = {}
    for name, values in columns.items():
        lengths = {len(value) for value in values if value.ndim}
        if len(lengths) > 1 and source.pad_of(name) is None and all(value.dtype.kind != "U" for value in values):
            ragged[name] = f"the lists of {name!r} have different lengths ({min(lengths)} to {max(lengths)})"
    if not ragged:
        return
    inputs = [name for column in ragged for name in source.inputs_of(column)]
    in_spec = f"{source.key}.pad: {{{', '.join(f'{name}: 0' for name in inputs)}}} in the spec"
    how = in_spec if source.key else " ".join(f"--pad {name}=0" for name in inputs)
    # Other rows were not read yet.
    msg = f"samples {path}, {row_range(ids[0], ids[-1])}: {'; '.join(ragged.values())}"
    raise InputFileError(msg, hint=f"correct the rows, or set the value that pads shorter ones: {how}")


def _words(value: NDArray[np.generic]) -> str:
    kind = "text" if value.dtype.kind == "U" else "numbers"
    if value.ndim <= 1:
        return f"a list of {kind}" if value.ndim else {"text": "a text", "numbers": "a number"}[kind]
    return f"a list of {kind} in the shape {list(value.shape[1:])}"


def _fill(
    path: Path, name: str, lengths: Sequence[int], dtype: np.dtype[np.generic], source: SampleSource
) -> float | bool:
    if dtype.kind == "U":
        msg = f"samples {path}: the lists of {name!r} have different lengths ({min(lengths)} to {max(lengths)})"
        raise InputFileError(msg, hint="correct the rows, because text cannot be padded")
    pad = source.pad_of(name)
    assert pad is not None  # noqa: S101 - _check_pads refuses lists without
    if dtype.kind == "b" and pad in {0, 1}:
        return bool(pad)
    if dtype.kind in "iu" and float(pad).is_integer():
        # A whole number pads integers without making them floats.
        limits = np.iinfo(dtype.name)
        if not limits.min <= pad <= limits.max:
            msg = f"{source.pad_option} fills {name!r} with {int(pad)}, but its values are {dtype}"
            raise UsageError(msg, hint=f"give a value from {limits.min} to {limits.max}")
        return int(pad)
    return pad


def not_an_array(path: Path, name: str, why: object) -> InputFileError:
    """Return the error of values that do not form an array."""
    msg = f"samples {path}: the values of {name!r} do not form an array: {why}"
    return InputFileError(msg, hint="give lists of the same length, because only the first level may be ragged")


def texts(values: NDArray[np.generic], what: str) -> NDArray[np.str_]:
    """Return an array of Python strings as one of NumPy's; messages begin with `what`.

    UsageError is raised for other values, and for a null character at the end, which NumPy's strings would lose.
    """
    for value in values.ravel().tolist():
        if not isinstance(value, str):
            msg = f"{what}, and one of the values is {a_or_an(type(value).__name__)}, not text"
            raise UsageError(msg, hint="give numbers a dtype; for text, make every value a str")
        if value.endswith("\0"):
            msg = f"{what}, and {value!r} ends in a null character, which NumPy's strings would lose"
            raise UsageError(msg, hint="remove null characters from the end of the text")
    # From an array of objects, NumPy derives too large a width, but not from a list.
    return np.asarray(values.tolist(), dtype=str)


def read_jsonl(path: Path, source: SampleSource) -> Iterator[Batch]:
    """Yield the batches in a file of JSON lines."""
    seen = SeenIds()
    with path.open("rb") as stream:
        lines = (line for line in enumerate(stream, start=1) if line[1].strip())
        while chunk := list(itertools.islice(lines, source.batch_size)):
            rows = [_parse_line(path, number, line) for number, line in chunk]
            ids = [str(row.pop(ID_COLUMN, number)) for row, (number, _) in zip(rows, chunk, strict=True)]
            seen.add(ids, f"samples {path}")
            names = wanted_columns(path, list(rows[0]), source)
            for row, (number, _) in zip(rows, chunk, strict=True):
                if not set(names) <= set(row) if source.columns else set(row) != set(names):
                    msg = f"samples {path}, line {number}: inputs differ (got {sorted(row)}, expected {sorted(names)})"
                    raise InputFileError(msg, hint="give the same inputs in every line")
            columns = {name: [_json_array(path, name, row[name]) for row in rows] for name in names}
            yield in_float32(inputs_of_columns(path, batch_of_rows(path, ids, columns, source), source), source)


def in_float32(batch: Batch, source: SampleSource) -> Batch:
    """Return a batch read from text with floats in float32, which models take."""
    inputs = {
        name: array.astype(np.float32) if array.dtype.kind == "f" and name not in source.cast else array
        for name, array in batch.inputs.items()
    }
    return replace(batch, inputs=inputs)


def first_object(path: Path) -> dict[str, Any]:
    """Return the first row of a file of JSON lines; an empty one of an empty file."""
    with path.open("rb") as stream:
        lines = (line for line in enumerate(stream, start=1) if line[1].strip())
        return next((_parse_line(path, number, line) for number, line in lines), {})


def _parse_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line)
        # Half of a surrogate pair is JSON, but no text.
        json.dumps(row, ensure_ascii=False).encode() if b"\\ud" in line.lower() else None
    except (ValueError, RecursionError) as err:
        msg = f"samples {path}, line {number}: not JSON: {err}"
        raise InputFileError(msg, hint="write one JSON object a line") from err
    if not isinstance(row, dict):
        msg = f"samples {path}, line {number}: {a_or_an(type(row).__name__)}, not an object of inputs by name"
        raise InputFileError(msg, hint='write for example {"id": "a", "input_ids": [1, 2]}')
    return row


def _json_array(path: Path, name: str, value: object) -> NDArray[np.generic]:
    try:
        array = np.asarray(value)
    except ValueError as err:
        raise not_an_array(path, name, err) from err
    if array.dtype.kind == "U":
        # NumPy converts numbers among text to text.
        return texts(np.asarray(value, dtype=object), f"samples {path}: {name!r} holds text")
    if array.dtype.kind not in "iubf":
        msg = f"samples {path}: the values of {name!r} are neither numbers nor text"
        raise InputFileError(msg, hint="give numbers, text, or lists of one of them")
    return array
