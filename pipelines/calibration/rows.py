"""Choose the rows to calibrate on, none of them compared, and store their digests next to the artifact.

Samples may change after an artifact is made, and a function may yield other rows at each call. So a comparison looks
rows up by digest.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import ArtifactIntegrityError
from paritygate.files import corrupt_errors, read_json, write_json_atomically
from paritygate.precision import Precision
from paritygate.validate.samples.row_digest import DIGEST_BYTES, digests_of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.artifact import Artifact
    from paritygate.batch import Batch

CALIBRATED_ROWS_FILE = "calibration-rows.json"
_HINT = "make it again, from the samples that are compared: convert-and-validate export"


class RowChoice:
    """The smallest distinct digests of the `rows` seen, without the `dropped` ones, which are compared."""

    def __init__(self, count: int, *, besides: Iterable[bytes]) -> None:
        """Start an empty choice of at most `count` rows; `besides` are the digests of compared rows."""
        self.rows = 0
        self.dropped = 0
        self._count = count
        # Digests cut to 8 bytes, which is enough for the few rows of a calibration, to save memory.
        self._besides: NDArray[np.uint64] = np.unique(np.fromiter(map(_short, besides), dtype=np.uint64))
        self._largest_first: list[int] = []
        self._kept: set[int] = set()

    @property
    def digests(self) -> frozenset[bytes]:
        """The chosen digests."""
        return frozenset(value.to_bytes(DIGEST_BYTES, "big") for value in self._kept)

    def add(self, digests: Collection[bytes]) -> None:
        """Add the digests of some rows."""
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
        are_compared: list[bool] = (self._besides[at] == values).tolist()
        return are_compared

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


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibratedRows:
    """The digests of calibration rows, equal if `inputs` agree; `fill` are padding values for `digests_of_rows`."""

    inputs: tuple[str, ...]
    fill: Mapping[str, tuple[float, ...]]
    digests: frozenset[bytes]

    def digests_of(self, batch: Batch) -> list[bytes]:
        """Return the digests of the batch's rows, to be looked up in `digests`."""
        inputs = {name: array for name, array in batch.inputs.items() if name in self.inputs}
        return digests_of_rows(replace(batch, inputs=inputs), fill=self.fill)

    def are_in(self, batch: Batch) -> list[bool]:
        """Return for each row of the batch whether it is one of these."""
        return [digest in self.digests for digest in self.digests_of(batch)]

    def save(self, folder: Path) -> None:
        """Write them next to the artifact in `folder`."""
        data = {
            "inputs": list(self.inputs),
            "fill": {name: list(values) for name, values in self.fill.items()},
            "rows": sorted(digest.hex() for digest in self.digests),
        }
        write_json_atomically(folder / CALIBRATED_ROWS_FILE, data)

    @classmethod
    def load(cls, path: Path) -> CalibratedRows:
        """Return what `save` wrote; raise ArtifactIntegrityError if it is missing or damaged."""
        if not path.is_file():
            msg = f"the calibration rows of the artifact are unknown, because {path} is missing"
            raise ArtifactIntegrityError(msg, hint=_HINT)
        what = f"the calibration rows of the artifact are unknown, because {path}"
        with corrupt_errors(what, AttributeError, kind=ArtifactIntegrityError, hint=_HINT):
            data = read_json(path)
            return cls(
                inputs=tuple(data["inputs"]),
                fill={name: tuple(values) for name, values in data["fill"].items()},
                digests=frozenset(map(bytes.fromhex, data["rows"])),
            )


def calibrated_rows_file(artifact: Artifact) -> Path | None:
    """Return the file of an artifact's calibration rows; None only if the artifact records that it needed none."""
    if artifact.variant.precision not in {Precision.INT8, Precision.MIXED}:
        return None
    # The base of an artifact with fixed dims was calibrated.
    for facts in (artifact.made_by.get("facts", {}), artifact.made_by.get("base", {}).get("facts", {})):
        if facts.get("calibration", {}).get("rows") == 0:
            return None
    return artifact.folder / CALIBRATED_ROWS_FILE


def keep_calibrated_rows(base: Path, folder: Path) -> None:
    """Copy the calibration rows of a base artifact, if there are any, next to the artifact in `folder`."""
    if (base / CALIBRATED_ROWS_FILE).is_file():
        CalibratedRows.load(base / CALIBRATED_ROWS_FILE).save(folder)
