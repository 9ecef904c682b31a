"""Samples: batches of real inputs from a file or from a callable, read as a stream.

Keys `CASE/INPUT` in an npz file are batches of their own shapes, run as they are. Plain keys and rows are cut into
batches.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.backends import require_backend
from paritygate.batch import Arrays, Batch
from paritygate.errors import InputFileError, MeasurementError, ParitygateError, UsageError
from paritygate.importing import is_object_path, load_object, place_in_users_code
from paritygate.text import a_or_an, beside_meant, counted, hint_of_meant
from paritygate.validate.samples.arrow_tables import DATASET_FILE, SPLITS_FILE, read_dataset, read_parquet
from paritygate.validate.samples.columns import cast_inputs
from paritygate.validate.samples.csv_table import read_csv
from paritygate.validate.samples.npy_stream import NpyStream, npz_names
from paritygate.validate.samples.pictures import holds_pictures, read_pictures
from paritygate.validate.samples.random_rows import read_random_rows
from paritygate.validate.samples.source import DEFAULT_BATCH_SIZE, SampleSource, no_rows, unreadable
from paritygate.validate.samples.split import rows_for_calibration
from paritygate.validate.samples.tables import SeenIds, read_jsonl, texts

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "SUFFIXES",
    "TABLES",
    "BatchDigest",
    "SampleSource",
    "check_batch",
    "common_rows",
    "digest_of_batch",
    "is_table",
    "open_samples",
    "open_samples_at",
]

_KINDS = "a file of a kind that is read, the folder of a data set, of .npy files or of pictures, or module:callable"
# Files whose rows have columns with names.
TABLES = (".csv", ".jsonl", ".parquet")
# Files that hold rows and nothing else.
SUFFIXES = (".npz", ".npy", ".safetensors", *TABLES)
_SAFETENSORS_DTYPES = frozenset(
    {"F16", "F32", "F64", "BF16", "BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}
)


def is_table(source: SampleSource) -> bool:
    """Return whether samples are a table, whose rows have columns with names."""
    path = source.folder / source.text
    return path.suffix in TABLES or (path / DATASET_FILE).is_file()


def open_samples(source: SampleSource) -> Callable[[], Iterator[Batch]]:
    """Return a function that starts reading the samples from the first batch on, at each call.

    Raises:
        InputFileError: The file is missing or of an unknown kind.
        UsageError: The callable is not found, or the batch size is not positive. While reading: `pad` names no input.
    """
    read_all, split = _open_all(source), source.split

    def read() -> Iterator[Batch]:
        batches = _prepared(_some_rows(read_all(), source), source)
        return batches if split is None else rows_for_calibration(batches, split, fill=source.fill)

    return read


def open_samples_at(source: SampleSource, first: int) -> Callable[[], Iterator[Batch]]:
    """Return a function that starts reading at a batch, by its number from 0 among those with rows.

    Files that allow it are not read before that batch; all others are, one batch at a time. Raises as `open_samples`.
    """
    read_all, path = open_samples(source), source.folder / source.text
    reader = _AT_ROW.get(path.suffix) if path.is_file() and source.split is None else None
    if first and reader is not None:
        return lambda: _prepared(reader(path, source, first * source.batch_size), source)
    return lambda: islice((batch for batch in read_all() if batch.rows), first, None)


def _prepared(batches: Iterator[Batch], source: SampleSource) -> Iterator[Batch]:
    batches = _in_text(batches, source)
    batches = cast_inputs(batches, source) if source.cast else batches
    return _of_known_pads(batches, source) if source.pad else batches


def _some_rows(batches: Iterator[Batch], source: SampleSource) -> Iterator[Batch]:
    rows = 0
    for batch in batches:
        rows += batch.rows
        yield batch
    if not rows:
        raise no_rows(source.text)


def _of_known_pads(batches: Iterator[Batch], source: SampleSource) -> Iterator[Batch]:
    for batch in batches:
        for name in source.pad:
            if name not in batch.inputs:
                seen = ", ".join(batch.inputs)
                msg = f"{source.pad_option} names {name!r}, which is not an input of the samples (seen: {seen})"
                raise UsageError(msg, hint=hint_of_meant(name, batch.inputs, "name one of these, or leave it out"))
        yield batch


def _open_all(source: SampleSource) -> Callable[[], Iterator[Batch]]:
    if source.batch_size < 1:
        msg = f"batch size {source.batch_size} is not allowed (allowed: 1 and more)"
        raise UsageError(msg, hint="--batch-size 16 is the default")
    random = source.random
    if random is not None:
        return lambda: read_random_rows(random, source.batch_size)
    path = source.folder / source.text
    if source.images is not None and not path.is_dir():
        msg = f"{source.key}.images needs a folder of pictures, but {source.text!r} is not a folder"
        raise InputFileError(msg, hint="name the folder, or leave images out")
    if is_object_path(source.text) and not path.exists():
        if source.columns:
            raise _no_table(source)
        return _from_callable(source)
    try:
        return _from_folder(path, source) if path.is_dir() else _from_file(path, source)
    except ParitygateError:
        raise
    except OSError as err:
        raise unreadable(path, err) from err


def _from_file(path: Path, source: SampleSource) -> Callable[[], Iterator[Batch]]:
    if not path.is_file():
        msg = f"samples {path} are not a file" if path.exists() else f"samples {path} do not exist{beside_meant(path)}"
        raise InputFileError(msg, hint=f"give {_KINDS}")
    path.open("rb").close()
    readers: Mapping[str, Callable[[Path, SampleSource], Iterator[Batch]]] = {
        ".npz": _read_npz,
        ".npy": lambda path, source: _read_npy([path], source),
        ".safetensors": _read_safetensors,
        ".csv": read_csv,
        ".jsonl": read_jsonl,
        ".parquet": read_parquet,
    }
    if path.suffix not in readers:
        msg = f"samples {path} are of an unknown kind {path.suffix!r} (allowed: {', '.join(readers)})"
        raise InputFileError(msg, hint=f"give {_KINDS}")
    if source.columns and path.suffix not in TABLES:
        raise _no_table(source)
    if path.suffix == ".parquet":
        require_backend("pyarrow")
    return lambda: readers[path.suffix](path, source)


def _no_table(source: SampleSource) -> InputFileError:
    msg = f"{source.columns_option} is allowed only for a table (got {source.text!r}, expected {', '.join(TABLES)})"
    return InputFileError(msg, hint=f"leave {source.columns_option} out, or name a table")


def _from_folder(path: Path, source: SampleSource) -> Callable[[], Iterator[Batch]]:
    if source.columns and not (path / DATASET_FILE).is_file():
        raise _no_table(source)
    rules = source.images
    if rules is not None:
        require_backend("pillow")
        return lambda: read_pictures(path, rules, source.batch_size)
    if (path / SPLITS_FILE).is_file():
        splits = sorted(file.parent.name for file in path.glob(f"*/{DATASET_FILE}"))
        msg = f"samples {path} are a data set of several splits: {', '.join(splits) or 'none is there'}"
        raise InputFileError(msg, hint=f"name one of them: {path / splits[0]}" if splits else "save it again")
    if (path / DATASET_FILE).is_file():
        require_backend("pyarrow")
        return lambda: read_dataset(path, source)
    # Opening a pipe would wait.
    arrays = sorted(file for file in path.glob("*.npy") if file.is_file())
    if arrays:
        return lambda: _read_npy(arrays, source)
    if holds_pictures(path):
        msg = f"samples {path} are a folder of pictures, but nothing sets how to prepare them"
        command = f"convert-and-validate init MODEL --samples {shlex.quote(source.text)}"
        hint = f"to compare two files, give --samples inputs.npz or --samples module:callable; for a run: {command}"
        raise InputFileError(msg, hint=hint)
    allowed = "a data set as Dataset.save_to_disk writes it, .npy files, or pictures with samples.images in a spec"
    kind = "of no known kind" if any(path.iterdir()) else "without a file"
    raise InputFileError(f"samples {path} are a folder {kind} (allowed: {allowed})", hint=f"give {_KINDS}")


def _from_callable(source: SampleSource) -> Callable[[], Iterator[Batch]]:
    try:
        function = load_object(source.text, source.folder)
    except ParitygateError:
        raise
    except Exception as err:
        raise _raised(source.text, err) from err
    if not callable(function):
        msg = f"samples {source.text!r} are not a function"
        raise UsageError(msg, hint="give a function (path: str | None) -> Iterator[Batch]")
    takes_path = bool(inspect.signature(function).parameters)
    if source.path is not None and not takes_path:
        msg = f"samples {source.text!r} accept no path (got {source.path!r})"
        raise UsageError(msg, hint="leave --samples out, or let the function take a path")

    def read() -> Iterator[Batch]:
        try:
            yield from _checked(source.text, function(source.path) if takes_path else function())
        except ParitygateError:
            raise
        except Exception as err:
            raise _raised(source.text, err) from err

    return read


def _raised(text: str, err: BaseException) -> MeasurementError:
    line = (str(err).strip() or "no message").splitlines()[0]
    place = place_in_users_code(err)
    msg = f"samples {text!r} raised {type(err).__name__}: {line}{f' ({place})' if place else ''}"
    return MeasurementError(msg, hint="correct your function or its module")


def _checked(text: str, batches: object) -> Iterator[Batch]:
    if not isinstance(batches, Iterable):
        msg = f"samples {text!r} returned {a_or_an(type(batches).__name__)}, not an iterator of Batch"
        raise UsageError(msg, hint="yield paritygate.batch.Batch objects")
    seen = SeenIds()
    for batch in batches:
        checked = check_batch(text, batch)
        seen.add(checked.ids, f"samples {text!r}")
        yield checked


def check_batch(text: str, batch: object) -> Batch:
    """Return a checked batch from user code, with Python strings as NumPy's; raise UsageError for anything else.

    Messages name `text` as its source.
    """
    if not isinstance(batch, Batch):
        msg = f"samples {text!r} yielded {a_or_an(type(batch).__name__)}, not a Batch"
        raise UsageError(msg, hint="yield paritygate.batch.Batch(inputs=..., ids=...)")
    # A user's function may yield any type, whatever the class declares.
    ids: Sequence[object] = batch.ids
    for row_id in ids:
        if not isinstance(row_id, str):
            kind = a_or_an(type(row_id).__name__)
            msg = f"samples {text!r} yielded {row_id!r} as the id of a row, {kind} and not a str"
            raise UsageError(msg, hint="convert it with str")
    inputs = {name: _checked_input(text, name, array) for name, array in batch.inputs.items()}
    for name, values in batch.strata.items():
        if len(values) != batch.rows:
            both = f"{counted(len(values), 'value')} for {counted(batch.rows, 'row')}"
            raise UsageError(f"samples {text!r}: stratum {name!r} has {both}", hint="give one value a row")
    if batch.gold is not None and len(batch.gold) != batch.rows:
        msg = f"samples {text!r}: {counted(len(batch.gold), 'gold value')} for {counted(batch.rows, 'row')}"
        raise UsageError(msg, hint="give one value a row")
    return replace(batch, inputs=inputs)


def _in_text(batches: Iterable[Batch], source: SampleSource) -> Iterator[Batch]:
    """Yield the batches with byte strings, NumPy's kind "S", decoded, so that text has one representation."""
    for batch in batches:
        decoded = {
            name: _decoded(array, name, source) for name, array in batch.inputs.items() if array.dtype.kind == "S"
        }
        yield replace(batch, inputs={**batch.inputs, **decoded}) if decoded else batch


