"""Reduces an output to what a metric needs: one number a row, 8 bytes a row and side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.errors import UsageError
from paritygate.signature import is_float_dtype
from paritygate.validate.gold.rule import FUNCTION_TAKES, METRICS, GoldRule
from paritygate.validate.measure.decisions import Decision, Rule
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number

_ONE_NUMBER = "gold keeps one number a row, of outputs of shape (rows,) or (rows, 1)"
_TWO_CLASSES = 2


def output_column(
    rule: GoldRule, decision: Decision | None, output: NDArray[np.generic], rows: int
) -> NDArray[np.float64]:
    """Return the numbers of one batch of the output that the metric reads, shape `(rows,)`.

    For values, these are the outputs. The score of the positive class is the value, or of two columns the second less
    the first, which ranks rows alike for logits and probabilities. Labels come from the decision, NaN in a row that
    holds NaN; an integer output holds labels already. UsageError is raised for more numbers a row, or without a
    decision for labels.
    """
    takes = FUNCTION_TAKES if rule.is_function else METRICS[rule.metric]
    shape = output.shape
    is_scalar = bool(shape) and shape[0] == rows and output.size == rows
    is_matrix = len(shape) == 2 and shape[0] == rows  # noqa: PLR2004 - a rank
    left_out = left_out_of(output)
    if takes == "labels":
        # Values that do not count are never chosen.
        wide = np.asarray(output).astype(np.float64)
        if left_out is not None:
            wide[left_out] = -np.inf
        return _labels(rule, decision, wide, rows, is_integer=not is_float_dtype(output.dtype.name))
    wide = not_a_number(output, left_out)
    if is_scalar:
        return wide.reshape(rows)
    if takes == "positive" and is_matrix and shape[1] == _TWO_CLASSES:
        with np.errstate(invalid="ignore"):
            return wide[:, 1] - wide[:, 0]
    allowed = f"{_ONE_NUMBER}, or (rows, 2)" if takes == "positive" else _ONE_NUMBER
    msg = f"gold {rule}: the output has shape {list(shape)} for {rows} rows, but {allowed}"
    raise UsageError(msg, hint="use accuracy or f1_macro with a decision, or another output")


def _labels(
    rule: GoldRule, decision: Decision | None, values: NDArray[np.float64], rows: int, *, is_integer: bool
) -> NDArray[np.float64]:
    is_scalar = values.ndim > 0 and values.shape[0] == rows and values.size == rows
    if is_integer and is_scalar:
        return values.reshape(rows)
    if decision is None:
        msg = f"gold {rule} needs labels, but {rule.output!r} has no decision"
        raise UsageError(
            msg,
            hint=(
                f"declare the decision: decisions: {{{rule.output}: {{argmax: true}}}} or {{threshold: V}} in the "
                f"spec, or --decision {rule.output}:argmax or :threshold=V"
            ),
        )
    broken = np.isnan(values.reshape(rows, -1)).any(axis=1) if values.shape[:1] == (rows,) else None
    if broken is not None and decision.rule is Rule.THRESHOLD and is_scalar:
        above = np.greater_equal if decision.is_inclusive else np.greater
        return np.where(broken, np.nan, above(values.reshape(rows), decision.threshold))
    if broken is not None and decision.rule is Rule.ARGMAX and values.ndim == 2:  # noqa: PLR2004 - a rank
        return np.where(broken, np.nan, np.where(np.isnan(values), -np.inf, values).argmax(axis=1))
    msg = f"gold {rule}: decision {decision} does not give one label a row for an output of shape {list(values.shape)}"
    raise UsageError(msg, hint="use argmax over (rows, classes), or a threshold on one number a row")


def gold_column(rule: GoldRule, batch: Batch) -> NDArray[np.float64]:
    """Return the gold of one batch, shape `(rows,)`, NaN where a row has none.

    UsageError is raised where gold is not a number, not one value a row, or of a kind that the metric does not take.
    """
    if batch.gold is None:
        return np.full(batch.rows, np.nan)
    try:
        gold = np.asarray(batch.gold).astype(np.float64)
    except (TypeError, ValueError) as err:
        msg = f"gold {rule}: the samples hold gold that is not a number ({err})"
        raise UsageError(msg, hint="yield numbers as Batch.gold, the index of the class for labels") from err
    if gold.shape not in {(batch.rows,), (batch.rows, 1)}:
        msg = f"gold {rule}: gold has shape {list(gold.shape)} for {batch.rows} rows (allowed: (rows,) and (rows, 1))"
        raise UsageError(msg, hint="give one value a row")
    gold = gold.reshape(batch.rows)
    # Infinity is not an answer either.
    gold = np.where(np.isfinite(gold), gold, np.nan)
    if rule.gold_above is not None:
        return np.where(np.isnan(gold), np.nan, gold > rule.gold_above)
    _check_kind(rule, gold[~np.isnan(gold)])
    return gold


def _check_kind(rule: GoldRule, gold: NDArray[np.float64]) -> None:
    takes = FUNCTION_TAKES if rule.is_function else METRICS[rule.metric]
    if takes == "values":
        return
    is_binary = takes == "positive" or rule.metric == "f1"
    wrong = gold[~np.isin(gold, (0.0, 1.0))] if is_binary else gold[gold != np.round(gold)]
    if wrong.size:
        allowed = "0 and 1" if is_binary else "the indices of classes"
        msg = f"gold {rule}: gold holds {wrong[0]:g}, but labels are {allowed}"
        hint = "give the value above which gold is positive: gold_above=V"
        raise UsageError(msg, hint=f"{hint}; or use f1_macro for several classes" if rule.metric == "f1" else hint)
