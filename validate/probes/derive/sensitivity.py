"""Sensitivity: inputs that are ignored or swapped, found by changing each alone and exchanging two of one kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import Form, Role
from paritygate.validate.probes.inputs.survey import Rows

_NAME = "sensitivity"
_ROWS = 6


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows in which one input comes from other rows, or from another input."""
    for rows in context.survey.groups:
        if not rows.with_rows:
            return
        sizes = batch_sizes(context)
        count = max(min(sizes), min(_ROWS, max(sizes)))
        order = context.random(_NAME).permutation(len(rows.ids))
        at = [int(row) for row in np.resize(order, count)]
        other = [int(row) for row in np.resize(np.roll(order, 1), count)]
        if len(rows.ids) > 1:
            yield from _changed_alone(rows, at, other)
            yield from _exchanged(context, rows, at)
            return


def _changed_alone(rows: Rows, at: list[int], other: list[int]) -> Iterator[ProbeBatch]:
    for name in rows.inputs:
        if name in rows.with_rows:
            inputs = rows.take(at)
            inputs[name] = rows.take(other)[name]
            yield ProbeBatch(inputs=inputs, rows=len(at), about=f"{name} from other rows")


def _exchanged(context: ProbeContext, rows: Rows, at: list[int]) -> Iterator[ProbeBatch]:
    """Yield rows with two inputs of one kind exchanged; ids in place of a mask would mean nothing."""
    inputs = rows.take(at)
    for first, second in itertools.combinations(inputs, 2):
        one, two = inputs[first], inputs[second]
        roles = context.roles[first], context.roles[second]
        # A text of another input may occur nowhere in this one.
        is_one_kind = roles[0].role is roles[1].role is not Role.TEXT and Form.FIXED not in {
            role.form for role in roles
        }
        if is_one_kind and one.shape == two.shape and one.dtype == two.dtype and not np.array_equal(one, two):
            exchanged = {**inputs, first: two, second: one}
            # Positions beyond those seen are outside what lower precision was chosen for.
            is_beyond = any(context.survey.inputs[name].reach(exchanged[name])[1] for name in (first, second))
            about = f"{first} and {second} exchanged"
            yield ProbeBatch(inputs=exchanged, rows=len(at), about=about, is_beyond_seen=is_beyond)
