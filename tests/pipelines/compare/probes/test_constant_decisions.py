"""Decisions that never varied: below FP32 they show nothing, unless the spec or the command line says why not."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.pipelines.spec.parts import DecisionPart
from paritygate.precision import Precision
from paritygate.validate.measure.decisions import Decision, Rule, parse_decision, with_constants
from paritygate.validate.measure.flips import DecisionState, decide, finish_decisions, update_decisions
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.words.sentence import render

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Desk, Outcome

_WHY = "the samples are of one class on purpose, all=positive"


def _scores() -> NDArray[np.float32]:
    """Return scores of three classes, 0.6 to 4, of which the second is always the largest and the third the least."""
    low = np.linspace(1, 2, 200, dtype=np.float32)
    return np.stack([low, low + 2, low - np.float32(0.4)], axis=1)


def _judged(bench: Bench, precision: str, rule: str, *options: str) -> Outcome:
    arrays = {"logits": _scores()}
    return bench.given(arrays, arrays, "--precision", precision, "--decision", f"logits:{rule}", *options)


@pytest.mark.parametrize("precision", ["tf32", "fp16", "mixed", "bf16", "int8"])
@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ("threshold=0.5", "positive"),
        ("threshold=9", "negative"),
        ("multilabel=0.5", "positive"),
        ("argmax", "class 1"),
        ("top_k=1", "class 1"),
        ("top_k=2", "classes 0, 1"),
    ],
)
def test_below_fp32_a_decision_that_never_varied_is_inconclusive(
    bench: Bench, precision: str, rule: str, answer: str
) -> None:
    outcome = _judged(bench, precision, rule)

    assert (outcome.code, outcome.result["verdict"]) == (3, "inconclusive")
    check = outcome.check("decision_coverage", "logits")
    words = check["words"][-1]["values"]
    assert (check["status"], words["precision"], render(words["answer"])) == ("inconclusive", precision, answer)
    assert check["detail"].endswith("decisions.logits.constant: REASON, or --constant-decision logits=REASON")
    assert "inconclusive: decision_coverage[logits]: " in outcome.out


@pytest.mark.parametrize("rule", ["threshold=0.5", "argmax", "top_k=2"])
def test_at_fp32_it_is_a_warning_as_before(bench: Bench, rule: str) -> None:
    outcome = _judged(bench, "fp32", rule)

    assert (outcome.code, outcome.check("decision_coverage", "logits")["status"]) == (0, "warning")


@pytest.mark.parametrize("rule", ["threshold=2", "multilabel=2.5"])
def test_below_fp32_a_decision_that_varied_passes(bench: Bench, rule: str) -> None:
    outcome = _judged(bench, "fp16", rule)

    assert (outcome.code, outcome.check("decision_coverage", "logits")["status"]) == (0, "pass")


def test_a_constant_decision_that_is_declared_passes_and_the_reason_is_recorded(bench: Bench) -> None:
    outcome = _judged(bench, "fp16", "argmax", "--constant-decision", f"logits={_WHY}")

    assert outcome.code == 0
    check = outcome.check("decision_coverage", "logits")
    assert check["status"] == "pass"
    assert [words["values"] for words in check["words"]] == [{"count": 1}, {"declared": _WHY}]
    assert outcome.result["decisions"]["logits"]["constant"] == _WHY
    assert f"constant decision: logits: {_WHY}" in outcome.out


def test_a_declared_constant_that_is_none_is_said(bench: Bench) -> None:
    outcome = _judged(bench, "fp16", "threshold=2", "--constant-decision", f"logits={_WHY}")

    check = outcome.check("decision_coverage", "logits")
    assert (outcome.code, check["status"]) == (0, "warning")
    assert check["words"][-1]["key"] == "coverage.not_constant"


def test_a_difference_still_fails_where_the_decision_never_varied(bench: Bench) -> None:
    arrays = {"logits": _scores()}

    outcome = bench.given(
        arrays, {"logits": _scores() + 1}, "--precision", "fp16", "--decision", "logits:argmax"
    )  # fmt: skip

    assert outcome.code == 1


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "logits",
            "--constant-decision 'logits' is not of the form OUTPUT=REASON",
            "give the reason: --constant-decision logits='all rows are of one class'",
        ),
        (
            "scores=so it is",
            "the decision on 'scores' is declared constant, but no such decision exists (decisions: logits:argmax)",
            "declare the decision: --decision scores:threshold=V",
        ),
    ],
)
def test_a_reason_that_is_none_is_wrong_usage(bench: Bench, text: str, message: str, hint: str) -> None:
    outcome = _judged(bench, "fp16", "argmax", "--constant-decision", text)

    assert outcome.code == 2
    assert message in outcome.err
    assert f"hint: {hint}" in outcome.err


def test_a_reason_in_the_spec_is_not_empty() -> None:
    assert DecisionPart(argmax=True, constant="so it is").constant == "so it is"
    for empty in ("", "  "):
        with pytest.raises(ValueError, match="constant"):
            DecisionPart(argmax=True, constant=empty)


def test_a_decision_with_a_reason_is_read_back_as_it_was() -> None:
    (decision,) = with_constants([parse_decision("a:b:top_k=2,axis=1")], {"a:b": _WHY})

    assert decision == Decision(output="a:b", rule=Rule.TOP_K, k=2, axis=1, constant=_WHY)
    assert from_data(Decision, json.loads(json.dumps(to_data(decision)))) == decision
    with pytest.raises(UsageError, match=r"\(decisions: none\)"):
        with_constants([], {"a": _WHY})


@pytest.mark.parametrize(("last", "is_constant"), [([3.0, 2.0, 1.0, 0.0], True), ([3.0, 0.0, 1.0, 2.0], False)])
def test_a_set_varies_where_any_member_does_though_the_largest_stays(last: list[float], *, is_constant: bool) -> None:
    rows = np.array([[3.0, 2.0, 1.0, 0.0], [2.5, 3.0, 1.0, 0.0], last], dtype=np.float32)
    rows[1] = rows[0]
    decision = parse_decision("y:top_k=2")
    profile = profile_outputs("y", [(rows, 3)], axis=None, dtype="float32")
    limits = limits_for(DEFAULT_TOLERANCES[Precision.FP16], profile)

    state = update_decisions(DecisionState(), decide(decision, rows, rows, limits), first_row=0, ids=["a", "b", "c"])

    assert finish_decisions(state, decision).is_constant is is_constant


def test_where_no_row_was_seen_nothing_is_constant() -> None:
    assert not finish_decisions(DecisionState(), parse_decision("y:argmax")).is_constant


def test_a_reason_in_the_spec_is_on_record_to_the_release(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    targets: dict[str, Any] = {"targets": ["onnx-fp16"]}
    desk.spec("refused.yaml", decisions={"logits": {"threshold": 1000}}, promote={"fallback": "none"}, **targets)
    desk.spec(decisions={"logits": {"threshold": 1000, "constant": _WHY}}, **targets)

    refused = desk.call("run", "--verbose", "refused.yaml")
    called = desk.call("run", "--verbose", "spec.yaml")

    assert (refused.code, called.code) == (3, 0), (refused, called)
    assert re.search(r"\b0 positive and 360 negative\b", refused.out)
    run = desk.runs[-1]
    (entry,) = json.loads((run / "evidence.json").read_text(encoding="utf-8"))["variants"]
    assert entry["result"]["decisions"]["logits"]["constant"] == _WHY
    for name in ("report.md", "report.html"):
        text = (run / name).read_text(encoding="utf-8")
        assert f"the decision on logits is the same for all rows: {_WHY}" in text
    manifest = desk.folder / "artifacts/repository/store/tiny/1/manifest.json"
    provenance = json.loads(manifest.read_text(encoding="utf-8"))["provenance"]
    assert provenance["constant_decisions"] == {"logits": _WHY}
