"""What is known of a comparison before it ends: where it is broken off, its result says that much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.codec import from_data, to_data
from paritygate.errors import ParitygateError
from paritygate.files import read_json, write_json_atomically
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.result import SideResult
from paritygate.validate.reference.recording import RECORD_FILE

if TYPE_CHECKING:
    from paritygate.models.source import ModelRef

_FILE = "partial.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartialResult:
    """What is known of a comparison that has not ended.

    Attributes:
        reference: What the reference is; None before it was opened.
        candidate: What the candidate is; None before it was opened.
        rows: How many rows were compared.
    """

    reference: SideResult | None = None
    candidate: SideResult | None = None
    rows: int = 0


class PartialResultFile:
    """The file of it in the folder of a comparison.

    Its job writes it, and removes it at its end; where the job broke off, who started it reads and removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._known = PartialResult()

    def add_reference(self, side: SideResult) -> None:
        """Write down what the reference is."""
        self._known = replace(self._known, reference=side)
        self.write()

    def add_candidate(self, side: SideResult) -> None:
        """Write down what the candidate is."""
        self._known = replace(self._known, candidate=side)
        self.write()

    def count_rows(self, rows: int) -> None:
        """Keep in mind how many rows were compared; `write` writes it down."""
        self._known = replace(self._known, rows=max(rows, self._known.rows))

    def write(self) -> None:
        """Write down what is known."""
        write_json_atomically(self._path, to_data(self._known))

    def take(self) -> PartialResult:
        """Return what was written down, and remove it; nothing is known where the job did not come that far."""
        if not self._path.is_file():
            return PartialResult()
        try:
            return from_data(PartialResult, read_json(self._path))
        except (ParitygateError, ValueError):
            # Code of the user runs in the job as well, and may write there.
            return PartialResult()
        finally:
            self.remove()

    def remove(self) -> None:
        """Remove the file, where it is."""
        self._path.unlink(missing_ok=True)


def side_not_opened(ref: ModelRef) -> SideResult:
    """Return what is known of a model that was not opened: its name, and its kind."""
    kind = str(ref.kind)
    if ref.is_recorded:
        kind = "recording" if (ref.path / RECORD_FILE).is_file() else "recorded outputs"
    # It may have run although it did not come as far as to answer.
    executes_code = ref.executes_code and ref.kind is not SourceKind.LIVE
    return SideResult(name=ref.name, kind=kind, executes_code=executes_code)