def _decoded(array: NDArray[np.generic], name: str, source: SampleSource) -> NDArray[np.str_]:
    try:
        return np.char.decode(array.astype(np.bytes_), "utf-8")
    except UnicodeDecodeError as err:
        msg = f"samples {source.text!r}: {name!r} holds byte strings, and {err.object[:40]!r} is not text in UTF-8"
        raise InputFileError(msg, hint="save text as str, and other bytes as uint8") from err


def _checked_input(text: str, name: object, array: object) -> NDArray[np.generic]:
    if not isinstance(name, str):
        msg = f"samples {text!r} yielded an input called {name!r}, {a_or_an(type(name).__name__)} and not a str"
        raise UsageError(msg, hint="use the name of the model's input")
    if not isinstance(array, np.ndarray):
        msg = f"samples {text!r} yielded {name!r} as {a_or_an(type(array).__name__)}, not a NumPy array"
        raise UsageError(msg, hint="convert it with numpy.asarray")
    if array.dtype.kind == "O":
        return texts(array, f"samples {text!r} yielded {name!r} as an array of Python objects")
    if array.dtype.hasobject:
        msg = f"samples {text!r} yielded {name!r} as an array of Python objects"
        raise UsageError(msg, hint="set the dtype of numbers; for strings: numpy.asarray(values, dtype=str)")
    return array


