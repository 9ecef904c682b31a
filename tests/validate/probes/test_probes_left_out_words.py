"""What is left out of a probe is counted by why, what does not apply says what is missing, and a fault is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.precision import Precision
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Status
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.inputs.roles import DeclaredRole
from paritygate.validate.probes.probe_budget import Allowance, SamplesCost
from paritygate.validate.probes.recording import ProbeRecord
from paritygate.validate.probes.run import ProbeOutcome, ProbeQuestion, run_probes
from paritygate.validate.probes.skip_reasons import DropKind, Dropped, Drops, drop_words

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import Asked, ProbeDesk

    Samples = list[dict[str, NDArray[Any]]]

_RANDOM = np.random.default_rng(3)
_TABLE = _RANDOM.normal(size=(100, 4)).astype(np.float32)
_LOOKUP = "(int64[B, S] x) => (float[B, 4] y) { r = Gather(t, k) y = ReduceMean<axes = [1], keepdims = 0>(r) }"
_PLAIN = "(float[B, 3] x) => (float[B, 3] y) { y = Tanh(x) }"
# Far from zero next to nothing is divided by next to nothing; where both are the same, by zero.
_UNSTEADY = "(float[B, 4] x) => (float[B, 4] y) { m = ReduceMean<axes=[1], keepdims=1>(x) d = Sub(x, m) y = Mul(d, w) }"
_SIZED = """(float[3] x) => (float[3] y) {
  m = ReduceMax<keepdims=0>(x) r = Range(zero, m, one) s = ReduceSum(r) y = Mul(x, s)
}"""
_ORDERED = "(int64[B] low, int64[B] high) => (float[B] y) { d = Sub(high, low) f = Cast<to = 1>(d) y = Tanh(f) }"


def _normal(*shape: int) -> NDArray[np.float32]:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _positive(size: int) -> NDArray[np.float32]:
    return _RANDOM.uniform(1, 9, size=size).astype(np.float32)


def _spent() -> Allowance:
    """Return what is allowed beside 16 rows of three values that take a second each, once a minute is over."""
    clock = iter([0.0, *[600.0] * 1000])
    return Allowance(SamplesCost(rows=16, values=48, seconds=16.0), clock=lambda: next(clock))


def _only(asked: Asked) -> ProbeRecord:
    (probe,) = asked.probes.probes
    return probe


def _outcome(desk: ProbeDesk, asked: Asked, candidate: onnx.ModelProto) -> ProbeOutcome:
    (outcome,) = desk.answer(asked, candidate).outcomes
    return outcome


def _case(desk: ProbeDesk, kind: DropKind) -> tuple[onnx.ModelProto, Samples, str]:
    ids: Samples = [{"x": _RANDOM.integers(0, 20, size=(4, 6))} for _ in range(4)]
    if kind is DropKind.NOT_ANSWERED:
        return desk.model(_LOOKUP.replace("k)", "x)"), {"t": _TABLE}), ids, "ids"
    if kind is DropKind.UNSTEADY:
        return desk.model(_UNSTEADY, {"w": np.float32(3e4)}), [{"x": 1e-4 * _normal(4, 4)} for _ in range(3)], "values"
    if kind is DropKind.SENSELESS:
        lows = [_RANDOM.integers(-50, 50, size=6) for _ in range(8)]
        samples = [{"low": low, "high": low + _RANDOM.integers(1, 9, size=6)} for low in lows]
        return desk.model(_ORDERED, {}), samples, "sensitivity"
    if kind is DropKind.SIZE:
        return desk.model(_SIZED, {"zero": np.float32(0), "one": np.float32(1)}), [{"x": _positive(3)}] * 4, "values"
    return desk.model(_PLAIN, {}), [{"x": _normal(4, 3)} for _ in range(4)], "values"


@pytest.mark.parametrize("kind", list(DropKind))
def test_each_kind_is_counted_and_worded_apart(desk: ProbeDesk, kind: DropKind) -> None:
    model, samples, name = _case(desk, kind)
    declared = {"x": DeclaredRole(nan=False)} if kind is DropKind.NEVER_OCCURS else None
    max_rows = 4 if kind is DropKind.NO_ROWS_LEFT else 512
    allowance = _spent() if kind is DropKind.NO_TIME_LEFT else None
    asked = desk.ask(model, samples, names=[name], max_rows=max_rows, declared=declared, allowance=allowance)

    probe = _only(asked)
    outcome = _outcome(desk, asked, model)

    (words,) = drop_words({kind: probe.dropped_counts[kind]}, rows=probe.allowed_rows)
    assert kind in {item.kind for item in probe.dropped}
    assert outcome.dropped == probe.dropped_counts
    assert words in outcome.detail
    assert {other for other in DropKind if drop_words({other: 1})[0].split(" ", 2)[2] in outcome.detail} == {
        other for other in probe.dropped_counts if other is not DropKind.NO_ROWS_LEFT
    }


def test_what_was_cut_for_want_of_rows_or_seconds_is_a_warning_and_nothing_else_is(desk: ProbeDesk) -> None:
    statuses = {}
    for kind in list(DropKind):
        model, samples, name = _case(desk, kind)
        allowance = _spent() if kind is DropKind.NO_TIME_LEFT else None
        max_rows = 4 if kind is DropKind.NO_ROWS_LEFT else 512
        asked = desk.ask(model, samples, names=[name], max_rows=max_rows, allowance=allowance)
        outcome = _outcome(desk, asked, model)
        statuses[kind] = outcome.status if outcome.batches else None

    assert statuses.pop(DropKind.NO_ROWS_LEFT) is Status.WARNING
    assert statuses.pop(DropKind.NO_TIME_LEFT) is Status.WARNING
    assert set(statuses.values()) <= {Status.PASS, None}
    assert Status.PASS in statuses.values()


def test_a_probe_that_was_cut_and_is_failed_fails(desk: ProbeDesk) -> None:
    asked = desk.ask(desk.model(_PLAIN, {}), [{"x": _normal(4, 3)} for _ in range(4)], names=["values"], max_rows=4)
    other = desk.model(_PLAIN.replace("Tanh", "Sigmoid"), {})

    outcome = _outcome(desk, asked, other)

    assert outcome.status is Status.FAIL
    assert "beyond the 32 rows that a probe may use" in outcome.detail


def test_what_is_senseless_takes_no_rows_from_the_rest(desk: ProbeDesk) -> None:
    model, samples, name = _case(desk, DropKind.SENSELESS)
    probe = _only(desk.ask(model, samples, names=[name], max_rows=512))

    assert probe.dropped_counts == {DropKind.SENSELESS: len(probe.dropped)}
    assert probe.asked_rows == probe.rows


def test_all_are_counted_and_the_first_of_each_kind_are_named() -> None:
    drops = Drops()
    for at in range(120):
        drops.add(Dropped(about=str(at), kind=DropKind.NO_ROWS_LEFT, reason="no rows"))
    drops.add(Dropped(about="the other", kind=DropKind.SENSELESS, reason="an order"))

    assert drops.counts == {DropKind.SENSELESS: 1, DropKind.NO_ROWS_LEFT: 120}
    assert [item.about for item in drops.named] == [*map(str, range(50)), "the other"]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("shapes", "no dim but that of the rows has another size"),
        ("masks", "no input with rows is a mask of positions, a length, or an id with an id for padding"),
        ("ids", "no input with rows is an id, or is looked up in a table"),
    ],
)
def test_what_does_not_apply_says_what_is_missing(desk: ProbeDesk, name: str, missing: str) -> None:
    model = desk.model(_PLAIN, {})
    outcome = _outcome(desk, desk.ask(model, [{"x": _normal(4, 3)}], names=[name]), model)

    assert (outcome.words[0].values, outcome.is_check) == ({"lacks": missing}, False)


def test_values_of_a_model_of_ids_alone_do_not_apply(desk: ProbeDesk) -> None:
    model, samples, _ = _case(desk, DropKind.NOT_ANSWERED)
    outcome = _outcome(desk, desk.ask(model, samples, names=["values"]), model)

    assert (outcome.words[0].key, outcome.batches) == ("probe.does_not_apply", 0)


def test_one_row_alone_has_no_other_to_be_exchanged_with(desk: ProbeDesk) -> None:
    model = desk.model(_PLAIN, {})
    outcome = _outcome(desk, desk.ask(model, [{"x": _normal(1, 3)}], names=["sensitivity"]), model)

    assert (outcome.words[0].key, outcome.batches) == ("probe.does_not_apply", 0)


def test_every_probe_says_what_is_missing_where_it_does_not_apply() -> None:
    assert all(kind.missing for kind in PROBES.values())


_FAULTY = """
import numpy as np
from paritygate.validate.probes.derive.sensitivity import derive as right

