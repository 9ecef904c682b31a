"""What may be asked of gold, in the words of the command line and of the spec, and what is kept of outputs for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import MeasurementError, UsageError
from paritygate.validate.gold.columns import gold_column, output_column
from paritygate.validate.gold.judgement import judge_gold
from paritygate.validate.gold.measurement import GoldComparison
from paritygate.validate.gold.rule import GoldRule, parse_gold_rule
from paritygate.validate.measure.decisions import parse_decision


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("pearson:logits", GoldRule(metric="pearson", output="logits")),
        ("pearson:logits,ratio=0.99", GoldRule(metric="pearson", output="logits", ratio=0.99)),
        ("auc:dense:0,max_drop=0.01", GoldRule(metric="auc", output="dense:0", max_drop=0.01)),
        ("f1:a,b,mlperf=99.9", GoldRule(metric="f1", output="a,b", ratio=0.999)),
        ("accuracy:s,mlperf=99,gold_above=3", GoldRule(metric="accuracy", output="s", ratio=0.99, gold_above=3.0)),
        ("my.metrics:mine:dense:0", GoldRule(metric="my.metrics:mine", output="dense:0")),
    ],
)
def test_a_rule_is_read_as_written(text: str, rule: GoldRule) -> None:
    found = parse_gold_rule(text)

    assert found == rule
    assert from_data(GoldRule, to_data(found)) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pearson", "is not of the form METRIC:OUTPUT"),
        ("pearson:", "names no output"),
        ("kappa:logits", "is not of the form METRIC:OUTPUT or MODULE:CALLABLE:OUTPUT.*metrics: pearson"),
        ("pearson:logits,ratio=0.99,ratio=0.9", "has ratio twice"),
        ("pearson:logits,ratio=much", "ratio=much is not a number"),
        ("pearson:logits,ratio=99", "ratio=99 is not a share"),
        ("pearson:logits,ratio=nan", "ratio=nan is not a share"),
        ("pearson:logits,max_drop=-1", "max_drop=-1 is not allowed"),
        ("pearson:logits,mlperf=98", r"mlperf=98 is not a rule of MLPerf \(allowed: 99, 99.9\)"),
        ("pearson:logits,mlperf=99,ratio=0.99", r"ratio and mlperf are given \(expected only one\)"),
        ("pearson:logits,gold_above=3", "gold_above=3 makes labels of gold, which this metric does not use"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_gold_rule(text)


def _batch(gold: object, rows: int = 4) -> Batch:
    return Batch(inputs={}, ids=[str(row) for row in range(rows)], gold=gold)  # type: ignore[arg-type]  # of any kind


def test_what_is_no_gold_is_nan() -> None:
    rule = parse_gold_rule("pearson:y")

    assert np.isnan(gold_column(rule, _batch(None))).all()
    assert np.isnan(gold_column(rule, _batch(np.array([1.0, None, math.nan, math.inf], dtype=object)))).tolist() == [
        False,
        True,
        True,
        True,
    ]
    assert gold_column(rule, _batch(np.array([[1], [2], [3], [4]]))).tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("rule", "gold", "message"),
    [
        ("pearson:y", np.array(["a", "b", "c", "d"]), "holds? gold that is not a number"),
        ("pearson:y", np.zeros((4, 2)), r"gold has shape \[4, 2\] for 4 rows"),
        ("f1:y", np.array([0.0, 1.0, 2.5, 0.0]), "gold holds 2.5, but labels are 0 and 1"),
        ("auc:y", np.array([0.0, 1.0, 5.0, 0.0]), "gold holds 5, but labels are 0 and 1"),
        ("accuracy:y", np.array([0.0, 1.0, 2.5, 0.0]), "gold holds 2.5, but labels are the indices of classes"),
    ],
)
def test_gold_that_the_metric_cannot_take_is_refused(rule: str, gold: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gold_column(parse_gold_rule(rule), _batch(gold))


def test_gold_above_makes_labels() -> None:
    found = gold_column(parse_gold_rule("f1:y,gold_above=3"), _batch(np.array([2.9, 3.0, 3.1, math.nan])))

    assert found[:3].tolist() == [0.0, 0.0, 1.0]
    assert math.isnan(found[3])


def test_one_number_a_row_is_kept() -> None:
    scores = np.array([[0.1, 0.9], [0.7, 0.3], [0.5, 0.5]], dtype=np.float32)
    wide = scores.astype(np.float64)

    def kept(rule: str, array: object, decision: str | None = None) -> list[float]:
        chosen = None if decision is None else parse_decision(decision)
        return list(output_column(parse_gold_rule(rule), chosen, np.asarray(array), 3))

    assert kept("pearson:y", scores[:, :1]) == wide[:, 0].tolist()
    assert kept("auc:y", scores) == (wide[:, 1] - wide[:, 0]).tolist()
    assert kept("auc:y", scores[:, 1]) == wide[:, 1].tolist()
    assert kept("accuracy:y", scores, "y:argmax") == [1.0, 0.0, 0.0]
    assert kept("f1:y", scores[:, 0], "y:threshold=0.5") == [0.0, 1.0, 0.0]
    assert kept("f1:y", scores[:, 0], "y:threshold=>=0.5") == [0.0, 1.0, 1.0]
    assert kept("f1_macro:y", np.array([[2], [0], [1]])) == [2.0, 0.0, 1.0]


def test_labels_of_rows_with_nan_are_nan() -> None:
    scores = np.array([[0.1, math.nan], [0.7, 0.3]])

    found = output_column(parse_gold_rule("accuracy:y"), parse_decision("y:argmax"), scores, 2)

    assert math.isnan(found[0])
    assert found[1] == 0.0


@pytest.mark.parametrize(
    ("rule", "shape", "decision", "message"),
    [
        ("pearson:y", (3, 2), None, r"shape \[3, 2\] for 3 rows, but gold keeps one number a row"),
        ("auc:y", (3, 4), None, r"or \(rows, 2\)"),
        ("pearson:y", (5,), None, "one number a row"),
        ("accuracy:y", (3, 2), None, "needs labels, but 'y'"),
        ("accuracy:y", (3, 2), "y:threshold=0", "does not give one label a row"),
        ("accuracy:y", (3, 2), "y:top_k=1", "does not give one label a row"),
        ("accuracy:y", (3, 2, 2), "y:argmax,axis=1", "does not give one label a row"),
    ],
)
def test_outputs_with_more_than_one_number_a_row_are_refused(
    rule: str, shape: tuple[int, ...], decision: str | None, message: str
) -> None:
    chosen = None if decision is None else parse_decision(decision)
    with pytest.raises(UsageError, match=message):
        output_column(parse_gold_rule(rule), chosen, np.zeros(shape, dtype=np.float32), 3)


def _compared(rule: str, candidate: object, reference: object, gold: object) -> GoldComparison:
    comparison = GoldComparison(parse_gold_rule(rule), None)
    wanted, found = (np.asarray(side, dtype=np.float32) for side in (reference, candidate))
    comparison.add(_batch(np.asarray(gold, dtype=np.float64), len(wanted)), {"y": found}, {"y": wanted})
    comparison.end_pass()
    return comparison


def _status(rule: str, candidate: object, reference: object, gold: object, *, min_rows: int = 1) -> tuple[str, str]:
    check = judge_gold(_compared(rule, candidate, reference, gold).finish(seed=0), min_rows=min_rows)
    assert check.name == "gold_pearson"
    assert check.output == "y"
    return str(check.status), check.detail


_GOLD = np.arange(200.0)
_NOISE = np.random.default_rng(0).standard_normal(200)


def test_a_candidate_as_good_as_the_reference_passes() -> None:
    status, words = _status("pearson:y,mlperf=99.9", _GOLD + _NOISE, _GOLD + _NOISE, _GOLD)

    assert status == "pass"
    assert "difference 0 (95 %: 0 to 0) over 200 rows; limit 0.99" in words
    assert "(99.9 % of the reference's)" in words


def test_a_candidate_below_the_limit_fails() -> None:
    status, words = _status("pearson:y,ratio=0.99", _GOLD + 60 * _NOISE, _GOLD, _GOLD)

    assert status == "fail"
    assert "limit 0.99 (99 % of the reference's)" in words


def test_the_rule_decides_and_the_interval_only_warns() -> None:
    reference = _GOLD + 20 * _NOISE
    candidate = reference + 11 * np.random.default_rng(1).standard_normal(200)

    status, words = _status("pearson:y,ratio=0.99", candidate, reference, _GOLD)

    assert status == "warning"
    assert "95 %" in words.rpartition(". ")[2]


def test_max_drop_is_in_the_unit_of_the_metric() -> None:
    candidate = _GOLD + 20 * _NOISE

    assert _status("pearson:y,max_drop=0.5", candidate, _GOLD, _GOLD)[0] == "pass"
    status, words = _status("pearson:y,max_drop=0.001", candidate, _GOLD, _GOLD)
    assert status == "fail"
    assert "(at most 0.001 less)" in words


def test_without_a_limit_a_bad_metric_is_information() -> None:
    status, words = _status("pearson:y", -_GOLD, _GOLD, _GOLD)

    assert status == "pass"
    assert "candidate -1, reference 1" in words
    assert "no limit is declared" in words
    assert _status("pearson:y", np.zeros(200), _GOLD, _GOLD)[0] == "warning"


def test_a_reference_without_a_metric_is_inconclusive_and_a_candidate_without_one_fails() -> None:
    constant = np.zeros(200)

    status, words = _status("pearson:y,ratio=0.99", _GOLD, constant, _GOLD)
    assert (status, "not defined" in words) == ("inconclusive", True)
    status, words = _status("pearson:y,ratio=0.99", constant, _GOLD, _GOLD)
    assert (status, "candidate not defined" in words) == ("fail", True)
    broken = np.where(np.arange(200) == 7, np.nan, _GOLD)
    assert _status("pearson:y,ratio=0.99", broken, _GOLD, _GOLD)[0] == "fail"


def test_a_ratio_of_what_is_not_above_zero_is_inconclusive() -> None:
    status, words = _status("pearson:y,ratio=0.99", -_GOLD, -_GOLD, _GOLD)

    assert status == "inconclusive"
    assert "max_drop" in words


def test_few_rows_with_gold_are_inconclusive_unless_they_fail() -> None:
    gold = np.where(np.arange(200) < 29, _GOLD, np.nan)

    status, words = _status("pearson:y,ratio=0.99", _GOLD, _GOLD, gold)
    assert status == "inconclusive"
    assert "over 29 rows, 171 rows without gold left out" in words
    assert "29 rows have gold (expected at least 30)" in words
    assert _status("pearson:y,ratio=0.99", -_GOLD, _GOLD, gold)[0] == "fail"
    assert _status("pearson:y,ratio=0.99", _GOLD, _GOLD, _GOLD, min_rows=201)[0] == "inconclusive"


def test_samples_without_any_gold_are_refused() -> None:
    with pytest.raises(UsageError, match="none of the 200 rows of the samples has gold"):
        _compared("pearson:y", _GOLD, _GOLD, np.full(200, np.nan)).finish(seed=0)


def test_only_the_first_pass_counts() -> None:
    comparison = _compared("pearson:y", _GOLD, _GOLD, _GOLD)
    batch = _batch(_GOLD, 200)
    comparison.add(batch, {"y": -_GOLD}, {"y": _GOLD})
    comparison.end_pass()

    found = comparison.finish(seed=0)

    assert (found.rows, found.candidate) == (200, 1.0)


def test_chunks_change_nothing_and_strata_have_metrics_of_their_own() -> None:
    rule = parse_gold_rule("pearson:y")
    candidate = np.where(np.arange(200) % 2 == 0, _GOLD, -_GOLD)
    whole, parts = (GoldComparison(rule, None, ("parity",)) for _ in range(2))
    for comparison, size in ((whole, 200), (parts, 7)):
        for first in range(0, 200, size):
            rows = np.arange(first, min(200, first + size))
            batch = Batch(
                inputs={},
                ids=[str(row) for row in rows],
                gold=_GOLD[rows],
                strata={"parity": ["odd" if row % 2 else "even" for row in rows]},
            )
            comparison.add(batch, {"y": candidate[rows]}, {"y": _GOLD[rows]})
        comparison.end_pass()

    found, again = whole.finish(seed=0), parts.finish(seed=0)

    assert found == again
    by_value = found.strata["parity"]
    assert {value: (item.rows, round(item.candidate, 9)) for value, item in by_value.items()} == {
        "even": (100, 1.0),
        "odd": (100, -1.0),
    }


def test_a_function_of_the_user_is_called_with_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with open(f"{tmp_path}/my_gold.py", "w", encoding="utf-8") as file:  # noqa: PTH123 - a string is shorter here
        file.write(
            "def closeness(outputs, gold):\n"
            "    found = -float(abs(outputs - gold).mean())\n"
            "    outputs[:] = 0\n"
            "    return found\n"
            "def broken(outputs, gold):\n    raise ValueError('no such thing')\n"
            "def words(outputs, gold):\n    return 'much'\n"
            "number = 3\n"
        )

    found = _compared("my_gold:closeness:y,max_drop=1", _GOLD + 0.5, _GOLD, _GOLD).finish(seed=0)
    assert (found.reference, found.candidate, found.limit) == (0.0, -0.5, -1.0)
    check = judge_gold(found, min_rows=1)
    assert (check.name, str(check.status)) == ("gold_closeness", "pass")

    with pytest.raises(MeasurementError, match="the function raised ValueError: no such thing"):
        _compared("my_gold:broken:y", _GOLD, _GOLD, _GOLD).finish(seed=0)
    with pytest.raises(MeasurementError, match="the function returned a str, not a number"):
        _compared("my_gold:words:y", _GOLD, _GOLD, _GOLD).finish(seed=0)
    with pytest.raises(UsageError, match="'my_gold:number' is not a function"):
        GoldComparison(parse_gold_rule("my_gold:number:y"), None)
    with pytest.raises(UsageError, match="module 'my_gold' has no 'absent'"):
        GoldComparison(parse_gold_rule("my_gold:absent:y"), None)
