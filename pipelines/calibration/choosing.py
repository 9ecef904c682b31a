"""Choosing the rows to calibrate on: by their digests, and none that is compared."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.samples.row_digest import DIGEST_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RowChoice"]


class RowChoice:
    """The smallest different digests of the rows shown, but for those of rows that are compared.

    Attributes:
        rows: How many rows were shown.
        dropped: How many of these are rows that are compared.
    """

    def __init__(self, count: int, *, besides: Iterable[bytes]) -> None:
        """Choose none yet.

        Args:
            count: How many to choose at most.
            besides: The digests of the rows that are compared.
        """
        self.rows = 0
        self.dropped = 0
        self._count = count
        # Cut to 8 bytes a row, which is all that they take in memory: for the few rows of a calibration, enough.
        self._besides: NDArray[np.uint64] = np.unique(np.fromiter(map(_short, besides), dtype=np.uint64))
        self._largest_first: list[int] = []
        self._kept: set[int] = set()

    @property
    def digests(self) -> frozenset[bytes]:
        """Those chosen."""
        return frozenset(value.to_bytes(DIGEST_BYTES, "big") for value in self._kept)

    def add(self, digests: Collection[bytes]) -> None:
        """Show the digests of some rows."""
        self.rows += len(digests)
        for digest, is_compared in zip(digests, self._are_compared(digests), strict=True):
            if is_compared:
                self.dropped += 1
            else:
                self._offer(int.from_bytes(digest, "big"))

    def _are_compared(self, digests: Collection[bytes]) -> list[bool]:
        if not self._besides.size:
            return [False] * len(digests)
        values = np.fromiter(map(_short, digests), dtype=np.uint64, count=len(digests))
        at = np.minimum(np.searchsorted(self._besides, values), self._besides.size - 1)
        found: list[bool] = (self._besides[at] == values).tolist()
        return found

    def _offer(self, value: int) -> None:
        if value in self._kept:
            return
        if len(self._kept) < self._count:
            heapq.heappush(self._largest_first, -value)
        elif value < -self._largest_first[0]:
            self._kept.remove(-heapq.heapreplace(self._largest_first, -value))
        else:
            return
        self._kept.add(value)


def _short(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")
