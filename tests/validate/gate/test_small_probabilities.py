"""Click models whose answers are as small as Sigmoids differ by: nothing wrong passes, and right ones do from 1e-5.

Each is a small network of ONNX Runtime against the same in double precision; a table shows every verdict.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Verdict, verdict_of
from paritygate.validate.measure.decisions import Decision, parse_decision
from paritygate.validate.measure.limits import ACTIVATION_FLOOR, limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs, with_activation_floors
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, Tolerance

Values = NDArray[Any]
_DEFAULT = DEFAULT_TOLERANCES[Precision.FP32]
_AVERAGES = (1e-6, 2e-6, 3e-6, 5e-6, 1e-5, 1e-4)
# By how much the logarithm of the answers varies.
_VARIATIONS = (0.3, 0.7, 1.2, 2.0, 3.0)


class _Click(Struct, frozen=True, kw_only=True):
    """What a click model answers: in double precision, and by ONNX Runtime."""

    expected: Values
    actual: Values


def _click(average: float, variation: float, rows: int = 400) -> _Click:
    rng = np.random.default_rng(0)
    x, first = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 16), (16, 32)))
    second = rng.standard_normal((32, 1)).astype(np.float32)
    logits = np.maximum(x @ first, 0) @ second
    second *= np.float32(variation / logits.std())
    offset = np.log(average) - variation**2 / 2 - logits.mean() / logits.std() * variation
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        click (float[batch, 16] x, float[16, 32] first, float[32, 1] second, float[1] offset) => (float[batch, 1] y)
        {
          product = MatMul (x, first)
          hidden = Relu (product)
          head = MatMul (hidden, second)
          logits = Add (head, offset)
          y = Sigmoid (logits)
        }
    """)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = {"x": x, "first": first, "second": second, "offset": np.array([offset], np.float32)}
    (actual,) = session.run(None, inputs)
    wide = np.maximum(x.astype(np.float64) @ first, 0) @ second + float(inputs["offset"][0])
    return _Click(expected=(1 / (1 + np.exp(-wide))).astype(np.float32), actual=np.asarray(actual))


def _bulk_at_its_median(values: Values) -> Values:
    distance = np.abs(values - np.median(values))
    return np.where(distance <= np.quantile(distance, 0.9), np.median(values), values)


FAULTS: Mapping[str, Callable[[Values], Values]] = {
    "zeroed": lambda values: values * 0,
    "halved": lambda values: values / 2,
    "negated": lambda values: -values,
    "10 % off": lambda values: values * np.float32(1.1),
    "1 % off": lambda values: values * np.float32(1.01),
    "their mean": lambda values: np.full_like(values, values.mean()),
    "another row's": lambda values: np.roll(values, 1, axis=0),
    "the bulk at its median": _bulk_at_its_median,
    "the largest cut": lambda values: np.minimum(values, np.quantile(values, 0.98)),
}


def _verdict(
    expected: Values, actual: Values, tolerance: Tolerance = _DEFAULT, decisions: Mapping[str, Decision] | None = None
) -> Verdict:
    found = {"y": profile_outputs("y", [(expected, len(expected))], axis=None, dtype="float32")}
    profiles = with_activation_floors(found, {"y": np.array([ACTIVATION_FLOOR])})
    limits = {"y": limits_for(tolerance, profiles["y"])}
    asked = dict(decisions or {})
    comparison = OutputComparison(ComparisonPlan(profiles=profiles, limits=limits, decisions=asked))
    batch = Batch(inputs={}, ids=[str(row) for row in range(len(expected))])
    comparison.add(batch, {"y": actual.astype(np.float32)}, {"y": expected})
    comparison.end_pass()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles=profiles)
    checks = judge(comparison.finish(), plan)
    return verdict_of((*checks, *resolution_checks(tolerance, profiles, list(asked.values()))))


def test_nothing_wrong_passes_and_what_is_right_passes_where_sigmoids_differ_by_less() -> None:
    lines = ["average | variation | right | " + " | ".join(FAULTS)]
    passed, right = set(), {}
    for average in _AVERAGES:
        for variation in _VARIATIONS:
            # With few rows, the largest of them is small as well.
            rows = 120 if average < 1e-5 else 400
            click = _click(average, variation, rows)
            right[average, variation] = _verdict(click.expected, click.actual)
            wrong = {name: _verdict(click.expected, plant(click.actual)) for name, plant in FAULTS.items()}
            passed |= {(average, variation, name) for name, verdict in wrong.items() if verdict is Verdict.PASS}
            said = map(str, (right[average, variation], *wrong.values()))
            lines.append(f"{average:.0e} | {variation} | {' | '.join(said)}")
    sys.stdout.write("\n".join(lines))
    assert passed == set()
    assert {verdict for (average, _), verdict in right.items() if average >= 1e-5} == {Verdict.PASS}
    assert {verdict for (average, _), verdict in right.items() if average <= 1e-6} == {Verdict.INCONCLUSIVE}
    assert Verdict.FAIL not in right.values()


@pytest.mark.parametrize("variation", _VARIATIONS)
def test_at_a_millionth_a_declared_decision_or_limit_tells_what_is_near_enough(variation: float) -> None:
    click = _click(1e-6, variation)
    # Whoever bids by such answers knows what a bid bears.
    declared = replace(_DEFAULT, outputs={"y": {"max_abs_diff": (5e-7,)}})
    decision = {"y": parse_decision(f"y:threshold={float(np.quantile(click.expected, 0.9)):.9f}")}

    assert _verdict(click.expected, click.actual, declared) is Verdict.PASS
    assert _verdict(click.expected, click.expected * np.float32(1), decisions=decision) is Verdict.PASS
    assert _verdict(click.expected, FAULTS["zeroed"](click.actual), declared) is Verdict.FAIL
    assert _verdict(click.expected, FAULTS["zeroed"](click.actual), decisions=decision) is Verdict.FAIL
