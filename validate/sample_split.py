"""Dividing samples into rows that are compared and rows that only calibrate, by their content alone.

The side of a row follows from a digest of its inputs, so every reader of the same samples divides them alike, and
equal rows fall on the same side: what a model was calibrated on is not what it is judged by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import UsageError
from paritygate.validate.row_digest import digests_of_rows, has_rows

if TYPE_CHECKING:
    from paritygate.batch import Batch

__all__ = ["SampleSplit", "SplitSide", "batches_of_side", "rows_kept"]

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


def batches_of_side(batches: Iterable[Batch], split: SampleSplit) -> Iterator[Batch]:
    """Yield the rows that are on the split's side, in their batches; a batch without any is left out."""
    for batch in batches:
        kept = rows_kept(batch, [split.has(digest) for digest in digests_of_rows(batch, seed=split.seed)])
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
