"""A hint that a run may show names the key of the spec, beside the option of `compare`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paritygate.errors import ParitygateError
from paritygate.precision import Precision
from paritygate.validate.detections.rule import make_match_rule
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gold.columns import output_column
from paritygate.validate.gold.rule import make_gold_rule
from paritygate.validate.measure.decisions import check_rank, make_decision
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.reference.record import check_health, profile_all


def _hold_nan() -> None:
    values = np.array([[np.nan], [1.0]], dtype=np.float32)
    profile = profile_outputs("y", [(values, 2)], axis=None, dtype="float32")
    check_health({"y": profile}, is_non_finite_declared=False)


def _lack_a_decision() -> None:
    output_column(make_gold_rule("accuracy", "y"), None, np.zeros((2, 3), np.float32), 2)


@pytest.mark.parametrize(
    ("fail", "key", "option"),
    [
        (lambda: make_decision("y", rule="top_k", value=0), "y: {top_k: 5}", "--decision y:top_k=5"),
        (lambda: make_decision("y", rule="argmax", value=3), "y: {argmax: true}", "--decision y:argmax"),
        (lambda: make_decision("y", rule="threshold", value="x"), "y: {threshold: 0.5}", "--decision y:threshold=0.5"),
        (lambda: check_rank(make_decision("y", rule="argmax"), 3), "axis: N", "y:argmax,axis=N"),
        (lambda: make_gold_rule("kappa", "y"), "gold: {metric: METRIC, output: y}", "--gold METRIC:OUTPUT"),
        (_lack_a_decision, "decisions: {y: {argmax: true}}", "--decision y:argmax"),
        (lambda: make_match_rule("a:b", boxes="b", scores="s"), "matches: {NAME: {boxes: OUTPUT", "--match NAME:boxes"),
        (lambda: parse_tolerance(Precision.FP16, {"max": 1.0}), "max_abs_diff: 1e-3", "--tolerance max_abs_diff=1e-3"),
        (_hold_nan, "non_finite: match in the spec", "--non-finite match"),
        (lambda: profile_all(lambda: iter(()), shapes={}, dtypes={}, axes={"y": 1}, signature=None), "axes", "--axis"),
    ],
)
def test_a_hint_names_the_key_and_the_option(fail: Callable[[], object], key: str, option: str) -> None:
    with pytest.raises(ParitygateError) as caught:
        fail()

    assert key in caught.value.hint
    assert option in caught.value.hint
