"""Metrics of both sides against gold, over the rows that carry gold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.codec import finite_or_none, read_as
from paritygate.errors import MeasurementError, UsageError
from paritygate.importing import load_object
from paritygate.text import a_or_an
from paritygate.validate.gold.bootstrap import Interval, paired_resamples
from paritygate.validate.gold.columns import gold_column, output_column
from paritygate.validate.gold.figures import GoldStatistics, GoldStratum
from paritygate.validate.gold.metrics import metric_function
from paritygate.validate.gold.rule import GoldRule
from paritygate.validate.measure.decisions import Decision
from paritygate.validate.measure.parts.state_data import packed, unpacked
from paritygate.validate.measure.valid_positions import left_out_of, like

Metric = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def check_gold_rules(rules: Sequence[GoldRule], compared: Sequence[str]) -> None:
    """Raise UsageError unless each metric is declared once, of an output that is compared."""
    for rule in rules:
        if rule.output not in compared:
            msg = f"gold {rule} is on an output that is not compared (compared: {', '.join(compared) or 'none'})"
            raise UsageError(msg, hint="name one of the compared outputs")
        if [str(other) for other in rules].count(str(rule)) > 1:
            raise UsageError(f"gold {rule} is declared twice", hint="give each metric of an output once")


class GoldComparison:
    """Compares batch by batch; holds 8 bytes a row for each side of a rule and for gold, and 4 for each stratum.

    The first of several passes counts; the others are compared with the reference value by value.
    """

    def __init__(self, rule: GoldRule, decision: Decision | None, strata: Sequence[str] = ()) -> None:
        self._rule = rule
        self._decision = decision
        # Looked up before anything runs, so a wrong name costs nothing.
        self._metric = _function_metric(rule) if rule.is_function else metric_function(rule.metric)
        self._columns: dict[str, list[NDArray[np.float64]]] = {"candidate": [], "reference": [], "gold": []}
        self._codes: dict[str, list[NDArray[np.int32]]] = {name: [] for name in strata}
        self._values: dict[str, dict[str, int]] = {name: {} for name in strata}
        self._is_first_pass = True

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Add one batch."""
        rule = self._rule
        if not self._is_first_pass:
            return
        gold = gold_column(rule, batch)
        wanted = output_column(rule, self._decision, expected[rule.output], batch.rows)
        output = actual.get(rule.output)
        if output is None or output.shape != expected[rule.output].shape or output.dtype.kind not in "fiubV":
            # The contract has failed already; a missing output predicts nothing.
            predicted = np.full(batch.rows, np.nan)
        else:
            (output,) = like({rule.output: output}, expected).values()
            predicted = output_column(rule, self._decision, output, batch.rows)
        left_out = left_out_of(expected[rule.output])
        if left_out is not None:
            # A row that does not count is one without gold.
            gold = np.where(left_out.reshape(batch.rows, -1).all(axis=1), np.nan, gold)
        for name, column in (("candidate", predicted), ("reference", wanted), ("gold", gold)):
            self._columns[name].append(column)
        for name, codes in self._codes.items():
            codes_of_values = self._values[name]
            values = map(str, batch.strata[name])
            codes.append(
                np.array([codes_of_values.setdefault(value, len(codes_of_values)) for value in values], dtype=np.int32)
            )

    def end_pass(self) -> None:
        """Mark the end of a pass."""
        self._is_first_pass = False

    def take_in(self, other: GoldComparison) -> None:
        """Add the rows that come next."""
        for name, columns in other._columns.items():
            self._columns[name] += columns
        for name, codes_of_values in other._values.items():
            own = self._values[name]
            codes = np.array([own.setdefault(value, len(own)) for value in codes_of_values], dtype=np.int32)
            self._codes[name] += [codes[part] for part in other._codes[name]]

    def to_data(self) -> dict[str, Any]:
        """Return the columns and the values of strata as JSON data."""
        return {
            "columns": {name: packed(parts, np.float64) for name, parts in self._columns.items()},
            "codes": {name: packed(parts, np.int32) for name, parts in self._codes.items()},
            "values": {name: list(values) for name, values in self._values.items()},
        }

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""
        self._columns = {name: [unpacked(data["columns"][name], np.float64)] for name in self._columns}
        self._values = {
            name: {value: code for code, value in enumerate(read_as(list[str], data["values"][name]))}
            for name in self._values
        }
        self._codes = {name: [unpacked(data["codes"][name], np.int32)] for name in self._codes}
        rows = len(self._columns["gold"][0])
        of_strata = [(codes, len(self._values[name])) for name, (codes,) in self._codes.items()]
        if any(len(column) != rows for (column,) in self._columns.values()) or any(
            len(codes) != rows or (rows and not 0 <= codes.min() <= codes.max() < values) for codes, values in of_strata
        ):
            raise ValueError("columns of gold do not fit together")

    def finish(self, *, seed: int) -> GoldStatistics:
        """Return the metrics; raise UsageError where no row carries gold."""
        candidate, reference, gold = (_joined(self._columns[name]) for name in ("candidate", "reference", "gold"))
        has_gold = ~np.isnan(gold)
        rows = int(np.count_nonzero(has_gold))
        if not rows and len(gold):
            msg = f"gold {self._rule}: none of the {len(gold)} rows of the samples has gold"
            raise UsageError(msg, hint="yield Batch.gold from a module:callable, because files hold no gold")
        rows_with_gold = _Known(candidate=candidate[has_gold], reference=reference[has_gold], gold=gold[has_gold])
        of_candidate, of_reference = rows_with_gold.metric_of_both(self._metric)
        rule = self._rule
        interval, margin = rows_with_gold.intervals(self._metric, rule, seed=seed)
        return GoldStatistics(
            metric=rule.metric,
            output=rule.output,
            rows=rows,
            rows_without=len(gold) - rows,
            reference=finite_or_none(of_reference),
            candidate=finite_or_none(of_candidate),
            difference=finite_or_none(of_candidate - of_reference),
            difference_low_95=None if interval is None else interval.low,
            difference_high_95=None if interval is None else interval.high,
            limit=finite_or_none(_limit(rule, of_reference)),
            margin_low_95=None if margin is None else margin.low,
            margin_high_95=None if margin is None else margin.high,
            ratio=rule.ratio,
            max_drop=rule.max_drop,
            gold_above=rule.gold_above,
            strata={
                name: self._strata(name, np.concatenate(codes)[has_gold], rows_with_gold)
                for name, codes in self._codes.items()
                if codes
            },
            digest=f"sha256:{hashlib.sha256(gold.tobytes()).hexdigest()}",
        )

    def _strata(self, name: str, codes: NDArray[np.int32], known: _Known) -> dict[str, GoldStratum]:
        metrics = {}
        for value, code in sorted(self._values[name].items()):
            part = known.rows(codes == code)
            candidate, reference = part.metric_of_both(self._metric) if len(part.gold) else (math.nan, math.nan)
            metrics[value] = GoldStratum(
                rows=len(part.gold), candidate=finite_or_none(candidate), reference=finite_or_none(reference)
            )
        return metrics


