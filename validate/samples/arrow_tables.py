"""Reads Parquet files, and data sets saved by the package `datasets`, with pyarrow alone, in constant memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.batch import Batch
from paritygate.errors import InputFileError, ParitygateError
from paritygate.file_names import path_below
from paritygate.files import read_json
from paritygate.text import row_range
from paritygate.validate.samples.columns import ID_COLUMN, inputs_of_columns, wanted_columns
from paritygate.validate.samples.source import SampleSource, unreadable
from paritygate.validate.samples.tables import SeenIds, batch_of_rows, not_an_array, texts

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# Files of `save_to_disk`: the first names the files of a data set, the second the folders of several.
DATASET_FILE = "state.json"
SPLITS_FILE = "dataset_dict.json"
_READ_BYTES = 1 << 20
# Row numbers, written where a DataFrame was filtered before.
_PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")


def read_parquet(path: Path, source: SampleSource, first_row: int = 0) -> Iterator[Batch]:
    """Yield the rows of a Parquet file from one on as batches; row groups before it are not read."""
    import pyarrow.parquet as pq

    with _errors_of(path), pq.ParquetFile(path, buffer_size=_READ_BYTES, pre_buffer=False) as file:
        schema = file.schema_arrow
        columns = [*wanted_columns(path, _inputs(schema), source), *(n for n in schema.names if n == ID_COLUMN)]
        groups, before = list(range(file.num_row_groups)), 0
        while groups and before + (rows := file.metadata.row_group(groups[0]).num_rows) <= first_row:
            groups, before = groups[1:], before + rows
        parts = file.iter_batches(
            batch_size=source.batch_size, row_groups=groups, columns=columns if source.columns else None
        )
        yield from _batches(path, schema, _from_row(parts, first_row - before), source, start=first_row)


def read_dataset(folder: Path, source: SampleSource) -> Iterator[Batch]:
    """Yield the rows of a data set as batches, from its Arrow files in the order of its state."""
    with _errors_of(folder):
        files = _files_of(folder)
        schema = next(_schemas(files), None)
        if schema is not None:
            yield from _batches(folder, schema, _record_batches(files), source)


def _files_of(folder: Path) -> list[Path]:
    state = read_json(folder / DATASET_FILE)
    named = state.get("_data_files") if isinstance(state, dict) else None
    names = [item.get("filename") if isinstance(item, dict) else None for item in named or ()]
    if not isinstance(named, list) or not all(isinstance(name, str) for name in names):
        msg = f"samples {folder}: {DATASET_FILE} does not name the files of a data set"
        raise InputFileError(msg, hint="save it again with Dataset.save_to_disk")
    if state.get("_indices_data_files"):
        msg = f"samples {folder}: an old version of datasets saved them, so the order of rows is in other files"
        raise InputFileError(msg, hint="save it again with Dataset.save_to_disk of version 2.0 or later")
    files = [path_below(folder, str(name)) for name in names]
    for file in files:
        # Opening a pipe would wait.
        if not file.is_file():
            state = "is not a file" if file.exists() else "is missing"
            msg = f"{file.name}, named in {DATASET_FILE}, {state}"
            raise unreadable(folder, FileNotFoundError(msg))
    return files


def _schemas(files: Iterable[Path]) -> Iterator[pa.Schema]:
    import pyarrow as pa

    for file in files:
        with pa.memory_map(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
            yield reader.schema


def _record_batches(files: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for file in files:
        with pa.memory_map(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
            yield from reader


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except ParitygateError:
        raise
    except (pa.ArrowException, OSError, ValueError) as err:
        raise unreadable(path, err) from err


def _from_row(parts: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield part.slice(min(first_row, part.num_rows))
        first_row = max(0, first_row - part.num_rows)


def _batches(
    path: Path, schema: pa.Schema, parts: Iterable[pa.RecordBatch], source: SampleSource, *, start: int = 0
) -> Iterator[Batch]:
    for name in schema.names:
        if schema.names.count(name) > 1:
            msg = f"samples {path} hold two columns {name!r}"
            raise InputFileError(msg, hint="give every column a name of its own")
    names = wanted_columns(path, _inputs(schema), source)
    for name in names:
        _check_type(path, name, schema.field(name).type)
    seen = SeenIds()
    for table in _cut(parts, source.batch_size):
        rows = range(start, start + table.num_rows)
        ids = [str(value) for value in (table[ID_COLUMN].to_pylist() if ID_COLUMN in schema.names else rows)]
        seen.add(ids, f"samples {path}")
        columns = {name: _rows(path, name, ids, table[name].combine_chunks()) for name in names}
        yield inputs_of_columns(path, batch_of_rows(path, ids, columns, source), source)
        start = rows.stop


def _inputs(schema: pa.Schema) -> list[str]:
    """Return the columns that hold values: neither ids nor the row numbers that pandas writes."""
    return [name for name in schema.names if name != ID_COLUMN and not _PANDAS_INDEX.fullmatch(name)]


def _cut(parts: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield tables of `size` rows, the last one smaller, whatever sizes the parts have."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += part.num_rows
        if rows < size:
            continue
        table = pa.Table.from_batches(waiting)
        while rows >= size:
            yield table.slice(0, size)
            table, rows = table.slice(size), rows - size
        waiting = table.to_batches()
    if rows:
        yield pa.Table.from_batches(waiting)


def _inner(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of a list's items; None for any other type."""
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return kind.value_type if is_list else None


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values: a dictionary's entries, or the storage of an extension."""
    from pyarrow import BaseExtensionType, types

    if types.is_dictionary(kind):
        return kind.value_type
    return kind.storage_type if isinstance(kind, BaseExtensionType) else kind


