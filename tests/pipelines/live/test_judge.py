"""What a changed answer is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.errors import UsageError
from paritygate.pipelines.live.judge import AnswerJudge, check_judgeable
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.limits import limits_for, limits_of
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES

_TOLERANCE = DEFAULT_TOLERANCES[Precision.FP32]
_SCORES = np.asarray([[3.0, 1.0], [1.0, 1.00001], [-2.0, 5.0]], dtype=np.float32)


def _judge(*decisions: str) -> AnswerJudge:
    limits = {"y": limits_for(_TOLERANCE, profile_outputs("y", [(_SCORES, 3)], axis=None, dtype="float32"))}
    rules = GateRules(tolerance=_TOLERANCE, decisions=tuple(map(parse_decision, decisions)))
    return AnswerJudge(rules=rules, limits=limits)


def _with(row: int, values: list[float]) -> NDArray[np.float32]:
    changed = _SCORES.copy()
    changed[row] = values
    return changed


@pytest.mark.parametrize(
    ("actual", "flipped", "outside"),
    [
        (_SCORES, [0, 0, 0], [0, 0, 0]),
        (_with(0, [2.0, 1.0]), [0, 0, 0], [0, 0, 0]),
        (_with(0, [1.0, 3.0]), [1, 0, 0], [1, 0, 0]),
        (_with(1, [1.00001, 1.0]), [0, 1, 0], [0, 0, 0]),
        (_with(2, [-2.0, np.nan]), [0, 0, 1], [0, 0, 1]),
        (_with(2, [-2.0, np.inf]), [0, 0, 1], [0, 0, 1]),
    ],
)
def test_a_decision_changes_outside_of_the_band_or_near_the_boundary(
    actual: NDArray[np.float32], flipped: list[int], outside: list[int]
) -> None:
    found = _judge("y:argmax").judge({"y": actual}, {"y": _SCORES}, {"y": _SCORES}, rows=3)

    assert found.flipped.tolist() == list(map(bool, flipped))
    assert found.outside.tolist() == list(map(bool, outside))
    assert found.share == sum(outside) / 3


def test_without_a_decision_a_value_beyond_its_limit_counts() -> None:
    found = _judge().judge({"y": _with(0, [2.0, 1.0])}, {"y": _SCORES}, {"y": _SCORES}, rows=3)

    assert found.outside.tolist() == [True, False, False]


def test_what_the_released_file_answers_in_two_ways_is_not_judged() -> None:
    other = _with(0, [1.0, 3.0])

    found = _judge("y:argmax").judge({"y": other}, {"y": _SCORES}, {"y": other}, rows=3)

    assert found.noise.tolist() == [True, False, False]
    assert not found.outside.any()
    assert found.share == 0


@pytest.mark.parametrize("actual", [{}, {"y": _SCORES.astype(np.float64)}, {"y": _SCORES[:2]}])
def test_an_answer_of_another_form_changes_every_row(actual: dict[str, NDArray[np.generic]]) -> None:
    found = _judge("y:argmax").judge(actual, {"y": _SCORES}, {"y": _SCORES}, rows=3)

    assert found.broken
    assert found.share == 1


def test_labels_are_compared_exactly() -> None:
    labels, others = np.asarray([1, 2, 3]), np.asarray([1, 2, 4])

    found = _judge().judge({"label": others}, {"label": labels}, {"label": labels}, rows=3)

    assert found.outside.tolist() == [False, False, True]


@pytest.mark.parametrize("decision", ["z:argmax", "label:threshold=1", "left_out:argmax"])
def test_a_decision_on_what_is_not_compared_as_floats_is_wrong_usage(decision: str) -> None:
    rules = replace(_judge(decision).rules, ignored={"left_out": "a random vector"})

    with pytest.raises(UsageError, match="is not on a compared float output"):
        check_judgeable(rules, {"y": "float32", "label": "int64", "left_out": "float32"}, "shadow")


@pytest.mark.parametrize(("declared", "wrong"), [({}, [0, 1, 2]), ({"y:max_abs_diff": 1}, [1, 2])])
def test_integers_are_quantities_by_a_limit_of_their_own(declared: dict[str, float], wrong: list[int]) -> None:
    right = np.array([[7], [255], [2**62]], dtype=np.uint64)
    answer = np.array([[8], [0], [2**62 + 2]], dtype=np.uint64)
    tolerance = parse_tolerance(Precision.FP32, declared)
    limits = limits_of(tolerance, [profile_outputs("y", [(right, 3)], axis=None, dtype="uint64")])
    found = AnswerJudge(rules=GateRules(tolerance=tolerance), limits=limits).difference(
        {"y": answer}, {"y": right}, rows=3
    )

    assert (found.flips, found.wrong, found.output) == (len(wrong), len(wrong), "y")
    assert found.share == (255 if declared else np.inf)
