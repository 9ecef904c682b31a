"""Samples that Python code gives as arrays, written to files that are read like any others.

A mapping of arrays becomes an npz file, whose rows are cut into batches. An iterable of batches becomes a folder with
one npz file a batch, and an index of ids, gold and strata.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.errors import UsageError
from paritygate.files import storage_errors
from paritygate.text import a_or_an
from paritygate.validate.samples.samples import SampleSource, check_batch, common_rows

# The name of the samples in messages; the files are internal.
_WHAT = "given in Python"
_INDEX = "batches.jsonl"
_READER = "paritygate.validate.samples.in_memory:read_batches"
_GOLD = "gold"


def store_samples(samples: object, folder: Path, source: SampleSource) -> SampleSource:
    """Write samples of Python code into an empty folder, and return a source that reads them.

    They are a mapping of arrays with one row a sample, or an iterable of batches, each a `Batch` or such a mapping.

    Raises:
        UsageError: They are neither, or hold anything but arrays of numbers or text.
        StorageError: The disk is full.
    """
    if isinstance(samples, Mapping):
        path = folder / "samples.npz"
        _write(path, _arrays(samples))
        return replace(source, text=str(path))
    if isinstance(samples, (str, bytes)) or not isinstance(samples, Iterable):
        msg = f"samples are given as {a_or_an(type(samples).__name__)}, which is neither arrays nor batches"
        raise UsageError(msg, hint="give a path, a mapping of arrays, or an iterable of batches")
    _write_batches(samples, folder)
    return replace(source, text=_READER, path=str(folder))


def _write_batches(samples: Iterable[object], folder: Path) -> None:
    rows = 0
    lines = []
    for number, item in enumerate(samples):
        batch = item
        if isinstance(item, Mapping):
            arrays = _arrays(item)
            count = common_rows(arrays)
            batch = Batch(inputs=arrays, ids=[str(row) for row in range(rows, rows + count)])
        checked = check_batch(_WHAT, batch)
        rows += checked.rows
        _write(folder / f"{number}.npz", checked.inputs)
        if checked.gold is not None:
            _write(folder / f"{number}.{_GOLD}.npz", {_GOLD: np.asarray(checked.gold)})
        strata = {name: list(map(str, values)) for name, values in checked.strata.items()}
        lines.append(json.dumps({"ids": list(checked.ids), "strata": strata, "case": checked.case}) + "\n")
    with storage_errors(folder):
        (folder / _INDEX).write_text("".join(lines), encoding="utf-8")


def read_batches(path: str) -> Iterator[Batch]:
    """Yield the batches that `store_samples` wrote into a folder."""
    folder = Path(path)
    with (folder / _INDEX).open(encoding="utf-8") as index:
        for number, line in enumerate(index):
            fields: dict[str, Any] = json.loads(line)
            gold = folder / f"{number}.{_GOLD}.npz"
            yield Batch(
                inputs=_read(folder / f"{number}.npz"), gold=_read(gold)[_GOLD] if gold.is_file() else None, **fields
            )


def _arrays(given: Mapping[Any, Any]) -> dict[str, NDArray[np.generic]]:
    # Tensors of any framework are arrays as well.
    arrays = {name: np.asarray(value) if hasattr(value, "__array__") else value for name, value in given.items()}
    # Checked as a batch is; the number of rows is checked by the reader.
    return dict(check_batch(_WHAT, Batch(inputs=arrays, ids=())).inputs)


def _write(path: Path, arrays: Arrays) -> None:
    # numpy.savez would take an input called `file` for its own argument.
    with storage_errors(path), zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            if array.dtype.kind == "V":
                msg = f"samples {_WHAT}: {name!r} is an array of {array.dtype}, which NumPy's files cannot hold"
                raise UsageError(msg, hint="write them with safetensors, and give the path of that file")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array, order="C"), allow_pickle=False)


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)