def _read_npz(path: Path, source: SampleSource) -> Iterator[Batch]:
    names = npz_names(path)
    with_case = [name for name in names if "/" in name]
    if with_case and len(with_case) < len(names):
        plain = next(name for name in names if "/" not in name)
        msg = f"samples {path} mix keys of the form CASE/INPUT with plain keys such as {plain!r}"
        raise InputFileError(msg, hint="name all keys CASE/INPUT, or none")
    if with_case:
        yield from _read_cases(path, with_case)
        return
    streams = {name: NpyStream(path, name) for name in names}
    yield from _cut(
        {name: stream.rows for name, stream in streams.items()}, source, lambda name, n: streams[name].take(n)
    )


def _read_cases(path: Path, names: Sequence[str]) -> Iterator[Batch]:
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.rpartition("/")[0], []).append(name)
    # A graph may have as many nodes as edges by chance, which are not rows then either: all cases are alike.
    are_whole = any(len(_sizes(path, keys)) > 1 for keys in cases.values())
    for case, keys in cases.items():
        inputs = {key.rpartition("/")[2]: NpyStream(path, key).take(None) for key in keys}
        rows = min(common_rows(inputs), 1) if are_whole else common_rows(inputs)
        yield Batch(inputs=inputs, ids=[f"{case}/{row}" for row in range(rows)], case=case)


