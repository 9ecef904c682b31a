"""A row that is unlike every sample may be answered otherwise: that is a finding. What lies beside it has to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.validate.measure.check import Status
from paritygate.validate.probes.inputs.edge import OutOfSampleKind
from paritygate.validate.probes.inputs.probe import ProbeBatch
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role
from paritygate.validate.probes.out_of_sample import edges_of
from paritygate.validate.probes.recording import ProbesRecording

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import Answered, ProbeDesk

    from paritygate.validate.probes.run import ProbeOutcome

_RANDOM = np.random.default_rng(3)
_WEIGHTS = {
    "table": _RANDOM.normal(size=(50, 4)).astype(np.float32),
    "one": np.array([1]),
    "two": np.array([2]),
    "onef": np.float32(1),
    "zerof": np.float32(0),
    "nan": np.float32(np.nan),
}
# The mean over what the mask covers; of nothing it is zero.
_POOLED = """(int64[B, S] ids, int64[B, S] {mask}) => (float[B, 4] logits{more}) {{
  emb = Gather(table, ids)
  m = Cast<to=1>({mask})
  m3 = Unsqueeze(m, two)
  kept = Mul(emb, m3)
  total = ReduceSum<keepdims=0>(kept, one)
  count = ReduceSum<keepdims=1>(m, one)
  safe = Max(count, onef)
  pooled = Div(total, safe)
  {end}
}}"""
_RIGHT = "logits = Identity(pooled)"
# Of nothing, the mean of all instead: as a Softmax over masked scores answers it.
_MEAN_OF_NOTHING = """plain = ReduceMean<axes=[1], keepdims=0>(emb)
  none = Less(count, onef)
  logits = Where(none, plain, pooled)"""
_NAN_OF_NOTHING = """none = Less(count, onef)
  logits = Where(none, nan, pooled)"""
# The same, and an empty row changes the rows of the same call.
_LEAKS = """none = Less(count, onef)
  nonef = Cast<to=1>(none)
  any = ReduceMax<keepdims=0>(nonef)
  logits = Add(pooled, any)"""
_IGNORES = "logits = ReduceMean<axes=[1], keepdims=0>(emb)"


def _samples(*, has_empty: bool = False, mask: str = "attention_mask") -> list[dict[str, NDArray[Any]]]:
    found = []
    for at in range(12):
        ids = _RANDOM.integers(1, 50, size=(4, 6))
        length = _RANDOM.integers(2, 7, size=(4, 1))
        if has_empty and at == 0:
            length[1] = 0
        covered = (np.arange(6) < length).astype(np.int64)
        found.append({"ids": ids * covered, mask: covered})
    return found


def _answer(desk: ProbeDesk, end: str, *, has_empty: bool = False) -> Answered:
    right, candidate = (desk.model(_POOLED.format(end=one, mask="attention_mask", more=""), _WEIGHTS)
                        for one in (_RIGHT, end))  # fmt: skip
    return desk.answer(desk.ask(right, _samples(has_empty=has_empty), names=["masks"]), candidate, edge="warn")


def _outcome(answered: Answered) -> ProbeOutcome:
    (outcome,) = answered.outcomes
    return outcome


@pytest.mark.parametrize("end", [_MEAN_OF_NOTHING, _NAN_OF_NOTHING], ids=["mean", "NaN"])
def test_an_empty_mask_row_that_no_sample_has_is_a_finding(desk: ProbeDesk, end: str) -> None:
    outcome = _outcome(_answer(desk, end))

    assert (outcome.status, outcome.failed) == (Status.EDGE, 0)
    assert outcome.found == {"an empty row of attention_mask": 2}
    (finding,) = outcome.findings
    assert finding.about == "an empty row alone (attention_mask)"
    assert outcome.detail.startswith("an empty row of attention_mask, ")
    assert f" at {finding.about}, and 1 more batch: {finding.check}: {finding.detail}; " in outcome.detail
    assert (outcome.words[-1].key, outcome.words[-1].values["rows"]) == ("probe.rest", outcome.rows)


def test_an_empty_mask_row_that_a_sample_has_is_a_failure(desk: ProbeDesk) -> None:
    outcome = _outcome(_answer(desk, _MEAN_OF_NOTHING, has_empty=True))

    assert (outcome.status, outcome.findings) == (Status.FAIL, ())


def test_what_an_empty_row_changes_in_the_rows_beside_it_is_a_failure(desk: ProbeDesk) -> None:
    outcome = _outcome(_answer(desk, _LEAKS))

    assert outcome.status is Status.FAIL
    failure = outcome.failures[-1]
    assert failure.about == "an empty row beside a full one (attention_mask)"
    assert all("empty row" in other.about or "different padding" in other.about for other in outcome.failures)
    # The full row is the first, the empty one the last.
    assert f"masks/{failure.batch}/0" in failure.detail


def test_a_mask_that_is_ignored_is_a_failure_all_the_same(desk: ProbeDesk) -> None:
    outcome = _outcome(_answer(desk, _IGNORES))

    assert outcome.status is Status.FAIL
    assert all(not failure.edge for failure in outcome.failures)
    assert outcome.findings


def test_a_shape_that_differs_at_an_empty_row_is_a_failure(desk: ProbeDesk) -> None:
    # Rows that are empty are left out of the answer.
    end = """size = Shape(pooled)
  flat = Greater(count, zerof)
  flags = Squeeze(flat, one)
  logits = Compress<axis=0>(pooled, flags)"""

    outcome = _outcome(_answer(desk, end))

    assert outcome.status is Status.FAIL
    assert "an empty row alone" in outcome.detail


@pytest.mark.parametrize("declared", [True, False])
def test_only_a_mask_has_empty_rows(desk: ProbeDesk, *, declared: bool) -> None:
    model = desk.model(_POOLED.format(end=_RIGHT, mask="chosen", more=""), _WEIGHTS)
    said = {"chosen": DeclaredRole(role=Role.MASK if declared else Role.NUMBER)}
    asked = desk.ask(model, _samples(mask="chosen"), declared=said, names=[])
    ids, chosen = np.ones((2, 6), dtype=np.int64), np.array([[1, 1, 0, 0, 0, 0], [0] * 6])

    found = edges_of(asked.context, ProbeBatch(inputs={"ids": ids, "chosen": chosen}, rows=2, about=""))

    empty = [(str(edge), edge.rows) for edge in found if edge.kind is OutOfSampleKind.EMPTY_MASK]
    assert empty == ([("an empty row of chosen", (1,))] if declared else [])


def test_an_output_without_rows_hangs_on_the_empty_one(desk: ProbeDesk) -> None:
    more = ", float[4] whole"
    right, other = (f"{end}\n  whole = ReduceMean<axes=[0], keepdims=0>(logits)" for end in (_RIGHT, _MEAN_OF_NOTHING))
    texts = [_POOLED.format(end=end, mask="attention_mask", more=more) for end in (right, other)]
    samples = [{name: array[:3] for name, array in batch.items()} for batch in _samples()]
    asked = desk.ask(desk.model(texts[0], _WEIGHTS), samples, names=["masks"])

    outcome = _outcome(desk.answer(asked, desk.model(texts[1], _WEIGHTS), edge="warn"))

    assert (outcome.status, outcome.failed) == (Status.EDGE, 0)


@pytest.mark.parametrize(
    ("end", "expected"),
    [(_MEAN_OF_NOTHING, Status.EDGE), (_IGNORES, Status.FAIL), (f"{_RIGHT}\n  off = Identity(onef)", Status.FAIL)],
    ids=["an empty row alone differs", "other rows differ", "pairs of rows that are like the samples differ"],
)
def test_an_answer_to_each_pair_of_rows_hangs_on_the_edge_where_one_of_them_does(
    desk: ProbeDesk, end: str, expected: Status
) -> None:
    more = ", float[B, B] pairs"
    pairs = "other = Transpose(logits)\n  products = MatMul(logits, other)\n  pairs = "
    ends = [
        f"{_RIGHT}\n  {pairs}Identity(products)",
        f"{end}\n  {pairs}{'Add(products, off)' if 'off' in end else 'Identity(products)'}",
    ]
    right, candidate = (desk.model(_POOLED.format(end=one, mask="attention_mask", more=more), _WEIGHTS) for one in ends)

    outcome = _outcome(desk.answer(desk.ask(right, _samples(), names=["masks"]), candidate, edge="warn"))

    assert outcome.status is expected


def test_edges_are_recorded_with_the_probes(desk: ProbeDesk) -> None:
    model = desk.model(_POOLED.format(end=_RIGHT, mask="attention_mask", more=""), _WEIGHTS)
    asked = desk.ask(model, _samples(), names=["masks"])

    (probe,) = ProbesRecording.load(asked.probes.folder).probes
    edges = {
        batch.about: [(str(edge), edge.rows) for edge in batch.edges]
        for batch in probe.batches
        if "an empty row" in batch.about
    }

    assert edges == {
        "an empty row alone (attention_mask)": [("an empty row of attention_mask", (0,))],
        "an empty row beside a full one (attention_mask)": [("an empty row of attention_mask", (1,))],
    }


def test_what_a_hint_says_of_values_reaches_as_far_as_they_do(desk: ProbeDesk) -> None:
    model = desk.model("(double[B] x) => (double[B] y) { y = Neg(x) }", {})
    asked = desk.ask(model, [{"x": np.linspace(1.0, 3.1234567, 8)}], names=[])
    batch = ProbeBatch(inputs={"x": np.array([16777217.0, -0.123456789])}, rows=2, about="")

    (edge,) = (edge for edge in edges_of(asked.context, batch) if edge.kind is OutOfSampleKind.VALUES)

    assert edge.if_it_occurs == "roles: {x: {low: -0.123456789, high: 16777217}}"
    assert edge.if_it_never_occurs == "roles: {x: {low: 1, high: 3.1234567}}"


def test_a_hint_on_values_of_another_column_declares_one_range_for_all(desk: ProbeDesk) -> None:
    model = desk.model("(double[B, 2] x) => (double[B, 2] y) { y = Neg(x) }", {})
    asked = desk.ask(model, [{"x": np.linspace([0.0, 0.5], [2.0, 2.5], 8)}], names=[])
    batch = ProbeBatch(inputs={"x": np.array([[2.25, 1.0]])}, rows=1, about="")

    (edge,) = (edge for edge in edges_of(asked.context, batch) if edge.kind is OutOfSampleKind.VALUES)

    assert (edge.if_it_occurs, edge.if_it_never_occurs) == ("roles: {x: {low: 0, high: 2.5}}", "")
