"""Batch composition: the same rows alone, repeated, among other rows, at other positions, in batches of other sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from paritygate.text import counted, row_name
from paritygate.validate.probes.derive.sizes import batch_sizes, more_batch_sizes
from paritygate.validate.probes.inputs.probe import ROWS_FACTOR, ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.survey import Rows

_NAME = "batches"
_GROUPS = 2
_ALONE = 3
_BESIDE = 4


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield batches of the same real rows, composed differently."""
    random = context.random(_NAME)
    sizes = batch_sizes(context)
    groups = context.survey.groups[:_GROUPS]
    orders = [[int(at) for at in random.permutation(len(rows.ids))] for rows in groups]
    used = 0
    for rows, order in zip(groups, orders, strict=True):
        if not rows.with_rows:
            # Without rows there is nothing to compose: the same inputs run a second time.
            yield _batch(rows, [0], f"the inputs of {row_name(rows.ids[0])} once more")
            continue
        again = _large_again(rows, order, sizes) if rows is groups[0] else ()
        for batch in itertools.chain(_of_sizes(rows, order, sizes), again, _around_one(rows, order, sizes)):
            used += batch.rows
            yield batch
    if not groups or not groups[0].with_rows:
        return
    # These come last because they use up the rows left, and other sessions repeat the first batches.
    for size in more_batch_sizes(context, rows=context.max_rows * ROWS_FACTOR - used):
        yield _batch(groups[0], _filled(orders[0], size), _of(size))


def _of_sizes(rows: Rows, order: Sequence[int], sizes: Sequence[int]) -> Iterator[ProbeBatch]:
    """Yield a large batch, then smaller ones."""
    for size in sizes:
        after = f", run after one of {max(sizes)}" if size < max(sizes) else ""
        yield _batch(rows, _filled(order, size), f"{_of(size)}{after}")


def _large_again(rows: Rows, order: Sequence[int], sizes: Sequence[int]) -> Iterator[ProbeBatch]:
    """Yield the large batch again: in reverse order, and with one row repeated."""
    if len(sizes) > 1 and len(order) > 1:
        again = _filled(order[::-1], max(sizes))
        yield _batch(rows, again, f"{_of(max(sizes))} in reverse order, run after one of {min(sizes)}")
    if max(sizes) > 1:
        yield _batch(rows, [order[0]] * max(sizes), f"{row_name(rows.ids[order[0]])} repeated {max(sizes)} times")


def _around_one(rows: Rows, order: Sequence[int], sizes: Sequence[int]) -> Iterator[ProbeBatch]:
    low, high = min(sizes), max(sizes)
    first, others = order[0], list(order[1:]) or [order[0]]
    for row in order[:_ALONE]:
        yield _batch(rows, [row] * low, f"{row_name(rows.ids[row])} alone")
    # One row, with others beside it, first, in the middle and last.
    beside = max(low - 1, min(len(others), high - 1, _BESIDE))
    if beside:
        for position in dict.fromkeys((0, beside // 2, beside)):
            chosen = _filled(others, beside)
            chosen.insert(position, first)
            yield _batch(rows, chosen, f"{row_name(rows.ids[first])} at position {position} of {beside + 1}")
        yield _batch(rows, [first, *_filled(others[::-1], beside)], f"{row_name(rows.ids[first])} among other rows")


def _of(size: int) -> str:
    return f"a batch of {counted(size, 'row')}"


def _filled(order: Sequence[int], size: int) -> list[int]:
    return [int(at) for at in np.resize(np.asarray(order), size)]


def _batch(rows: Rows, at: list[int], about: str) -> ProbeBatch:
    return ProbeBatch(inputs=rows.take(at), rows=len(at), about=about)