def _sizes(path: Path, keys: Sequence[str]) -> set[int]:
    sizes = [NpyStream(path, key).rows for key in keys]
    return {size for size in sizes if size is not None}


def common_rows(inputs: Arrays) -> int:
    """Return the size of axis 0 in all inputs; inputs of several sizes are one row together."""
    sizes = {array.shape[0] for array in inputs.values() if array.ndim}
    if any(size == 0 for size in sizes):
        return 0
    return sizes.pop() if len(sizes) == 1 else 1


def _cut(
    sizes: Mapping[str, int | None],
    source: SampleSource,
    take: Callable[[str, int], NDArray[np.generic]],
    first_row: int = 0,
) -> Iterator[Batch]:
    path = source.folder / source.text
    scalars = sorted(name for name, rows in sizes.items() if rows is None)
    if scalars:
        msg = f"samples {path}: {scalars[0]!r} is a scalar, which has no rows"
        raise InputFileError(msg, hint="give every input one row a sample, or use keys of the form CASE/INPUT")
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name}: {rows}" for name, rows in sizes.items())
        msg = f"samples {path}: the inputs have different numbers of rows ({listed})"
        raise InputFileError(msg, hint="give every input one row a sample, or use keys of the form CASE/INPUT")
    total = next(iter(sizes.values()), 0) or 0
    for start in range(first_row, total, source.batch_size):
        rows = min(source.batch_size, total - start)
        inputs = {name: take(name, rows) for name in sizes}
        yield Batch(inputs=inputs, ids=[str(row) for row in range(start, start + rows)])


def _read_npy(paths: Sequence[Path], source: SampleSource, first_row: int = 0) -> Iterator[Batch]:
    """Yield the rows of one array a file, mapped into memory so that pages can be dropped after reading."""
    arrays = {path.stem: _mapped(path) for path in paths}
    position = dict.fromkeys(arrays, first_row)

    def take(name: str, rows: int) -> NDArray[np.generic]:
        start = position[name]
        position[name] = start + rows
        part = arrays[name][start : start + rows]
        return np.array(part, dtype=part.dtype.newbyteorder("="), order="C")

    yield from _cut(
        {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}, source, take, first_row
    )


def _mapped(path: Path) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as err:
        raise unreadable(path, err) from err
    return array


def _read_safetensors(path: Path, source: SampleSource, first_row: int = 0) -> Iterator[Batch]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
            for name, part in slices.items():
                if part.get_dtype() not in _SAFETENSORS_DTYPES:
                    msg = f"samples {path} hold {name!r} as {part.get_dtype()}, which is not supported"
                    raise InputFileError(msg, hint=f"save it as one of {', '.join(sorted(_SAFETENSORS_DTYPES))}")
            sizes = {name: (part.get_shape()[0] if part.get_shape() else None) for name, part in slices.items()}
            position: dict[str, int] = dict.fromkeys(slices, first_row)

            def take(name: str, rows: int) -> NDArray[np.generic]:
                start = position[name]
                position[name] = start + rows
                part: NDArray[np.generic] = slices[name][start : start + rows]
                return part

            yield from _cut(sizes, source, take, first_row)
    except (SafetensorError, ValueError) as err:
        raise unreadable(path, err) from err


# Readers of files that begin at a row.
_AT_ROW: Mapping[str, Callable[[Path, SampleSource, int], Iterator[Batch]]] = {
    ".npy": lambda path, source, first_row: _read_npy([path], source, first_row),
    ".safetensors": _read_safetensors,
    ".parquet": read_parquet,
}


class BatchDigest:
    """A digest of every batch added: names, dtypes, shapes, bytes and row ids, in their order."""

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self.rows = 0

    def add(self, batch: Batch) -> None:
        """Add one batch; raise MeasurementError where inputs and ids disagree in the number of rows."""
        sizes = {array.shape[0] for array in batch.inputs.values() if array.ndim}
        if batch.rows and len(sizes) == 1 and batch.rows not in {1, *sizes}:
            msg = f"a batch has {batch.rows} ids and inputs of {sizes.pop()} rows, from id {batch.ids[0]!r} on"
            raise MeasurementError(msg, hint="give one id a row")
        self.rows += batch.rows
        self._state.update(json.dumps(list(batch.ids)).encode())
        for name in sorted(batch.inputs):
            array = np.ascontiguousarray(batch.inputs[name])
            self._state.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
            self._state.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())

    @property
    def value(self) -> str:
        """Return `sha256:` and the hex digest of all batches added."""
        return f"sha256:{self._state.copy().hexdigest()}"


def digest_of_batch(batch: Batch) -> str:
    """Return the digest of one batch alone; raise as `BatchDigest.add`."""
    digest = BatchDigest()
    digest.add(batch)
    return digest.value
