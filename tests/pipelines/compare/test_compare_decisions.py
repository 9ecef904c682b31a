"""Decisions, declared limits, repeats and rows on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome


def _scores(rows: int = 200) -> NDArray[np.float32]:
    return np.linspace(0, 5, rows, dtype=np.float32).reshape(rows, 1)


def _given(bench: Bench, actual: NDArray[np.generic], *options: str) -> Outcome:
    return bench.given({"logits": _scores(len(actual))}, {"logits": actual}, *options)


def test_no_mismatch_in_519_rows_is_reported_with_its_bound(bench: Bench) -> None:
    outcome = _given(bench, _scores(519), "--decision", "logits:threshold=3")

    found = outcome.result["decisions"]["logits"]
    assert (found["mismatches"], found["rule"]) == (0, "logits:threshold=3")
    assert found["mismatch_rate_upper_95"] == pytest.approx(0.0058, abs=5e-5)
    assert found["classes"] == {"0": 311, "1": 208}
    assert "< 0.58 %" in outcome.out
    assert outcome.check("decision_coverage")["words"][0]["values"] == {"positive": 208, "negative": 311}


@pytest.mark.parametrize(("rule", "positive"), [("threshold=3", 1), ("threshold=>=3", 3)])
def test_what_equals_the_threshold_is_positive_only_if_the_rule_says_so(bench: Bench, rule: str, positive: int) -> None:
    expected = np.array([[1.0], [3.0], [3.0], [5.0]], dtype=np.float32)

    outcome = bench.given({"logits": expected}, {"logits": expected * 1}, "--decision", f"logits:{rule}")

    assert outcome.result["decisions"]["logits"]["classes"]["1"] == positive


def test_a_side_with_few_rows_is_said_to_be_not_covered(bench: Bench) -> None:
    outcome = _given(bench, _scores(), "--decision", "logits:threshold=4.9")

    assert outcome.code == 0
    check = outcome.check("decision_coverage", "logits")
    assert check["status"] == "warning"
    assert [words["values"] for words in check["words"]] == [{"positive": 4, "negative": 196}, {"share": 0.05}]


def test_coverage_of_a_threshold_is_told_by_the_rule_and_not_by_the_name_of_the_output(bench: Bench) -> None:
    outcome = bench.given(
        {"argmax_score": _scores()}, {"argmax_score": _scores()}, "--decision", "argmax_score:threshold=3"
    )

    assert "positive" in outcome.check("decision_coverage")["detail"]


def test_a_flip_inside_the_band_passes_and_is_counted(bench: Bench) -> None:
    actual = _scores()
    row = int(np.argmin(np.abs(actual - 3)))
    edge = float(actual[row, 0])
    actual[row] += np.float32(0.005 if edge < 3 else -0.005)
    threshold = edge + (0.002 if edge < 3 else -0.002)

    outcome = _given(bench, actual, "--precision", "fp16", "--decision", f"logits:threshold={threshold}")

    found = outcome.result["decisions"]["logits"]
    assert outcome.code == 0
    assert (found["mismatches"], found["inside_band"], found["outside_band"]) == (1, 1, 0)
    assert found["examples"] == [str(row)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logits", "decision 'logits' is not of the form"),
        ("logits:", "decision rule '' of 'logits' is not known (allowed: threshold, argmax, top_k, multilabel)"),
        ("logits:argmx", "multilabel): did you mean 'argmax'?"),
        ("logits:mode", "decision rule 'mode' of 'logits' is not known"),
        ("logits:threshold", "decision threshold of 'logits' needs a finite number"),
        ("logits:threshold=nan", "decision threshold of 'logits' needs a finite number (seen: 'nan')"),
        ("logits:threshold>=3", "decision rule 'threshold>' of 'logits' is not known"),
        ("logits:multilabel=high", "decision multilabel of 'logits' needs a finite number (seen: 'high')"),
        ("logits:argmax=1", "decision argmax of 'logits' takes no value (seen: '1')"),
        ("logits:top_k=0", "decision top_k of 'logits' needs a whole number of at least 1 (seen: '0')"),
        ("logits:top_k=1.5", "decision top_k of 'logits' needs a whole number"),
        ("logits:top_k=3", "decision logits:top_k=3: the output has 1 class, so all of them are always chosen"),
        ("logits:argmax,axis=one", "has 'axis=one' (expected axis=N)"),
        ("logits:argmax,axis=0", "axis 0 is not a class axis of an output of rank 2"),
        ("logits:argmax,axis=2", "axis 2 is not a class axis of an output of rank 2"),
        ("prob:argmax", "is on an output that is not compared (compared: logits)"),
    ],
)
def test_a_decision_that_cannot_be_taken_is_wrong_usage(bench: Bench, text: str, message: str) -> None:
    outcome = _given(bench, _scores(), "--decision", text)

    assert outcome.code == 2
    assert message in outcome.err


def test_two_decisions_on_one_output_are_wrong_usage(bench: Bench) -> None:
    outcome = _given(bench, _scores(), "--decision", "logits:threshold=1", "--decision", "logits:threshold=3")

    assert outcome.code == 2
    assert outcome.message == "output 'logits' has 2 decisions (expected one)"


def test_a_decision_above_rank_2_must_name_the_axis_of_the_classes(bench: Bench) -> None:
    outputs = {"logits": bench.normal(8, 5, 3)}

    without = bench.given(outputs, {"logits": outputs["logits"] * 1}, "--decision", "logits:argmax")
    named = bench.given(outputs, {"logits": outputs["logits"] * 1}, "--decision", "logits:argmax,axis=2")

    assert without.code == 2
    assert "without the axis of the classes" in without.message
    assert (
        without.result["error"]["hint"] == "write axis: N beside the rule, or logits:argmax,axis=N, with N from 1 to 2"
    )
    assert named.code == 0


def test_above_rank_2_mismatches_count_elements_and_the_bound_counts_rows(bench: Bench) -> None:
    expected = bench.normal(40, 10, 3)
    actual = expected.copy()
    actual[7] = -actual[7]

    outcome = bench.given({"logits": expected}, {"logits": actual}, "--decision", "logits:argmax,axis=2")

    found = outcome.result["decisions"]["logits"]
    flips = int((expected[7].argmax(-1) != actual[7].argmax(-1)).sum())
    assert flips > 1
    assert (found["decisions"], found["mismatches"], found["rows_mismatched"]) == (400, flips, 1)
    assert (found["rows"], found["mismatch_rate_upper_95"]) == (40, pytest.approx(0.1129, abs=1e-3))


def test_integer_outputs_are_not_decided_on(bench: Bench) -> None:
    labels = {"label": np.arange(8).reshape(8, 1)}

    outcome = bench.given(labels, dict(labels), "--decision", "label:threshold=3")

    assert outcome.code == 2
    assert "is on an output of dtype int64, which is compared exactly" in outcome.message
    assert outcome.result["error"]["hint"].endswith(
        "for labels write argmax_of: {LABEL: SCORES}, or --argmax-of LABEL=SCORES"
    )


def _with_labels(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    return {"logits": logits, "label": labels}


def test_a_label_that_is_declared_the_argmax_may_differ_where_the_scores_are_tied(bench: Bench) -> None:
    logits = bench.normal(100, 4)
    logits[3] = [2, 2, 0, 0]
    first = logits.argmax(-1)
    last = first.copy()
    last[3] = 1

    undeclared = bench.given(_with_labels(logits, first), _with_labels(logits * 1, last))
    declared = bench.given(_with_labels(logits, first), _with_labels(logits * 1, last), "--argmax-of", "label=logits")

    assert (undeclared.code, undeclared.failed) == (1, {"exact"})
    assert declared.code == 0
    assert declared.result["decisions"]["label"]["inside_band"] == 1
    assert "label is declared the argmax of logits" in declared.result["notes"]


@pytest.mark.parametrize("wrong", [2, 7, -1])
def test_a_declared_label_that_the_scores_do_not_explain_fails(bench: Bench, wrong: int) -> None:
    logits = bench.normal(100, 4)
    logits[3] = [2, 2, 0, 0]
    labels = logits.argmax(-1)
    other = labels.copy()
    other[3] = wrong

    outcome = bench.given(_with_labels(logits, labels), _with_labels(logits * 1, other), "--argmax-of", "label=logits")

    assert (outcome.code, outcome.failed) == (1, {"decision_mismatches"})
    assert outcome.result["decisions"]["label"]["outside_band"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label=prob", "both must be outputs that are compared (logits, label)"),
        ("logits=label", "the first must be an integer output, the second a float one"),
        ("label", "--argmax-of 'label' is not of the form NAME=VALUE"),
    ],
)
def test_a_label_that_cannot_be_an_argmax_is_wrong_usage(bench: Bench, text: str, message: str) -> None:
    logits = bench.normal(8, 4)
    outputs = _with_labels(logits, logits.argmax(-1))

    outcome = bench.given(outputs, dict(outputs), "--argmax-of", text)

    assert outcome.code == 2
    assert message in outcome.err


def test_a_label_may_keep_the_axis_of_the_classes(bench: Bench) -> None:
    logits = bench.normal(100, 4)
    logits[3] = [2, 2, 0, 0]
    labels = logits.argmax(-1)[:, None]
    tied, wrong = labels.copy(), labels.copy()
    tied[3], wrong[3] = 1, 2

    outcomes = [
        bench.given(_with_labels(logits, labels), _with_labels(logits * 1, other), "--argmax-of", "label=logits")
        for other in (tied, wrong)
    ]

    assert [outcome.code for outcome in outcomes] == [0, 1]


def test_a_label_of_another_shape_than_its_scores_is_wrong_usage(bench: Bench) -> None:
    logits = bench.normal(8, 4)
    outputs = _with_labels(logits, logits.argmax(-1).repeat(5).reshape(8, 5))

    outcome = bench.given(outputs, dict(outputs), "--argmax-of", "label=logits")

    assert outcome.code == 2
    assert "[8, 5] beside [8, 4]" in " ".join(outcome.err.split())


def test_a_list_that_holds_an_id_twice_is_no_list_of_the_best(bench: Bench) -> None:
    logits = bench.normal(8, 4)
    outputs = _with_labels(logits, logits.argmax(-1).repeat(2).reshape(8, 2))

    assert bench.given(outputs, dict(outputs), "--argmax-of", "label=logits").code == 2


def test_a_label_that_is_not_the_argmax_in_the_reference_is_wrong_usage(bench: Bench) -> None:
    logits = bench.normal(100, 4)
    labels = logits.argmax(-1)
    labels[17] = logits[17].argmin()
    # Towards the largest score, which would excuse any label that the reference never gave.
    other = logits.argmax(-1)

    outcome = bench.given(_with_labels(logits, labels), _with_labels(logits * 1, other), "--argmax-of", "label=logits")

    assert outcome.code == 2
    assert "the reference's own argmax differs" in " ".join(outcome.err.split())


def test_a_rate_that_so_few_rows_cannot_show_is_inconclusive(bench: Bench) -> None:
    options = ("--decision", "logits:threshold=3", "--tolerance", "mismatch_rate_upper_95=0.01")

    few, enough = _given(bench, _scores(298), *options), _given(bench, _scores(299), *options)

    assert (few.code, few.result["verdict"]) == (3, "inconclusive")
    assert few.check("mismatch_rate_upper_95")["words"][-1]["values"] == {"rows": 298, "needed": 299}
    assert enough.code == 0


def test_a_rate_that_was_exceeded_fails_where_the_rows_were_enough(bench: Bench) -> None:
    actual = _scores(400)
    row = int(np.argmin(np.abs(actual - 3)))
    threshold = float(actual[row, 0]) + 0.002
    actual[row] += np.float32(0.005)

    outcome = _given(
        bench,
        actual,
        *("--precision", "fp16", "--decision", f"logits:threshold={threshold}"),
        *("--tolerance", "mismatch_rate_upper_95=0.01"),
    )

    assert (outcome.code, outcome.failed) == (1, {"mismatch_rate_upper_95"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_abs_diff=-1", "tolerance max_abs_diff=-1.0 is not a finite number of at least 0"),
        ("max_abs_diff=inf", "tolerance max_abs_diff=inf is not a finite number of at least 0"),
        ("max_abs_diff=nan", "tolerance max_abs_diff=nan is not a finite number of at least 0"),
        ("max_abs_diff=much", "'much' is not a number"),
        ("decision_mismatches=0.5", "tolerance decision_mismatches=0.5 is not a whole number"),
        ("max_abs_diff", "--tolerance 'max_abs_diff' is not of the form NAME=VALUE"),
    ],
)
def test_a_limit_that_is_none_is_wrong_usage(bench: Bench, text: str, message: str) -> None:
    outcome = _given(bench, _scores(), "--decision", "logits:threshold=3", "--tolerance", text)

    assert outcome.code == 2
    assert message in outcome.err


def test_a_limit_given_twice_is_wrong_usage(bench: Bench) -> None:
    outcome = _given(bench, _scores(), "--tolerance", "max_abs_diff=1", "--tolerance", "max_abs_diff=2")

    assert outcome.code == 2
    assert "--tolerance names 'max_abs_diff' twice" in outcome.err


def test_an_unknown_precision_is_wrong_usage(bench: Bench) -> None:
    outcome = _given(bench, _scores(), "--precision", "fp8")

    assert outcome.code == 2
    assert "precision 'fp8' is not known (allowed: fp32, fp16, tf32, bf16, int8, mixed)" in outcome.err


def test_a_looser_limit_is_recorded_as_such(bench: Bench) -> None:
    outcome = _given(bench, _scores() + np.float32(0.5), *_LOOSE)

    assert outcome.code == 0
    assert outcome.result["looser_than_default"] == ["max_abs_diff", "mean_abs_diff", "max_row_rel_diff"]


_LOOSE = tuple(f"--tolerance={name}=1" for name in ("max_abs_diff", "mean_abs_diff", "max_row_rel_diff"))


def test_a_declared_limit_holds_as_written_whatever_the_scale(bench: Bench) -> None:
    expected = _scores() * np.float32(1000)

    outcome = bench.given(
        {"logits": expected}, {"logits": expected + np.float32(0.01)}, "--tolerance", "max_abs_diff=0.001"
    )

    assert (outcome.code, outcome.failed) == (1, {"max_abs_diff"})
    assert outcome.result["outputs"]["logits"]["limits"]["max_abs_diff"] == {"lowest": 0.001, "highest": 0.001}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logits=0", "axis 0 of output 'logits' is not a channel axis"),
        ("logits=2", "axis 2 of output 'logits' is not a channel axis"),
        ("prob=1", "a channel axis is declared for output 'prob', which is missing (there are: logits)"),
        ("logits=1.5", "--axis 'logits=1.5': '1.5' is not a whole number"),
    ],
)
def test_a_channel_axis_that_is_not_there_is_wrong_usage(bench: Bench, text: str, message: str) -> None:
    outcome = _given(bench, _scores(), "--axis", text)

    assert outcome.code == 2, outcome.err
    assert message in outcome.err


def _drifting(bench: Bench, name: str, step: float) -> str:
    # Answers otherwise every time it is asked: what a session with a stale buffer looks like from outside.
    nodes = [
        helper.make_node("RandomUniform", [], ["noise"], shape=[1], high=step, low=0.0),
        helper.make_node("Add", ["x", "noise"], ["logits"]),
    ]
    return bench.model(name, nodes, inputs={"x": ("float", ["batch", 4])}, outputs={"logits": ("float", ["batch", 4])})


def test_a_candidate_that_answers_otherwise_in_a_later_pass_fails(bench: Bench) -> None:
    reference = _drifting(bench, "a", 0.0)
    # Within the limits of a single pass, beyond those between two passes.
    options = ("--samples", bench.samples(64), "--tolerance", "repeat_max_abs_diff=1e-7", "--probes", "none")
    candidate = _drifting(bench, "b", 2e-5)

    once = bench.compare(reference, candidate, *options)
    thrice = bench.compare(reference, candidate, *options, "--repeat", "3")

    assert once.code == 0
    assert (thrice.code, thrice.failed) == (1, {"repeat_max_abs_diff"})
    assert "3 passes differ by" in thrice.check("repeat_max_abs_diff", "logits")["detail"]


def test_repeats_do_not_multiply_rows_values_or_mismatches(bench: Bench) -> None:
    labels = np.arange(20)
    wrong = labels.copy()
    wrong[4] = 0
    expected: dict[str, NDArray[np.generic]] = {"logits": _scores(20), "label": labels}
    actual: dict[str, NDArray[np.generic]] = {"logits": _scores(20) + np.float32(1e-6), "label": wrong}

    once = bench.given(expected, actual, "--decision", "logits:threshold=3")
    thrice = bench.given(expected, actual, "--decision", "logits:threshold=3", "--repeat", "3")

    assert (once.result["rows"], thrice.result["rows"]) == (20, 20)
    assert thrice.result["decisions"] == once.result["decisions"]
    assert thrice.check("exact", "label")["measured"] == 1
    for name, output in once.result["outputs"].items():
        for field in ("rows", "values", "compared", "mismatches"):
            assert thrice.result["outputs"][name][field] == output[field], (name, field)


def test_repeats_never_loosen_the_maximum(bench: Bench) -> None:
    # Above a million values ten times the limit is allowed; the same values seen again are no more values.
    expected = bench.normal(400, 1000)
    actual = expected.copy()
    actual[11, 500] += np.float32(5e-4)

    once = bench.given({"logits": expected}, {"logits": actual}, "--batch-size", "400")
    thrice = bench.given({"logits": expected}, {"logits": actual}, "--batch-size", "400", "--repeat", "3")

    assert (once.failed, thrice.failed) == ({"max_abs_diff"}, {"max_abs_diff"})


@pytest.mark.parametrize(("error", "code"), [(5e-4, 0), (5e-3, 1)])
def test_above_a_million_values_one_may_exceed_the_limit_up_to_ten_times(bench: Bench, error: float, code: int) -> None:
    expected = bench.normal(1001, 1000)
    actual = expected.copy()
    actual[11, 500] += np.float32(error)

    outcome = bench.given({"logits": expected}, {"logits": actual}, "--batch-size", "500")

    assert outcome.code == code
    assert outcome.status("p9999_abs_diff", "logits") == "pass"


def test_above_a_million_values_more_than_one_in_ten_thousand_may_not(bench: Bench) -> None:
    expected = bench.normal(1001, 1000)
    actual = expected.copy()
    actual[:, 500] += np.float32(5e-4)

    outcome = bench.given({"logits": expected}, {"logits": actual})

    assert (outcome.code, outcome.status("p9999_abs_diff", "logits")) == (1, "fail")
    assert "times the limit" in outcome.check("p9999_abs_diff", "logits")["detail"]


@pytest.mark.parametrize(
    "options",
    [("--repeat", "0"), ("--min-rows", "0"), ("--batch-size", "0"), ("--time-limit", "0"), ("--non-finite", "ignore")],
)
def test_an_option_out_of_range_is_wrong_usage(bench: Bench, options: tuple[str, str]) -> None:
    outcome = _given(bench, _scores(), *options)

    assert outcome.code == 2
    assert options[0] in outcome.err


def test_the_precision_found_is_said_where_it_is_not_the_one_declared(bench: Bench) -> None:
    weight = bench.normal(256, 64)
    rounded = weight.astype(np.float16).astype(np.float32)
    sides = bench.linear("a", weight=weight), bench.linear("b", weight=rounded)

    outcome = bench.compare(*sides, "--samples", bench.samples(8, width=256))

    assert outcome.result["candidate"]["precision_found"] == "fp16"
    assert "the precision found in the candidate is fp16, judged as fp32" in outcome.result["notes"]
    assert "note: the precision found in the candidate is fp16, judged as fp32" in outcome.out


def test_only_of_an_output_that_is_compared_exactly_the_values_that_differ_are_counted(bench: Bench) -> None:
    logits, label = bench.normal(32, 3), np.arange(32)
    other = np.where(label < 2, label + 1, label)

    outcome = bench.given({"logits": logits, "label": label}, {"logits": logits + np.float32(1), "label": other})

    outputs = outcome.result["outputs"]
    assert (outputs["logits"]["mismatches"], outputs["label"]["mismatches"]) == (None, 2)
