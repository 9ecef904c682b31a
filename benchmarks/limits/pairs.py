"""A pair: what a reference answered and what a candidate answered, with what is to come of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Pair", "read_pairs", "write_bundle", "write_pair"]

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


_FACTS = ("model", "how", "precision", "verdict", "why", "decisions")
_OF_REFERENCE = ("expected", "again", "moved", "floors")
_SIDES = ("actual", *_OF_REFERENCE)


def write_pair(pair: Pair, folder: Path) -> Path:
    """Write a pair into a file of its own, and return it."""
    return write_bundle([pair], folder / f"{pair.name}.npz")


def write_bundle(pairs: Iterable[Pair], path: Path) -> Path:
    """Write pairs into one npz file, what a reference answered once for all of its candidates."""
    facts, arrays = [], {}
    for pair in pairs:
        facts.append({name: getattr(pair, name) for name in _FACTS})
        for side in _SIDES:
            owner = pair.name if side == "actual" else pair.model
            arrays |= {f"{owner}:{side}:{name}": array for name, array in getattr(pair, side).items()}
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as stream:
        np.savez_compressed(stream, facts=np.array(json.dumps(facts)), **arrays)
    return unfinished.replace(path)


def read_pairs(path: Path) -> Iterator[Pair]:
    """Yield the pairs of a file, or of all files of a folder."""
    for each in sorted(path.glob("*.npz")) if path.is_dir() else [path]:
        yield from _read(each)


def _read(path: Path) -> Iterator[Pair]:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    for facts in json.loads(str(arrays.pop("facts"))):
        sides = {
            side: _of(arrays, f"{facts['model']}--{facts['how']}" if side == "actual" else facts["model"], side)
            for side in _SIDES
        }
        yield Pair(**{**facts, "decisions": tuple(facts["decisions"])}, **sides)


def _of(arrays: Arrays, owner: str, side: str) -> dict[str, NDArray[np.generic]]:
    start = f"{owner}:{side}:"
    return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
