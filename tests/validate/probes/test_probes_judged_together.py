"""Batches that are judged together have the outcome of each judged alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.measurement import OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.probes import run
from paritygate.validate.probes.inputs.edge import Edge, OutOfSampleKind
from paritygate.validate.probes.recording import BatchRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.run import JudgedProbe, ProbeQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FAULTS = ("none", "rounded", "none", "near", "far", "mean", "nan", "rows", "dtype", "label", "missing")
_KINDS = ("plain", "plain", "edges", "unlike", "beyond", "wide", "fills", "short")
_SAMPLES = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
_RECORDING = ProbesRecording(
    folder=Path(),
    probes=(),
    roles={},
    profiles={
        "y": profile_outputs("y", [(_SAMPLES, 60)], axis=1, dtype="float32"),
        "label": profile_outputs("label", [(np.arange(60) % 3, 60)], axis=None, dtype="int64"),
    },
)


def _stored(seed: int, kind: str) -> StoredProbeBatch:
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 6))
    y = random.normal(size=(rows, 2 if kind == "short" else 3)).astype(np.float32)
    y *= 50 if kind == "wide" else 1
    if kind == "fills":
        y[:, 0] = -1e9
    edge = Edge(input="x", kind=OutOfSampleKind.VALUES, words="a large x", rows=tuple(range(1, rows)))
    record = BatchRecord(
        rows=rows,
        about=f"{kind} rows",
        is_beyond_seen=kind == "beyond",
        is_unlike_seen=kind in {"unlike", "short"},
        edges=(edge,) if kind == "edges" else (),
    )
    return StoredProbeBatch(record=record, inputs={"x": y}, outputs={"y": y, "label": np.arange(rows) % 3})


def _answered(stored: StoredProbeBatch, fault: str) -> dict[str, NDArray[Any]]:
    y, label = stored.outputs["y"].copy(), stored.outputs["label"].copy()
    if fault in {"near", "far"}:
        y[-1, 1] += {"near": 2e-4, "far": 1.0}[fault]
    y += {"rounded": np.float32(1e-6), "mean": np.float32(9e-5)}.get(fault, np.float32(0))
    if fault == "nan":
        y[0, 0] = np.nan
    if fault == "label":
        label[-1] += 1
    answered = {"y": y.repeat(2, axis=0) if fault == "rows" else y, "label": label}
    if fault == "dtype":
        answered["y"] = y.astype(np.float64)
    if fault == "missing":
        del answered["label"]
    return answered


def _outcome(batches: Sequence[tuple[int, str, str]], rules: GateRules) -> tuple[Any, ...]:
    judged = JudgedProbe(_RECORDING, ProbeQuestion(rules=rules, outputs=("y", "label")), name="batches")
    for at, (seed, kind, fault) in enumerate(batches):
        if fault == "refused":
            judged.refuse(at, _stored(seed, kind), "no")
        else:
            judged.judge(at, _stored(seed, kind), _answered(_stored(seed, kind), fault))
    return judged.failures(), judged.findings, judged.found, judged.reference_noise


@settings(deadline=None, max_examples=60)
@given(
    batches=st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from(_KINDS), st.sampled_from((*_FAULTS, "refused"))), max_size=8
    ),
    precision=st.sampled_from(["fp32", "fp16", "int8"]),
    edge=st.sampled_from(EdgeRule),
)
@example(
    batches=[(1, "plain", "none"), (2, "plain", "mean"), (3, "plain", "none")], precision="fp32", edge=EdgeRule.FAIL
)
@example(
    batches=[(1, "plain", "none"), (2, "edges", "far"), (3, "edges", "none")], precision="fp16", edge=EdgeRule.WARN
)
def test_the_outcome_is_that_of_each_batch_alone(
    batches: list[tuple[int, str, str]], precision: str, edge: EdgeRule
) -> None:
    decisions = (parse_decision("y:threshold=0.5"),)
    rules = GateRules(tolerance=parse_tolerance(Precision(precision), {}), decisions=decisions, edge=edge)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "_BYTES_TOGETHER", 0)
        alone = _outcome(batches, rules)

    assert _outcome(batches, rules) == alone


def test_rows_that_hide_a_mean_beyond_its_limit_loosen_no_limit_of_a_row() -> None:
    samples = _SAMPLES * np.float32(1e-4)
    profile = profile_outputs("y", [(samples, 60)], axis=None, dtype="float32")
    recording = replace(_RECORDING, profiles={"y": profile})
    rules = GateRules(tolerance=parse_tolerance(Precision.FP32, {}))
    judged = JudgedProbe(recording, ProbeQuestion(rules=rules, outputs=("y",)), name="batches")
    for at, (rows, difference) in enumerate(((slice(0, 1), 2e-7), (slice(1, 30), 0.0))):
        y = samples[rows]
        record = BatchRecord(rows=len(y), about="rows", is_beyond_seen=False, is_unlike_seen=False)
        stored = StoredProbeBatch(record=record, inputs={"x": y}, outputs={"y": y})
        judged.judge(at, stored, {"y": y + np.float32(difference)})

    assert [failure.check for failure in judged.failures()] == ["max_row_rel_diff"]


@pytest.mark.parametrize(("sizes", "measured"), [((3, 4), 1), ((4, 3), 2)])
def test_sides_whose_rows_differ_in_number_are_not_mixed_up(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int], measured: int
) -> None:
    """Compare batches of 3 and 4 rows that are answered with as many rows, or with those of each other."""
    rules = GateRules(tolerance=parse_tolerance(Precision.FP16, {}))
    added: list[int] = []
    real = OutputComparison.add
    monkeypatch.setattr(
        OutputComparison, "add", lambda self, batch, *sides: added.append(batch.rows) or real(self, batch, *sides)
    )
    judged = JudgedProbe(_RECORDING, ProbeQuestion(rules=rules, outputs=("y",)), name="batches")
    for at, (rows, answered) in enumerate(zip((3, 4), sizes, strict=True)):
        record = BatchRecord(rows=rows, about="rows", is_beyond_seen=False, is_unlike_seen=False)
        zeros = np.zeros((rows, 3), np.float32)
        stored = StoredProbeBatch(record=record, inputs={"x": zeros}, outputs={"y": zeros})
        judged.judge(at, stored, {"y": np.zeros((answered, 3), np.float32)})

    failed = [failure.check for failure in judged.failures()]

    assert failed == ([] if measured == 1 else ["contract.shape"] * 2)
    assert added == [7] if measured == 1 else 7 not in added
