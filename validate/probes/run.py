"""Asking a candidate what the reference was asked, and judging its answers as on the samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.signature import is_float_dtype
from paritygate.validate.candidate import Candidate, RefusedInputsError
from paritygate.validate.decisions import Decision
from paritygate.validate.measurement import Comparison, ComparisonPlan, Measurement
from paritygate.validate.probes.recording import ProbeRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.tolerance import Tolerance, limits_for
from paritygate.validate.verdict import Check, JudgePlan, Status, judge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.profile import OutputProfile

    _Outputs = Mapping[str, NDArray[np.generic]]

__all__ = ["ProbeFailure", "ProbeOutcome", "ProbeQuestion", "run_probes"]

# The mean is held against its limit over many rows: one row alone may honestly lie above it.
_NOT_OF_ONE_BATCH = frozenset({"mean_abs_diff"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeQuestion:
    """What a candidate is held to.

    Attributes:
        tolerance: The limits, as on the samples.
        precision: The declared precision of the candidate.
        decisions: The rules; near the boundary an answer may be another one, away from it never.
        argmax_of: Integer output: the scores whose argmax it is.
        outputs: The outputs that are compared.
        fits: Whether a candidate takes the shapes of these inputs at all: one with fixed dims does not take all.
    """

    tolerance: Tolerance
    precision: Precision
    decisions: tuple[Decision, ...]
    argmax_of: Mapping[str, str]
    outputs: tuple[str, ...]
    fits: Callable[[Mapping[str, NDArray[np.generic]]], bool] = lambda _: True


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFailure:
    """One batch of a probe that a candidate failed.

    Attributes:
        batch: Its position among the batches of the probe, from 0.
        about: What is special about it.
        check: The name of the check that it failed.
        detail: In words, with the numbers.
    """

    batch: int
    about: str
    check: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeOutcome:
    """What came of one probe.

    Attributes:
        name: The probe.
        status: `pass`, `fail`, or `warning` where nothing of it could be asked.
        detail: In words.
        batches: Batches asked.
        rows: Rows of them.
        dropped: Batches that the reference does not answer finitely and repeatably.
        unfit: Batches of sizes that the candidate, its dims fixed, does not take.
        failures: The batches failed, the first ones.
        failed: How many failed.
        seconds: How long the candidate took.
    """

    name: str
    status: Status
    detail: str
    batches: int
    rows: int
    dropped: int
    unfit: int
    failures: tuple[ProbeFailure, ...]
    failed: int
    seconds: float

    @property
    def check(self) -> Check:
        """The probe as one of the checks of a comparison."""
        return Check(name=f"probe_{self.name}", status=self.status, detail=self.detail)


_FAILURES_KEPT = 5


def run_probes(
    candidate: Candidate,
    recording: ProbesRecording,
    question: ProbeQuestion,
    *,
    names: Collection[str] | None = None,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> tuple[ProbeOutcome, ...]:
    """Ask the candidate the probes recorded.

    Args:
        candidate: What answers; a loaded model.
        recording: The probes, with the reference's answers.
        question: What it is held to.
        names: The probes to ask; all that were recorded if None.
        progress: Called with the probe and the number of its rows done so far.

    Raises:
        ArtifactIntegrityError: A recorded chunk is missing or was changed.
    """
    candidate.start_pass()
    return tuple(
        _run_probe(candidate, recording, probe, question, progress)
        for probe in recording.probes
        if names is None or probe.name in names
    )


def _run_probe(
    candidate: Candidate,
    recording: ProbesRecording,
    probe: ProbeRecord,
    question: ProbeQuestion,
    progress: Callable[[str, int], None],
) -> ProbeOutcome:
    started = time.monotonic()
    judged = _JudgedProbe(probe, question)
    batches = rows = unfit = 0
    for at, stored in enumerate(recording.batches(probe)):
        if not question.fits(stored.inputs):
            unfit += 1
            continue
        judged.add(at, stored, candidate)
        batches += 1
        rows += stored.record.rows
        progress(probe.name, rows)
    failures = judged.failures()
    return ProbeOutcome(
        name=probe.name,
        status=Status.FAIL if failures else Status.PASS if batches else Status.WARNING,
        detail=_in_words(failures, probe, rows=rows, unfit=unfit),
        batches=batches,
        rows=rows,
        dropped=len(probe.dropped),
        unfit=unfit,
        failures=tuple(failures[:_FAILURES_KEPT]),
        failed=len(failures),
        seconds=time.monotonic() - started,
    )


def _in_words(failures: list[ProbeFailure], probe: ProbeRecord, *, rows: int, unfit: int) -> str:
    left_out = [
        *([f"{len(probe.dropped)} batches the reference does not answer"] if probe.dropped else []),
        *([f"{unfit} batches of other sizes than its fixed dims"] if unfit else []),
    ]
    rest = f" (left out: {', '.join(left_out)})" if left_out else ""
    if failures:
        first = failures[0]
        more = f", and {len(failures) - 1} more batches" if len(failures) > 1 else ""
        return f"at {first.about}: {first.check}: {first.detail}{more}{rest}"
    if not rows:
        return f"nothing to ask of this model{rest}"
    return f"{rows} rows answered alike{rest}"


class _JudgedProbe:
    """Every batch judged alone, so that a fault is found where it is, and all of them together, for the mean."""

    def __init__(self, probe: ProbeRecord, question: ProbeQuestion) -> None:
        self._question = question
        self._name = probe.name
        self._within = _Scale.of(probe.profiles, question)
        self._beyond = _Scale.of(probe.profiles_beyond, question)
        self._failures: list[ProbeFailure] = []

    def add(self, at: int, stored: StoredProbeBatch, candidate: Candidate) -> None:
        """Ask one batch."""
        scale = self._beyond if stored.record.is_beyond_seen else self._within
        try:
            batch = Batch(inputs=stored.inputs, ids=[f"{self._name}/{at}/{row}" for row in range(stored.record.rows)])
            actual = candidate.answer(batch)
        except RefusedInputsError as err:
            self._fail(at, stored, "refused", f"the candidate does not answer: {err}")
            return
        expected = {name: stored.outputs[name] for name in scale.plan.profiles}
        missing = next((name for name in expected if name not in actual), None)
        if missing is not None:
            self._fail(at, stored, "outputs", f"the candidate answers without {missing!r}")
        elif stored.record.is_beyond_seen and self._question.precision is not Precision.FP32:
            self._hold_to_contract(at, stored, actual, expected)
        else:
            alone = Comparison(scale.plan)
            alone.add(batch, actual, expected)
            check = next(_failed(alone, scale, self._question, skipped=_NOT_OF_ONE_BATCH), None)
            if check is not None:
                self._fail(at, stored, check.name, check.detail)
            scale.all.add(batch, actual, expected)

    def _hold_to_contract(self, at: int, stored: StoredProbeBatch, actual: _Outputs, expected: _Outputs) -> None:
        for name, array in expected.items():
            found = actual[name]
            if found.shape != array.shape or found.dtype != array.dtype:
                both = f"{found.dtype}{list(found.shape)}, the reference's {array.dtype}{list(array.shape)}"
                self._fail(at, stored, "contract", f"the candidate's {name!r} is {both}")
            elif is_float_dtype(array.dtype.name) and not np.isfinite(found.astype(np.float64)).all():
                self._fail(at, stored, "finite", f"{name!r} is NaN or infinite where the reference is finite")

    def _fail(self, at: int, stored: StoredProbeBatch, check: str, detail: str) -> None:
        self._failures.append(ProbeFailure(batch=at, about=stored.record.about, check=check, detail=detail))

    def failures(self) -> list[ProbeFailure]:
        """Return every batch that failed; where none did alone, what all of them together failed."""
        if self._failures:
            return self._failures
        together = (
            ProbeFailure(batch=-1, about="all batches together", check=check.name, detail=check.detail)
            for scale in (self._within, self._beyond)
            for check in _failed(scale.all, scale, self._question)
        )
        return list(together)[:1]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scale:
    """The limits of some batches, scaled by the reference's answers to them, and what was compared so far."""

    plan: ComparisonPlan
    all: Comparison

    @classmethod
    def of(cls, profiles: Mapping[str, OutputProfile], question: ProbeQuestion) -> _Scale:
        kept = {name: profiles[name] for name in question.outputs if name in profiles}
        plan = ComparisonPlan(
            profiles=kept,
            limits={name: limits_for(question.tolerance, profile) for name, profile in kept.items()},
            decisions={rule.output: rule for rule in question.decisions if rule.output in kept},
            argmax_of={label: scores for label, scores in question.argmax_of.items() if label in kept},
        )
        return cls(plan=plan, all=Comparison(plan))


def _failed(
    comparison: Comparison, scale: _Scale, question: ProbeQuestion, *, skipped: frozenset[str] = frozenset()
) -> Iterator[Check]:
    comparison.end_pass()
    measured = comparison.finish()
    if not measured.rows:
        return
    plan = JudgePlan(
        tolerance=replace(question.tolerance, decision_mismatches=None, mismatch_rate_upper_95=None),
        limits=scale.plan.limits,
        profiles=scale.plan.profiles,
        min_rows=1,
        argmax_of=scale.plan.argmax_of,
    )
    for check in judge(measured, plan):
        if check.status is Status.FAIL and check.name not in skipped and not _is_near(check, measured):
            yield check


def _is_near(check: Check, measured: Measurement) -> bool:
    """Return whether a check of decisions fails for answers near the boundary alone: a probe may repeat such a row."""
    if check.name != "decision_mismatches" or check.output is None:
        return False
    return measured.decisions[check.output].outside_band == 0
