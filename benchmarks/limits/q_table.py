"""How far right candidates are off, in their channel's own spread: `python benchmarks/limits/q_table.py build/limits`.

The limit of a channel is capped by a share q of its own spread. The table says by which share candidates differ that
are right, so that q can be chosen, and how that compares with four steps of the precision, below which no limit goes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pairs import Pair, read_pairs
from paritygate.precision import Precision
from paritygate.validate.gate.precision_steps import LEAST_STEPS, Step
from paritygate.validate.reference.blocks import by_channel
from paritygate.validate.reference.bulk import NORMAL_REACH, center_and_spread
from paritygate.validate.reference.profile import has_columns, infer_channel_axis

SHARES = {"fp32": 1e-3, "fp16": 5e-2, "bf16": 1e-1, "int8": 2.5e-1}
TODAY = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2, "int8": 1e-1}
_LEAST_VALUES = 30
_SUM = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One channel of one pair; differences in its own spread."""

    model: str
    how: str
    precision: str
    output: str
    channel: int
    channels: int
    largest: float
    mean: float
    floor: float
    in_floors: float
    spread: float
    median: float
    today: float
    is_distribution: bool
    distance_rms: float
    within: float


def own_spread(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median, the spread and the end of a channel's bulk; a spread of 0 for a channel that hardly varies."""
    numbers, counts = np.unique(values, return_counts=True)
    if counts.max() * 2 > values.size:
        values = values[values != numbers[counts.argmax()]]
    center, spread = center_and_spread(values[None], ())
    if values.size < _LEAST_VALUES:
        return float(center[0]), 0.0, float(np.abs(values).max(initial=0.0))
    end = min(abs(float(center[0])) + NORMAL_REACH * float(spread[0]), float(np.abs(values).max()))
    return float(center[0]), float(spread[0]), end


def is_distribution(values: NDArray[np.float64]) -> bool:
    """Return whether the rows sum to 1: three columns or more."""
    return values.ndim > 1 and values.shape[-1] > 2 and bool((np.abs(values.sum(axis=-1) - 1) < _SUM).all())


def _channels(expected: NDArray[np.float64]) -> int | None:
    shape = expected.shape
    return 1 if has_columns([shape]) else infer_channel_axis([shape], None)


def rows_of(pair: Pair) -> Iterator[Row]:
    """Yield every channel of a pair."""
    for name, array in pair.expected.items():
        expected, actual = array.astype(np.float64), pair.actual[name].astype(np.float64)
        axis = _channels(expected)
        is_shares = is_distribution(expected)
        step = Step(precision=Precision(pair.precision), dtype=array.dtype.name)
        whole = center_and_spread(expected.reshape(1, -1), ())[1][0]
        sides = by_channel(expected, axis), by_channel(actual, axis)
        shared = float(np.median(expected.max(axis=-1))) if is_shares else 0.0
        for at, (wanted, found) in enumerate(zip(*sides, strict=True)):
            ordinary = np.abs(wanted) < 1e8
            wanted, found = wanted[ordinary], found[ordinary]
            center, spread, end = own_spread(wanted)
            spread = shared or spread
            difference = np.abs(found - wanted)
            if not spread or not difference.size:
                continue
            floor = LEAST_STEPS * float(step.at(np.array([end]))[0])
            # What grows with the distance from the median is no matter of q.
            grown = np.maximum(SHARES[pair.precision] * spread, TODAY[pair.precision] * np.abs(wanted - center))
            rms = np.sqrt(np.mean(difference**2)) / max(np.sqrt(np.mean((wanted - np.median(wanted)) ** 2)), 1e-300)
            yield Row(
                model=pair.model,
                how=pair.how,
                precision=pair.precision,
                output=name,
                channel=at,
                channels=len(sides[0]),
                largest=float(difference.max()) / spread,
                mean=float(difference.mean()) / spread,
                floor=floor / spread,
                in_floors=float(difference.max()) / floor,
                spread=spread,
                median=center,
                today=float(difference.max()) / (TODAY[pair.precision] * max(1.0, whole)),
                is_distribution=is_shares,
                distance_rms=float(rms),
                within=float((difference / np.maximum(grown, floor)).max()),
            )


def _line(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of both tables."""
    for precision in SHARES:
        of = [row for row in rows if row.precision == precision]
        yield f"\n## {precision}: q = {SHARES[precision]:g}\n"
        yield _line("model", "output", "channels", "max/spread p50", "p90", "max", "mean/spread max", "floor/spread",
                    "max/floor", "worst by", "today", "beyond q and floor")  # fmt: skip
        yield _line(*["---"] * 12)
        keys = dict.fromkeys((row.model, row.output) for row in of)
        for model, output in keys:
            cells = [row for row in of if (row.model, row.output) == (model, output)]
            worst = max(cells, key=lambda row: row.largest)
            largest = np.array([row.largest for row in cells])
            beyond = [row for row in cells if row.within > 1]
            yield _line(
                model,
                output,
                worst.channels,
                *(f"{np.quantile(largest, share):.2g}" for share in (0.5, 0.9, 1.0)),
                f"{max(row.mean for row in cells):.2g}",
                f"{worst.floor:.2g}",
                f"{worst.in_floors:.2g}",
                worst.how,
                f"{max(row.today for row in cells):.2g}",
                f"{len(beyond)} of {len(cells)}: {', '.join(dict.fromkeys(row.how for row in beyond))}" if beyond else "",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [row for pair in read_pairs(arguments.folder / "pairs") for row in rows_of(pair)]
    print("\n".join(tables(rows)))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
