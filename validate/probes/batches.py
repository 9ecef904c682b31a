"""Batch composition: the same rows alone, repeated, in other company, at other positions, in batches of other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from paritygate.validate.probes.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.sizes import batch_sizes
from paritygate.validate.probes.survey import Rows

__all__ = ["derive"]

_NAME = "batches"
_GROUPS = 2
_ALONE = 3
_COMPANY = 4


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield batches of the same real rows, put together otherwise."""
    random = context.random(_NAME)
    sizes = batch_sizes(context)
    for rows in context.survey.groups[:_GROUPS]:
        if not rows.with_rows:
            return
        order = [int(at) for at in random.permutation(len(rows.ids))]
        yield from _of_sizes(rows, order, sizes)
        yield from _around_one(rows, order, sizes)


def _of_sizes(rows: Rows, order: Sequence[int], sizes: Sequence[int]) -> Iterator[ProbeBatch]:
    """Yield a large batch, then smaller ones, then the large one again in another order."""
    for size in sizes:
        yield _batch(rows, _filled(order, size), f"{size} rows in one batch, after {max(sizes)}")
    if len(sizes) > 1 and len(order) > 1:
        again = _filled(order[::-1], max(sizes))
        yield _batch(rows, again, f"{max(sizes)} rows in reverse order, after {min(sizes)}")


def _around_one(rows: Rows, order: Sequence[int], sizes: Sequence[int]) -> Iterator[ProbeBatch]:
    low, high = min(sizes), max(sizes)
    first, others = order[0], list(order[1:]) or [order[0]]
    for row in order[:_ALONE]:
        yield _batch(rows, [row] * low, f"row {rows.ids[row]} alone")
    if high > 1:
        yield _batch(rows, [first] * high, f"row {rows.ids[first]} repeated {high} times")
    # One row, with others beside it, first, in the middle and last.
    company = max(low - 1, min(len(others), high - 1, _COMPANY))
    if company:
        for position in dict.fromkeys((0, company // 2, company)):
            chosen = _filled(others, company)
            chosen.insert(position, first)
            yield _batch(rows, chosen, f"row {rows.ids[first]} at position {position} of {company + 1}")
        yield _batch(rows, [first, *_filled(others[::-1], company)], f"row {rows.ids[first]} in other company")


def _filled(order: Sequence[int], size: int) -> list[int]:
    return [int(at) for at in np.resize(np.asarray(order), size)]


def _batch(rows: Rows, at: list[int], about: str) -> ProbeBatch:
    return ProbeBatch(inputs=rows.take(at), rows=len(at), about=about)
