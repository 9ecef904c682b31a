"""Columns of a table as inputs of a model: which are read, which are combined, and which dtype they get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.errors import InputFileError, UsageError
from paritygate.text import hint_of_meant

# What values may be cast to.
CastDtype = Literal["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]

# The column that names the rows.
ID_COLUMN = "id"

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.validate.samples.source import SampleSource


def wanted_columns(path: Path, names: Sequence[str], source: SampleSource) -> list[str]:
    """Return the columns to read, in the order of the table, or all; raise InputFileError if one is missing."""
    if not source.columns:
        return list(names)
    wanted = {column for columns in source.columns.values() for column in columns}
    if ID_COLUMN in wanted - {*names}:
        msg = f"samples {path}: the column {ID_COLUMN!r} names the rows and is not an input (got it in "
        msg += f"{source.columns_option})"
        raise InputFileError(msg, hint=f"leave {ID_COLUMN!r} out, or rename the column if the model takes its numbers")
    for column in wanted - {*names}:
        msg = (
            f"samples {path} have no column {column!r}, which {source.columns_option} names (seen: {', '.join(names)})"
        )
        raise InputFileError(msg, hint=hint_of_meant(column, names, "name columns of the table"))
    return [name for name in names if name in wanted]


def inputs_of_columns(path: Path, batch: Batch, source: SampleSource) -> Batch:
    """Return a batch of a table with one array an input: a column, or several side by side, `(rows, columns)`.

    InputFileError is raised where a column to be combined has not one number a row.
    """
    if not source.columns:
        return batch
    import numpy as np

    inputs: dict[str, NDArray[np.generic]] = {}
    lengths: dict[str, Sequence[int]] = {}
    for name, columns in source.columns.items():
        arrays = [batch.inputs[column] for column in columns]
        if len(columns) == 1:
            inputs[name] = arrays[0]
            if columns[0] in batch.lengths:
                lengths[name] = batch.lengths[columns[0]]
            continue
        for column, array in zip(columns, arrays, strict=True):
            if array.ndim != 1 or array.dtype.kind not in "iubf":
                msg = f"samples {path}: the column {column!r} cannot be a part of {name!r} (got {_words(array)}, "
                msg += "expected one number a row)"
                raise InputFileError(msg, hint=f"leave {column!r} out of {source.columns_option}")
        inputs[name] = np.stack(arrays, axis=1)
    return replace(batch, inputs=inputs, lengths=lengths)


def _words(array: NDArray[np.generic]) -> str:
    kind = "text" if array.dtype.kind == "U" else str(array.dtype)
    return f"{kind}{list(array.shape[1:])}" if array.ndim > 1 else kind


def cast_inputs(batches: Iterable[Batch], source: SampleSource) -> Iterator[Batch]:
    """Yield the batches with the inputs of `source.cast` in the dtype declared.

    Floats and integers become floats, rounded by NumPy. Only whole numbers in the range become integers.
    """
    for batch in batches:
        cast = {name: _cast(name, batch, dtype, source) for name, dtype in source.cast.items()}
        yield replace(batch, inputs={**batch.inputs, **cast})


def _cast(name: str, batch: Batch, dtype: str, source: SampleSource) -> NDArray[np.generic]:
    array = batch.inputs.get(name)
    if array is None:
        msg = f"samples.cast names {name!r}, which is not an input of the samples (seen: {', '.join(batch.inputs)})"
        raise UsageError(msg, hint="name one of these, or leave it out")
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "iubf":
        msg = f"samples.cast makes {name!r} {dtype}, but the samples hold it as {_words(array)} (expected: numbers)"
        raise UsageError(msg, hint=f"leave {name!r} out of samples.cast")
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        cast: NDArray[np.generic] = array.astype(dtype)
    is_float = np.dtype(dtype).kind == "f"
    lost = np.isfinite(array) & ~np.isfinite(cast) if is_float else cast.astype(np.float64) != array
    # Beyond 2**53, floats do not show what an integer loses.
    if not is_float and array.dtype.kind in "iu":
        lost = cast.astype(array.dtype) != array
    if np.any(lost):
        value = array[tuple(np.argwhere(lost)[0])]
        msg = f"samples.cast makes {name!r} of {source.text} {dtype}, which cannot hold the value {value}"
        raise UsageError(msg, hint=f"cast {name!r} to another dtype, or correct the samples")
    return cast
