"""Inputs of a stage: its results count as long as these are unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

# The name of a change of the rules, next to the names of inputs.
RULES = "rules"


class Stage(Struct, frozen=True, kw_only=True):
    """One stage of a run, by its inputs."""

    name: str  # such as `compare onnx-fp16`
    reads: Mapping[str, str | None]  # digest of each input by its role; None for one that is missing or has no digest
    rules: str  # digest of all that the spec asks of it

    def changes(self, now: Stage) -> tuple[str, ...]:
        """Return the inputs that changed since: names of `reads`, and `RULES`."""
        names = [name for name in (*self.reads, *now.reads) if self.reads.get(name) != now.reads.get(name)]
        return (*dict.fromkeys(names), *([RULES] if self.rules != now.rules else []))
