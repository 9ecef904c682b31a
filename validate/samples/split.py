"""Selects the rows of the samples that only calibrate, by their content alone.

A digest of the inputs decides. So every reader of the same samples selects the same rows, and equal rows go together: a
model is not judged by rows that calibrated it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.validate.samples.row_digest import digests_of_rows, has_rows

if TYPE_CHECKING:
    from paritygate.batch import Batch

_DIGEST_RANGE = 2**64


class SampleSplit(Struct, frozen=True, kw_only=True):
    """The rows for calibration: a `share` of the distinct rows, between 0 and 1, chosen by `seed`."""

    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            msg = f"a share of {self.share} of the samples cannot be held out (allowed: above 0 and below 1)"
            raise UsageError(msg, hint="write calibration: {share: 0.2}")

    def has(self, digest: bytes) -> bool:
        """Return whether the row with this digest is for calibration."""
        return int.from_bytes(digest[:8], "big") < self.share * _DIGEST_RANGE


class RowsLeftOut(Struct, kw_only=True):
    """The rows that a candidate is not judged by, counted anew in each reading.

    `strata` are those whose values are counted. `are_left_out` returns a value for each row of a batch; None if none
    is.
    """

    strata: tuple[str, ...] = ()
    are_left_out: Callable[[Batch], list[bool]] | None = None
    rows: int = 0
    # By stratum: the number of rows left out for each value, and the values of the other rows.
    _left_out: dict[str, Counter[str]] = field(default_factory=dict)
    _kept: dict[str, set[str]] = field(default_factory=dict)

    def start(self) -> None:
        """Reset the counts."""
        self.rows = 0
        self._left_out = {name: Counter() for name in self.strata}
        self._kept = {name: set() for name in self.strata}

    def rows_to_keep(self, batch: Batch) -> list[bool]:
        """Return for each row of the batch whether it is judged, and count the others."""
        if self.are_left_out is None:
            return [True] * batch.rows
        is_kept = [not is_left_out for is_left_out in self.are_left_out(batch)]
        self._count(batch, is_kept)
        return is_kept

    def _count(self, batch: Batch, is_kept: Sequence[bool]) -> None:
        self.rows += len(is_kept) - sum(is_kept)
        for name, counts in self._left_out.items():
            values = list(map(str, batch.strata.get(name, ())))
            counts.update(value for value, is_judged in zip(values, is_kept, strict=False) if not is_judged)
            self._kept[name].update(value for value, is_judged in zip(values, is_kept, strict=False) if is_judged)

    def values_left_out(self) -> dict[str, dict[str, int]]:
        """Return for each stratum the values whose rows were all left out, with their number."""
        return {
            name: {value: rows for value, rows in sorted(counts.items()) if value not in self._kept[name]}
            for name, counts in self._left_out.items()
        }


def rows_for_calibration(
    batches: Iterable[Batch], split: SampleSplit, *, fill: Mapping[str, Collection[float]] | None = None
) -> Iterator[Batch]:
    """Yield the rows for calibration, in their batches; a batch without any is left out."""
    for batch in batches:
        is_kept = [split.has(digest) for digest in digests_of_rows(batch, seed=split.seed, fill=fill)]
        chosen = rows_kept(batch, is_kept)
        if chosen.rows or not batch.rows:
            yield chosen


def rows_kept(batch: Batch, is_kept: Sequence[bool]) -> Batch:
    """Return the batch with the rows for which `is_kept` is true; a batch without rows stays or goes as a whole."""
    if all(is_kept):
        return batch
    import numpy as np

    where = np.asarray(is_kept, dtype=bool)
    can_be_divided = has_rows(batch)
    return replace(
        batch,
        inputs={name: array[where] if can_be_divided and array.ndim else array for name, array in batch.inputs.items()},
        ids=[row_id for row_id, is_chosen in zip(batch.ids, is_kept, strict=True) if is_chosen],
        gold=None if batch.gold is None else batch.gold[where],
        strata={
            name: [value for value, is_chosen in zip(values, is_kept, strict=True) if is_chosen]
            for name, values in batch.strata.items()
        },
        lengths={
            name: [length for length, is_chosen in zip(lengths, is_kept, strict=True) if is_chosen]
            for name, lengths in batch.lengths.items()
        },
    )
