"""Where the differences of an output lie against their limit, as a drawing on a logarithmic scale.

A letter-value plot of one side: the half of the values with the smallest differences is the tallest block, and
each further block (to 90 %, 99 %, 99.9 %, all) is lower. Positions only; the template draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from paritygate.pipelines.compare.result import OutputResult
from paritygate.pipelines.report.figures import number
from paritygate.signature import is_float_dtype

__all__ = ["QuantileStrip", "quantile_strip"]

WIDTH = 720.0
_LABEL_ROOM = 30.0
_LEAST_WIDTH = 1.5
# Part of a decade that stays free at either end.
_MARGIN = 0.3
_DECADES_SHOWN = 12
_TICKS_SHOWN = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """The values between two quantiles: left edge, width and height in user units, and what it holds in words."""

    left: float
    width: float
    height: float
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantileStrip:
    """The drawing, in user units from the left of a strip that is `WIDTH` wide.

    Attributes:
        blocks: From the smallest differences to the largest.
        largest: Where the largest difference is.
        is_beyond: Whether a difference is above its own limit.
        limit: Where the limit of the bulk is, the strictest of the channels.
        label: Where its label begins, ends, or has its middle: `start`, `end` or `middle`.
        ticks: Position and label of the powers of ten.
        words: The drawing in words.
    """

    blocks: tuple[Block, ...]
    largest: float
    is_beyond: bool
    limit: float
    label: str
    ticks: tuple[tuple[float, str], ...]
    words: str


def quantile_strip(output: OutputResult) -> QuantileStrip | None:
    """Return the drawing of an output; None where nothing differs, or nothing was measured, or there is no limit."""
    limit = output.limits.get("max_abs_diff")
    edges = (
        output.min_abs_diff,
        output.p50_abs_diff,
        output.p90_abs_diff,
        output.p99_abs_diff,
        output.p999_abs_diff,
        output.max_abs_diff,
    )
    known = [edge for edge in edges if edge is not None]
    if limit is None or limit.lowest <= 0 or len(known) < len(edges) or known[-1] == 0:
        return None
    if not is_float_dtype(output.dtype):
        return None
    first, last = _decades([*known, limit.lowest])

    def at(difference: float) -> float:
        if difference <= 0:
            return 0.0
        return min(1.0, max(0.0, (math.log10(difference) - first) / (last - first))) * WIDTH

    return QuantileStrip(
        blocks=_blocks([at(edge) for edge in known]),
        largest=at(known[-1]),
        is_beyond=_is_beyond(output, limit.lowest),
        limit=at(limit.lowest),
        label=_label(at(limit.lowest)),
        ticks=_ticks(first, last, at, is_open=known[0] < 10.0**first),
        words=f"Half of the differences are at most {number(known[1])}, 99 % at most {number(known[3])}, "
        f"the largest is {number(known[-1])}; the limit is {number(limit.lowest)}.",
    )


def _is_beyond(output: OutputResult, of_bulk: float) -> bool:
    """Return whether a difference is above its own limit, which is above that of the bulk for a value far from it."""
    return any(
        row.max_abs_diff is None or row.max_abs_diff > (of_bulk if row.limit is None else row.limit)
        for row in output.worst_rows
    )


def _decades(differences: list[float]) -> tuple[int, int]:
    """Return the powers of ten between which the strip reaches, with some room at either end."""
    positive = [difference for difference in differences if difference > 0]
    last = math.ceil(math.log10(max(positive)) + _MARGIN)
    first = math.floor(math.log10(min(positive)) - _MARGIN)
    return max(first, last - _DECADES_SHOWN), last


def _label(position: float) -> str:
    if position < _LABEL_ROOM:
        return "start"
    return "end" if position > WIDTH - _LABEL_ROOM else "middle"


def _blocks(edges: list[float]) -> tuple[Block, ...]:
    shapes = (
        (40.0, "the half with the smallest differences"),
        (28.0, "from 50 % to 90 %"),
        (18.0, "from 90 % to 99 %"),
        (10.0, "from 99 % to 99.9 %"),
        (4.0, "above 99.9 %"),
    )
    return tuple(
        Block(left=left, width=max(right - left, _LEAST_WIDTH), height=height, words=words)
        for (left, right), (height, words) in zip(itertools.pairwise(edges), shapes, strict=True)
    )


def _ticks(first: int, last: int, at: Callable[[float], float], *, is_open: bool) -> tuple[tuple[float, str], ...]:
    """Return position and label of the powers of ten; `is_open` if there are smaller differences than the first."""
    step = max(1, math.ceil((last - first) / _TICKS_SHOWN))
    ticks = [(at(10.0**exponent), f"1e{exponent}") for exponent in range(first, last + 1, step)]
    if is_open:
        ticks[0] = (ticks[0][0], f"\N{LESS-THAN OR EQUAL TO} {ticks[0][1]}")
    return tuple(ticks)
