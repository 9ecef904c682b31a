"""What a stage was done with: its results count for as long as it would be done with the same again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# How a change of the rules is named beside the names of what is read.
RULES = "rules"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage of a run, by what its results follow from.

    Attributes:
        name: What was done, such as `compare onnx-fp16`.
        reads: Digest of each thing that it read, by what that is to it; None for what is not there or has no digest.
        rules: Digest of all that the spec asks of it.
    """

    name: str
    reads: Mapping[str, str | None]
    rules: str

    def changes(self, now: Stage) -> tuple[str, ...]:
        """Return what would be otherwise if it were done now: names of what is read, and `RULES`."""
        names = [name for name in (*self.reads, *now.reads) if self.reads.get(name) != now.reads.get(name)]
        return (*dict.fromkeys(names), *([RULES] if self.rules != now.rules else []))