def columns_of_arrow(path: Path) -> dict[str, str]:
    """Return what the rows of each column of a Parquet file or data set hold: number, text, list or other."""
    import pyarrow.parquet as pq

    with _errors_of(path):
        schema = pq.read_schema(path) if path.is_file() else next(_schemas(_files_of(path)), None)
    return {} if schema is None else {name: _kind(schema.field(name).type) for name in _inputs(schema)}


def _kind(kind: pa.DataType) -> str:
    plain = _plain(kind)
    leaf = _leaf(kind)
    if _is_text(leaf):
        return "text"
    if not _is_number(leaf):
        return "other"
    return "number" if _inner(plain) is None else "list"


def _leaf(kind: pa.DataType) -> pa.DataType:
    """Return the type of the innermost items of lists."""
    leaf = _plain(kind)
    while (inner := _inner(leaf)) is not None:
        leaf = _plain(inner)
    return leaf


def _is_number(leaf: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(leaf) or types.is_floating(leaf) or types.is_boolean(leaf))


def _is_text(leaf: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_string(leaf) or types.is_large_string(leaf))


def _check_type(path: Path, name: str, kind: pa.DataType) -> None:
    leaf = _leaf(kind)
    if not (_is_number(leaf) or _is_text(leaf)):
        msg = f"samples {path}: the column {name!r} holds {kind} (allowed: numbers, bool, text, and lists of these)"
        raise InputFileError(msg, hint=f"leave the column {name!r} out, or convert it to one of these")


def _rows(path: Path, name: str, ids: list[str], column: Any) -> list[NDArray[np.generic]]:  # noqa: ANN401 - pyarrow has no types
    """Return the value of each row; raise InputFileError if one is missing, or inner lists differ in length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    levels: list[NDArray[np.generic]] = []
    while True:
        while (plain := _plain(column.type)) != column.type:
            column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column.storage
        if column.null_count:
            msg = f"samples {path}: {name!r} holds null in one of the {row_range(ids[0], ids[-1])}"
            raise InputFileError(msg, hint="give every row a value, or leave the column out")
        if _inner(plain) is None:
            break
        levels.append(pc.list_value_length(column).to_numpy(zero_copy_only=False))
        column = column.flatten()
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "O":
        values = texts(values, f"samples {path}: {name!r} holds text")
    if not levels:
        return [values[row, ...] for row in range(len(ids))]
    if not values.size:
        return [values[:0]] * len(ids)
    sizes = []
    for lengths in levels[1:]:
        if lengths.min() != lengths.max():
            raise not_an_array(path, name, f"lists in it hold {lengths.min()} to {lengths.max()} entries")
        sizes.append(int(lengths[0]))
    return np.split(values.reshape(int(levels[0].sum()), *sizes), np.cumsum(levels[0])[:-1])
