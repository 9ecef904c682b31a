"""Dividing samples into rows that are compared and rows that only calibrate, by their content alone.

The side of a row follows from a digest of its inputs, so every reader of the same samples divides them alike, and
equal rows fall on the same side: what a model was calibrated on is not what it is judged by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import UsageError
from paritygate.validate.row_digest import digests_of_rows, has_rows

if TYPE_CHECKING:
    from paritygate.batch import Batch

__all__ = ["RowsLeftOut", "SampleSplit", "SplitSide", "batches_of_side", "rows_kept"]

_DIGEST_RANGE = 2**64


class SplitSide(str, Enum):
    """What rows are for."""

    CALIBRATION = "calibration"
    VALIDATION = "validation"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSplit:
    """One side of divided samples.

    Attributes:
        side: Which side.
        share: The share of distinct rows that is for calibration, 0 to 1, both excluded.
        seed: Of the division.
    """

    side: SplitSide
    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            msg = f"a share of {self.share} of the samples cannot be held out (allowed: above 0 and below 1)"
            raise UsageError(msg, hint="write calibration: {share: 0.2}")

    def has(self, digest: bytes) -> bool:
        """Return whether the row with this digest is on this side."""
        is_calibration = int.from_bytes(digest[:8], "big") < self.share * _DIGEST_RANGE
        return is_calibration == (self.side is SplitSide.CALIBRATION)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {**asdict(self), "side": str(self.side)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SampleSplit:
        """Return the split that `to_json` wrote."""
        return cls(**{**data, "side": SplitSide(data["side"])})


@dataclass(kw_only=True, slots=True)
class RowsLeftOut:
    """The rows of the other side, counted while samples are read; each new reading counts anew.

    Attributes:
        strata: The strata whose values are counted.
        rows: How many there are.
    """

    strata: tuple[str, ...] = ()
    rows: int = 0
    # By stratum: how many rows of each value were left out, and the values of those that were not.
    _left_out: dict[str, Counter[str]] = field(default_factory=dict)
    _kept: dict[str, set[str]] = field(default_factory=dict)

    def start(self) -> None:
        """Forget what was counted."""
        self.rows = 0
        self._left_out = {name: Counter() for name in self.strata}
        self._kept = {name: set() for name in self.strata}

    def add(self, batch: Batch, is_kept: Sequence[bool]) -> None:
        """Count the rows of the batch for which `is_kept` does not hold."""
        self.rows += len(is_kept) - sum(is_kept)
        for name, counts in self._left_out.items():
            values = list(map(str, batch.strata.get(name, ())))
            counts.update(value for value, kept in zip(values, is_kept, strict=False) if not kept)
            self._kept[name].update(value for value, kept in zip(values, is_kept, strict=False) if kept)

    def values_left_out(self) -> dict[str, dict[str, int]]:
        """Return for each stratum the values all of whose rows were left out, and how many these are."""
        return {
            name: {value: rows for value, rows in sorted(counts.items()) if value not in self._kept[name]}
            for name, counts in self._left_out.items()
        }


def batches_of_side(
    batches: Iterable[Batch],
    split: SampleSplit,
    *,
    fill: Mapping[str, Collection[float]] | None = None,
    left_out: RowsLeftOut | None = None,
) -> Iterator[Batch]:
    """Yield the rows that are on the split's side, in their batches; a batch without any is left out.

    Args:
        batches: The samples.
        split: The side.
        fill: As of `digests_of_rows`.
        left_out: Counts the rows of the other side.
    """
    if left_out is not None:
        left_out.start()
    for batch in batches:
        is_kept = [split.has(digest) for digest in digests_of_rows(batch, seed=split.seed, fill=fill)]
        if left_out is not None:
            left_out.add(batch, is_kept)
        kept = rows_kept(batch, is_kept)
        if kept.rows or not batch.rows:
            yield kept


def rows_kept(batch: Batch, is_kept: Sequence[bool]) -> Batch:
    """Return the batch with those of its rows for which `is_kept` holds.

    Args:
        batch: A batch; one that cannot be taken apart is kept or dropped as a whole.
        is_kept: One value a row.
    """
    if all(is_kept):
        return batch
    where = np.asarray(is_kept, dtype=bool)
    can_be_divided = has_rows(batch)
    return replace(
        batch,
        inputs={name: array[where] if can_be_divided and array.ndim else array for name, array in batch.inputs.items()},
        ids=[row_id for row_id, kept in zip(batch.ids, is_kept, strict=True) if kept],
        gold=None if batch.gold is None else batch.gold[where],
        strata={
            name: [value for value, kept in zip(values, is_kept, strict=True) if kept]
            for name, values in batch.strata.items()
        },
    )
