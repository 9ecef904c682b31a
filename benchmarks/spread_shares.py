"""How far right candidates are off, in their channel's own spread: `python benchmarks/spread_shares.py PAIRS`.

The limit of a channel is capped by a share of its own spread. The table says by which share candidates differ that are
right, so that it can be chosen, and how that compares with four steps of the precision, below which no limit goes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from limits.pairs import Pair, read_pairs

from paritygate.precision import Precision
from paritygate.signature import dtype_name
from paritygate.validate.measure.blocks import by_channel
from paritygate.validate.measure.limits import floor_of_bulk
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, SHARES_OF_SPREAD
from paritygate.validate.reference.record import profile_all
from paritygate.validate.reference.recording import StoredBatch

_COLUMNS = (
    "model",
    "output",
    "channels",
    "max / spread: half of the channels",
    "90 %",
    "all",
    "mean / spread",
    "floor / spread",
    "max / floor",
    "by",
    "beyond",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One channel of one pair; differences in its own spread, `beyond` whether they exceed the share and the floor."""

    model: str
    output: str
    how: str
    largest: float
    mean: float
    floor: float
    beyond: bool


def rows_of(pair: Pair) -> Iterator[Row]:
    """Yield every channel of a pair that has a spread of its own."""
    precision = Precision(pair.precision)
    shapes = {name: [array.shape] for name, array in pair.expected.items()}
    dtypes = {name: dtype_name(array.dtype) for name, array in pair.expected.items()}
    batch = StoredBatch(rows=len(next(iter(pair.expected.values()))), case=None, outputs=dict(pair.expected))
    for name, profile in profile_all(lambda: [batch], shapes=shapes, dtypes=dtypes, axes={}, signature=None).items():
        if not profile.is_float:
            continue
        wide = pair.actual[name].astype(np.float64) - pair.expected[name]
        floor, share = floor_of_bulk(DEFAULT_TOLERANCES[precision], profile), SHARES_OF_SPREAD[precision]
        for at, difference in enumerate(np.abs(by_channel(wide, profile.axis))):
            spread = float(profile.own_spread[at])
            if not spread or not np.isfinite(difference).all():
                continue
            largest = float(difference.max())
            yield Row(
                model=pair.model,
                output=name,
                how=pair.how,
                largest=largest / spread,
                mean=float(difference.mean()) / spread,
                floor=float(floor[at]) / spread,
                beyond=largest > max(share * spread, float(floor[at])),
            )


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the table of one precision."""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---" * len(_COLUMNS) + "|"
    for model, output in dict.fromkeys((row.model, row.output) for row in rows):
        of = [row for row in rows if (row.model, row.output) == (model, output)]
        worst = max(of, key=lambda row: row.largest)
        shares = np.quantile([row.largest for row in of], (0.5, 0.9, 1.0))
        numbers = (*shares, max(row.mean for row in of), worst.floor, worst.largest / worst.floor)
        beyond = dict.fromkeys(row.how for row in of if row.beyond)
        cells = (model, output, len(of), *(f"{number:.2g}" for number in numbers), worst.how, ", ".join(beyond))
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print a table for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path, help="a folder of pairs, or a file of them")
    found: dict[str, list[Row]] = {}
    for pair in read_pairs(parser.parse_args().pairs):
        if pair.verdict == "pass":
            found.setdefault(pair.precision, []).extend(rows_of(pair))
    for precision, rows in found.items():
        print(f"\n{precision}: the limit is capped at {SHARES_OF_SPREAD[Precision(precision)]:g} of the spread\n")
        print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