def _joined(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(columns) if columns else np.zeros(0)


def _limit(rule: GoldRule, reference: float) -> float | None:
    if rule.ratio is not None:
        return rule.ratio * reference
    return None if rule.max_drop is None else reference - rule.max_drop


class _Known(Struct, frozen=True, kw_only=True):
    candidate: NDArray[np.float64]
    reference: NDArray[np.float64]
    gold: NDArray[np.float64]

    def rows(self, chosen: NDArray[np.bool_]) -> _Known:
        return _Known(candidate=self.candidate[chosen], reference=self.reference[chosen], gold=self.gold[chosen])

    def metric_of_both(self, metric: Metric) -> tuple[float, float]:
        if not len(self.gold):
            return math.nan, math.nan
        candidate, reference = (
            float(metric(side[None], self.gold[None])[0]) for side in (self.candidate, self.reference)
        )
        return candidate, reference

    def intervals(self, metric: Metric, rule: GoldRule, *, seed: int) -> tuple[Interval | None, Interval | None]:
        if not len(self.gold):
            return None, None
        drawn = paired_resamples(
            _lenient(metric) if rule.is_function else metric, (self.candidate, self.reference), self.gold, seed=seed
        )
        difference = drawn.candidate - drawn.reference
        interval = drawn.interval(difference)
        if rule.ratio is not None:
            return interval, drawn.interval(drawn.candidate - rule.ratio * drawn.reference)
        return interval, None if rule.max_drop is None else drawn.interval(difference + rule.max_drop)


def _function_metric(rule: GoldRule) -> Metric:
    function = load_object(rule.metric)
    if not callable(function):
        msg = f"gold {rule}: {rule.metric!r} is not a function"
        raise UsageError(msg, hint="give a function (outputs, gold) -> float, where higher is better")

    def metric(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([_called(rule, function, *pair) for pair in zip(predicted, gold, strict=True)])

    return metric


def _called(
    rule: GoldRule, function: Callable[..., object], predicted: NDArray[np.float64], gold: NDArray[np.float64]
) -> float:
    try:
        result = function(predicted.copy(), gold.copy())
    except Exception as err:
        msg = f"gold {rule}: the function raised {type(err).__name__}: {err}"
        raise MeasurementError(msg, hint="correct your function") from err
    try:
        return float(result)  # type: ignore[arg-type]  # what it returns is what is being found out
    except (TypeError, ValueError) as err:
        msg = f"gold {rule}: the function returned {a_or_an(type(result).__name__)}, not a number"
        raise MeasurementError(msg, hint="return one float, where higher is better") from err


def _lenient(metric: Metric) -> Metric:
    """Return the metric with NaN for a resample for which it raises, such as one of a single class."""

    def found(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([_or_nan(metric, *pair) for pair in zip(predicted, gold, strict=True)])

    return found


def _or_nan(metric: Metric, predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> float:
    try:
        return float(metric(predicted[None], gold[None])[0])
    except MeasurementError:
        return math.nan
