"""The rule for gold: which metric of which output, and how much of the reference's a candidate may lose."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from paritygate.errors import UsageError

# The part of an output that each metric reads: its values, the score of the positive class, or the labels decided on.
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "pearson": "values",
        "spearman": "values",
        "accuracy": "labels",
        "f1": "labels",
        "f1_macro": "labels",
        "auc": "positive",
    }
)
# A user's function reads values.
FUNCTION_TAKES = "values"
GOLD_GRAMMAR = (
    "METRIC:OUTPUT or MODULE:CALLABLE:OUTPUT, with ,ratio=R or ,max_drop=D or ,mlperf=99|99.9, and ,gold_above=V"
)
# Percent of the reference's metric that a candidate has to reach, and the same as a ratio.
# Source: MLPerf Inference rules, closed division: 99 % and 99.9 % of the metric of the FP32 reference model.
MLPERF_RULES = {99.0: 0.99, 99.9: 0.999}
_OPTIONS = ("ratio", "max_drop", "mlperf", "gold_above")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class GoldRule(Struct, frozen=True, kw_only=True):
    """A metric of one output against gold.

    `metric` is one of `METRICS`, or `module:callable` of `(outputs, gold) -> float`, where higher is better. The
    candidate's metric is at least `ratio` times the reference's, or at most `max_drop` below it; None for no limit.
    Gold above `gold_above` is positive; None where gold holds labels, or the metric wants numbers.
    """

    metric: str
    output: str
    ratio: float | None = None
    max_drop: float | None = None
    gold_above: float | None = None

    def __str__(self) -> str:
        return f"{self.metric}:{self.output}"

    @property
    def name(self) -> str:
        """Return the name of the metric in checks and reports."""
        return self.metric.rpartition(":")[2]

    @property
    def is_function(self) -> bool:
        """Return whether the metric is a function of the user's."""
        return self.metric not in METRICS


def parse_gold_rule(text: str) -> GoldRule:
    """Return the rule of a text of the form `GOLD_GRAMMAR`; raise UsageError for any other."""
    rest, options = text, {}
    while True:
        # From the end: an output's own name may hold commas, an option's value none.
        head, comma, last = rest.rpartition(",")
        key, sign, value = last.partition("=")
        if not (comma and sign and key.strip() in _OPTIONS):
            break
        if key.strip() in options:
            raise UsageError(f"gold {text!r} has {key.strip()} twice", hint=f"write {GOLD_GRAMMAR}")
        options[key.strip()] = _number(text, key.strip(), value)
        rest = head
    metric, colon, output = rest.partition(":")
    if not (colon and metric in METRICS):
        module, _, named = rest.partition(":")
        function, _, output = named.partition(":")
        metric = f"{module}:{function}"
        if not output or not _FUNCTION.fullmatch(metric):
            msg = f"gold {text!r} is not of the form {GOLD_GRAMMAR} (metrics: {', '.join(METRICS)})"
            raise UsageError(msg, hint="for example --gold pearson:logits,ratio=0.99")
    return make_gold_rule(metric, output, **options)


def _number(text: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"gold {text!r}: {key}={value} is not a number", hint=f"write {GOLD_GRAMMAR}") from None


def make_gold_rule(  # noqa: PLR0913 - one argument a key of the spec
    metric: str,
    output: str,
    *,
    ratio: float | None = None,
    max_drop: float | None = None,
    mlperf: float | None = None,
    gold_above: float | None = None,
) -> GoldRule:
    """Return the rule with these values of the command line or spec; raise UsageError where they do not fit."""
    where = f"gold {metric}:{output}"
    if metric not in METRICS and not _FUNCTION.fullmatch(metric):
        msg = f"{where}: {metric!r} is not a metric (allowed: {', '.join(METRICS)}, or module:callable)"
        raise UsageError(
            msg, hint=f"write gold: {{metric: METRIC, output: {output or 'OUTPUT'}}}, or --gold {GOLD_GRAMMAR}"
        )
    if not output:
        msg = f"{where} names no output"
        raise UsageError(msg, hint=f"write gold: {{metric: {metric}, output: OUTPUT}}, or --gold {GOLD_GRAMMAR}")
    options = [
        name for name, value in (("ratio", ratio), ("max_drop", max_drop), ("mlperf", mlperf)) if value is not None
    ]
    if len(options) > 1:
        msg = f"{where}: {' and '.join(options)} are given (expected only one)"
        raise UsageError(msg, hint="mlperf 99 is a ratio of 0.99, mlperf 99.9 one of 0.999")
    if mlperf is not None:
        if mlperf not in MLPERF_RULES:
            msg = f"{where}: mlperf={mlperf:g} is not a rule of MLPerf (allowed: 99, 99.9)"
            raise UsageError(msg, hint="give a ratio for another share")
        ratio = MLPERF_RULES[mlperf]
    if ratio is not None and not 0 < ratio <= 1:
        msg = f"{where}: ratio={ratio:g} is not a share of the reference's metric (allowed: above 0, at most 1)"
        raise UsageError(msg, hint="ratio=0.99 lets the candidate lose one percent of the reference's metric")
    if max_drop is not None and not 0 <= max_drop < math.inf:
        msg = f"{where}: max_drop={max_drop:g} is not allowed (allowed: 0 and more)"
        raise UsageError(msg, hint="max_drop=0.01 lets the candidate's metric be 0.01 below the reference's")
    if gold_above is not None and not (math.isfinite(gold_above) and METRICS.get(metric, "") in {"labels", "positive"}):
        msg = f"{where}: gold_above={gold_above:g} makes labels of gold, which this metric does not use"
        raise UsageError(msg, hint="leave it out, or use accuracy, f1, f1_macro or auc with a finite number")
    return GoldRule(metric=metric, output=output, ratio=ratio, max_drop=max_drop, gold_above=gold_above)
