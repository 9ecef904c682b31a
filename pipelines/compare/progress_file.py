"""Note the progress of a comparison, for its result if it breaks off."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.errors import ParitygateError
from paritygate.files import read_json, write_json_atomically
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.compare.result import SideResult
from paritygate.validate.reference.recorded_outputs import RECORD_FILE

_FILE = "partial.json"


class PartialResult(Struct, frozen=True, kw_only=True):
    """The state of a comparison that has not ended; a side is None before it was opened."""

    reference: SideResult | None = None
    candidate: SideResult | None = None
    rows: int = 0  # compared so far


class PartialResultFile:
    """The file of the state in the folder of a comparison.

    The job writes it, and removes it at its end. After a failure, the parent reads and removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._known = PartialResult()

    def add_reference(self, side: SideResult) -> None:
        """Write the reference."""
        self._known = replace(self._known, reference=side)
        self.write()

    def add_candidate(self, side: SideResult) -> None:
        """Write the candidate."""
        self._known = replace(self._known, candidate=side)
        self.write()

    def count_rows(self, rows: int) -> None:
        """Remember the number of compared rows for the next `write`."""
        self._known = replace(self._known, rows=max(rows, self._known.rows))

    def write(self) -> None:
        """Write the state."""
        write_json_atomically(self._path, to_data(self._known))

    def take(self) -> PartialResult:
        """Return the state and remove its file; an empty state where the job did not write one."""
        if not self._path.is_file():
            return PartialResult()
        try:
            return from_data(PartialResult, read_json(self._path))
        except (ParitygateError, ValueError):
            # Code of the user runs in the job too, and may write there.
            return PartialResult()
        finally:
            self.remove()

    def remove(self) -> None:
        """Remove the file, if any."""
        self._path.unlink(missing_ok=True)


def side_not_opened(ref: ModelRef) -> SideResult:
    """Return the name and kind of a model that was not opened."""
    kind = str(ref.kind)
    if ref.is_recorded:
        kind = "recording" if (ref.path / RECORD_FILE).is_file() else "recorded outputs"
    # Its code may have run although it returned nothing.
    return SideResult(name=ref.name, kind=kind, executes_code=ref.executes_code and ref.kind is not SourceKind.LIVE)
