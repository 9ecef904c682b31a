"""A pair: what a reference answered and what a candidate answered, with what is to come of it; one npz file each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pair", "read_pairs", "write_pair"]

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Both sides' outputs on the same rows.

    Attributes:
        model: What answers.
        how: What the candidate is: how it was converted or run, or the fault that was planted.
        precision: What it is judged as.
        verdict: What should come of it: `pass`, `fail` or `inconclusive`.
        why: Why, where that is not plain.
        decisions: The decisions it is judged by, as `compare --decision` takes them.
        expected: The reference's outputs.
        actual: The candidate's.
        again: The reference's outputs run otherwise (graph not optimised, rows one at a time), by `RUN/OUTPUT`.
        moved: Its outputs where the inputs of each row are moved by one rounding, by `RUN/OUTPUT`.
        floors: What implementations of an output's last operator differ by, where its graph tells.
    """

    model: str
    how: str
    precision: str
    verdict: str
    why: str = ""
    decisions: tuple[str, ...] = ()
    expected: Arrays = field(default_factory=dict)
    actual: Arrays = field(default_factory=dict)
    again: Arrays = field(default_factory=dict)
    moved: Arrays = field(default_factory=dict)
    floors: Arrays = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.model}--{self.how}"


_SIDES = ("expected", "actual", "again", "moved", "floors")


def write_pair(pair: Pair, folder: Path) -> Path:
    """Write a pair and return its file."""
    arrays = {f"{side}/{name}": array for side in _SIDES for name, array in getattr(pair, side).items()}
    facts = {
        name: value
        for name in ("model", "how", "precision", "verdict", "why", "decisions")
        if (value := getattr(pair, name)) or name != "why"
    }
    path = folder / f"{pair.name}.npz"
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as stream:
        np.savez_compressed(stream, facts=np.array(json.dumps(facts)), **arrays)
    return unfinished.replace(path)


def read_pair(path: Path) -> Pair:
    """Return the pair in a file."""
    with np.load(path, allow_pickle=False) as stored:
        facts = json.loads(str(stored["facts"]))
        facts["decisions"] = tuple(facts.get("decisions", ()))
        sides: dict[str, dict[str, NDArray[np.generic]]] = {side: {} for side in _SIDES}
        for key in stored.files:
            side, _, name = key.partition("/")
            if name:
                sides[side][name] = stored[key]
    return Pair(**facts, **sides)


def read_pairs(folder: Path) -> Iterator[Pair]:
    """Yield the pairs of a folder, by name."""
    for path in sorted(folder.glob("*.npz")):
        yield read_pair(path)
