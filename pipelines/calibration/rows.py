"""The rows that an artifact was calibrated on, by their digests: it is not judged by them.

The digests lie beside the artifact. Samples may have changed since it was made, and a function may yield other rows at
each call: so rows are looked up while they are compared, by who compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.errors import ArtifactIntegrityError
from paritygate.files import read_json, write_json_atomically
from paritygate.precision import Precision
from paritygate.validate.samples.row_digest import digests_of_rows

if TYPE_CHECKING:
    from paritygate.artifact import Artifact
    from paritygate.batch import Batch

__all__ = [
    "CALIBRATED_ROWS_FILE",
    "CalibratedRows",
    "calibrated_rows_file",
    "keep_calibrated_rows",
]

CALIBRATED_ROWS_FILE = "calibration-rows.json"
_HINT = "make it again, from the samples that are compared: convert-and-validate export"


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibratedRows:
    """The rows that an artifact was calibrated on.

    Attributes:
        inputs: What the model takes: rows are equal if it cannot tell them apart.
        fill: What rows are filled up with, as `digests_of_rows` takes it.
        digests: One a row.
    """

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
        """Write them beside the artifact in `folder`."""
        data = {
            "inputs": list(self.inputs),
            "fill": {name: list(values) for name, values in self.fill.items()},
            "rows": sorted(digest.hex() for digest in self.digests),
        }
        write_json_atomically(folder / CALIBRATED_ROWS_FILE, data)

    @classmethod
    def load(cls, path: Path) -> CalibratedRows:
        """Return what `save` wrote.

        Raises:
            ArtifactIntegrityError: It is missing or damaged.
        """
        if not path.is_file():
            msg = f"which rows the artifact was calibrated on is not known: {path} is missing"
            raise ArtifactIntegrityError(msg, hint=_HINT)
        try:
            data = read_json(path)
            return cls(
                inputs=tuple(data["inputs"]),
                fill={name: tuple(values) for name, values in data["fill"].items()},
                digests=frozenset(map(bytes.fromhex, data["rows"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as err:
            msg = f"which rows the artifact was calibrated on is not known: {path} is damaged: {err}"
            raise ArtifactIntegrityError(msg, hint=_HINT) from err


def calibrated_rows_file(artifact: Artifact) -> Path | None:
    """Return where the rows are written down that the artifact was calibrated on; None if it needed none.

    An artifact that does not say so explicitly is taken to have needed some.
    """
    if artifact.variant.precision is not Precision.INT8:
        return None
    # With dims fixed, it is the base that was calibrated.
    for facts in (artifact.made_by.get("facts", {}), artifact.made_by.get("base", {}).get("facts", {})):
        if facts.get("calibration", {}).get("rows") == 0:
            return None
    return artifact.folder / CALIBRATED_ROWS_FILE


def keep_calibrated_rows(base: Path, folder: Path) -> None:
    """Write beside an artifact in `folder` what lies beside the one in `base`, which it was made from; if anything."""
    if (base / CALIBRATED_ROWS_FILE).is_file():
        CalibratedRows.load(base / CALIBRATED_ROWS_FILE).save(folder)
