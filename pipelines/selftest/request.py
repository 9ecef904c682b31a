"""What a selftest is asked to do: JSON data for the child that does it, and the choice among the faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paritygate.convert.planted.kinds import PLANTS
from paritygate.errors import UsageError
from paritygate.pipelines.compare.job import ComparisonJob

__all__ = ["SelftestRequest", "chosen_plants"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SelftestRequest:
    """What to plant, and what to hold it against.

    Attributes:
        job: The comparison of the unchanged artifact, an ONNX file, with the recorded reference.
        plants: What to plant, by the table.
        most_rows: The most rows that a batch may have; None where that is not declared.
        folder: An empty folder to work in.
        run: The run folder.
        seed: Seed of all choices.
    """

    job: ComparisonJob
    plants: tuple[str, ...]
    most_rows: int | None
    folder: Path
    run: Path
    seed: int


def chosen_plants(names: Iterable[str]) -> tuple[str, ...]:
    """Return what to plant, in the order of the table; everything if nothing is named.

    Raises:
        UsageError: A name is not in the table.
    """
    wanted = list(names)
    for name in wanted:
        if name not in PLANTS:
            msg = f"--fault {name!r} is none of the faults and innocent rewrites that are planted"
            raise UsageError(msg, hint=f"write one of: {', '.join(PLANTS)}")
    return tuple(name for name in PLANTS if not wanted or name in wanted)