def derive(context):
    for number, batch in enumerate(right(context)):
        if number == {after}:
            np.zeros(3)[7]
        yield batch
"""


@pytest.mark.parametrize("after", [0, 1])
def test_a_probe_that_raises_is_an_error_of_that_probe_alone(
    desk: ProbeDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], after: int
) -> None:
    (tmp_path / f"faulty_probe_{after}.py").write_text(_FAULTY.format(after=after), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    faulty = replace(PROBES["sensitivity"], module=f"faulty_probe_{after}")
    monkeypatch.setitem(PROBES, "sensitivity", faulty)  # type: ignore[arg-type]  # the table is a dictionary
    model = desk.model("(float[B, 3] x, float[B, 3] z) => (float[B, 3] y) { y = Sub(x, z) }", {})
    asked = desk.ask(model, [{"x": _normal(4, 3), "z": _normal(4, 3)}], names=["batches", "sensitivity"])

    batches, sensitivity = desk.answer(asked, model).outcomes

    assert batches.status is Status.PASS
    assert (sensitivity.status, sensitivity.batches, sensitivity.is_check) == (Status.ERROR, after, True)
    assert "probe.itself" in {words.key for words in sensitivity.words}
    assert "IndexError" in sensitivity.detail
    assert "index 7 is out of bounds" in sensitivity.detail
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    wrong = desk.model("(float[B, 3] x, float[B, 3] z) => (float[B, 3] y) { y = Add(x, z) }", {})
    failed = desk.answer(asked, wrong).outcomes[1]
    assert failed.status is (Status.FAIL if after else Status.ERROR)
    assert "IndexError" in failed.detail


def test_what_goes_wrong_while_judging_is_an_error_of_that_probe(desk: ProbeDesk) -> None:
    model = desk.model(_PLAIN, {})
    asked = desk.ask(model, [{"x": _normal(4, 3)} for _ in range(4)], names=["batches", "values"])

    def unfit(inputs: dict[str, NDArray[np.generic]]) -> str:
        return "" if np.isfinite(inputs["x"]).all() else {}["no such key"]

    question = ProbeQuestion(
        rules=GateRules(tolerance=parse_tolerance(Precision.FP32, {})), outputs=("y",), unfit=unfit
    )
    batches, values = run_probes(ModelCandidate(desk.runner(model)), asked.probes, question)

    assert batches.status is Status.PASS
    assert values.status is Status.ERROR
    assert "while the candidate ran, KeyError" in values.detail
    assert values.rows > 0
