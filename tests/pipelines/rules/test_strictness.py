"""Rules that ask less than recorded ones are found, by the table, for each rule that can ask less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paritygate.pipelines.rules.strictness import check_record, record_of, relaxed_checks, relaxed_limits
from paritygate.pipelines.rules.table import RULES
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.gold.rule import parse_gold_rule
from paritygate.validate.measure.decisions import parse_decision

# By rule: fields that ask more, and fields that ask less.
_PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "decisions": ({"decisions": (parse_decision("y:argmax"),)}, {}),
    "tolerance": (
        {"tolerance": parse_tolerance(Precision.FP16, {"max_abs_diff": 0.1})},
        {"tolerance": parse_tolerance(Precision.FP16, {"max_abs_diff": 0.2})},
    ),
    "repeat": ({"passes": 3}, {"passes": 2}),
    "gold": ({"gold": (parse_gold_rule("accuracy:y,ratio=0.99"),)}, {"gold": (parse_gold_rule("accuracy:y"),)}),
    "min_cosine_similarity": ({"min_cosine_similarity": {"y": 0.9}}, {"min_cosine_similarity": {"y": 0.8}}),
    "min_sqnr": ({"min_sqnr": {"y": 40.0}}, {"min_sqnr": {"y": 30.0}}),
    "valid_where": ({"valid_where": {"y": "mask"}}, {"valid_where": {"y": "mask", "z": "mask"}}),
    "probes": ({"probes": ("batches", "values")}, {"probes": ("batches",)}),
    "edge": ({"edge": EdgeRule.FAIL}, {"edge": EdgeRule.OFF}),
}
# Rules that say what outputs, inputs and rows are, give a reason of their own, or are not in a spec.
_OTHERS = {
    *("precision", "constant_decisions", "rename", "signatures", "takes", "outputs", "argmax_of", "matches", "ignore"),
    *("axes", "roles", "non_finite", "min_rows", "seed"),
}


def _rules(given: dict[str, Any]) -> GateRules:
    return GateRules(**{"tolerance": parse_tolerance(Precision.FP16, {}), **given})


def _relaxed(before: GateRules, after: GateRules) -> list[str]:
    record = json.loads(json.dumps(record_of(before)))
    check_record(record)
    return [*relaxed_checks(record, after), *relaxed_limits(record, after)]


def test_each_rule_can_ask_less_or_is_known_not_to() -> None:
    assert {rule.argument for rule in RULES if rule.strictness} == {*_PAIRS}
    assert {rule.argument for rule in RULES if not rule.strictness} == _OTHERS
    assert {name for pair in _PAIRS.values() for given in pair for name in given} <= {*GateRules.__struct_fields__}


@pytest.mark.parametrize("rule", _PAIRS)
def test_a_rule_that_asks_less_is_found_and_one_that_asks_more_is_not(rule: str) -> None:
    more, less = (_rules(given) for given in _PAIRS[rule])

    assert len(_relaxed(more, less)) == 1
    assert _relaxed(less, more) == []
    assert _relaxed(more, more) == []


def test_a_record_of_earlier_versions_may_lack_rules() -> None:
    rules = _rules({**_PAIRS["repeat"][0], **_PAIRS["gold"][0]})

    check_record({})
    assert [*relaxed_checks({}, rules), *relaxed_limits({}, rules)] == []
    # Before there was such a rule, every position counted.
    assert len([*relaxed_checks({}, _rules({"valid_where": {"y": "mask"}}))]) == 1


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("repeat", "3"),
        ("edge", "sometimes"),
        ("probes", "batches"),
        ("min_cosine_similarity", {"y": "0.9"}),
        ("tolerance", {"declared": ["speed"]}),
        ("tolerance", {"declared": "speed"}),
        ("tolerance", []),
    ],
)
def test_a_record_of_another_form_is_corrupt(rule: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"the recorded rule {rule}"):
        check_record({**record_of(_rules({})), rule: value})
