"""Cache the samples of a comparison next to the outputs, to judge these again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data, with_fields_of
from paritygate.errors import MeasurementError
from paritygate.validate.reference.recording import ChunkWriter, read_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Every comparison of a run has its own.
_MOST_BYTES = 32 << 20
_INPUT = "input/"
_GOLD = "gold"

Dependencies = Callable[[], Iterator[Batch]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _KeptBatch:
    """A batch without its arrays."""

    ids: Sequence[str]
    strata: Mapping[str, Sequence[str]]
    case: str | None
    lengths: Mapping[str, Sequence[int]]


class SamplesKeeper:
    """Keeps the samples when they are first read to their end, or none where they are too large."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, Any] | None = None
        self._is_begun = False

    def keeping(self, read: Dependencies) -> Dependencies:
        """Return a function that reads the samples and keeps them."""

        def reading() -> Iterator[Batch]:
            return read() if self._is_begun else self._kept(read())

        return reading

    def described(self) -> dict[str, Any] | None:
        """Return JSON data of the kept samples; None unless they are complete."""
        return self._found

    def _kept(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        self._is_begun = True
        self._folder.mkdir()
        writer, others, size = ChunkWriter(self._folder), [], 0
        is_whole, is_at_end = True, False
        try:
            for batch in batches:
                arrays = {f"{_INPUT}{name}": array.copy() for name, array in batch.inputs.items()}
                if batch.gold is not None:
                    arrays[_GOLD] = batch.gold.copy()
                size += sum(array.nbytes for array in arrays.values())
                is_whole = is_whole and size <= _MOST_BYTES and _is_added(writer, batch, arrays)
                others.append(with_fields_of(_KeptBatch, batch))
                yield batch
            is_at_end = True
        finally:
            if not is_at_end:
                # Only the first ones were read.
                shutil.rmtree(self._folder)
                self._is_begun = False
        if is_whole:
            writer.flush()
            self._found = {"chunks": writer.chunks, "batches": to_data(others)}


def _is_added(writer: ChunkWriter, batch: Batch, arrays: Mapping[str, NDArray[np.generic]]) -> bool:
    try:
        writer.add(arrays, rows=batch.rows, case=batch.case)
    except MeasurementError:
        # The dtype has no file format, or changes between batches.
        return False
    return True


def read_kept_samples(folder: Path, kept: Mapping[str, Any]) -> Dependencies:
    """Return a function that reads the kept batches."""
    others = [from_data(_KeptBatch, item) for item in kept["batches"]]

    def read() -> Iterator[Batch]:
        for other, stored in zip(others, read_chunks(folder, kept["chunks"]), strict=True):
            inputs = {name.removeprefix(_INPUT): array for name, array in stored.outputs.items() if name != _GOLD}
            yield with_fields_of(Batch, other, inputs=inputs, gold=stored.outputs.get(_GOLD))

    return read
