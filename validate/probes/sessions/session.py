"""Define a session probe: it derives nothing, but runs batches of the probe `batches` again in another way.

Outputs are compared with the reference's, within the limits of the samples, and with the candidate's own first ones.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.distance import distance
from paritygate.validate.detections.repeats import changed_detections
from paritygate.validate.gate.candidate import Candidate, RefusedInputsError
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.limits import Limits, limits_for, limits_of_made_up
from paritygate.validate.measure.measurement import repeat_difference
from paritygate.validate.measure.valid_positions import like
from paritygate.validate.probes.catalogue import ASKED_AGAIN, SESSION_PROBES
from paritygate.validate.probes.outcome import ProbeFailure, failed_itself
from paritygate.validate.probes.recording import ProbeRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.run import (
    FAILURES_KEPT,
    FailedBatch,
    JudgedProbe,
    ProbeOutcome,
    ProbeQuestion,
    with_labels,
)
from paritygate.validate.words.sentence import Words, say

# Limits: rows of all repeated batches, repeats of each, rows of one batch, bytes of outputs in memory.
_ROWS = 150
_TIMES = 8
_ROWS_OF_ONE = 64
_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RerunBatch:
    """A batch to repeat.

    `first` is the candidate's first output; None where it refused. `is_failed`: its own probe fails by it, so that only
    a change is news. `is_judged`: the first output passed or failed there, so that the same output is no news.
    """

    at: int
    stored: StoredProbeBatch
    first: Arrays | None
    is_failed: bool = False
    is_judged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPlan:
    """The needs of session probes besides the candidate.

    - `why_not_at_once`, `why_not_plain`, `why_not_afresh`: why a probe cannot run, or empty.
    - `open_plain`: opens the candidate without graph optimisations.
    - `answer_afresh`: runs batches in a fresh process and returns each output, or an error text, in order. It raises
      `BackendError` where the process crashes or does not start.
    - `most_rows`: rows that all of them may run, counting repeats; None for any number.
    - `failed_before`: positions of batches that failed in their own probe.
    """

    seed: int
    why_not_at_once: str
    why_not_plain: str
    open_plain: Callable[[], Candidate]
    why_not_afresh: str
    answer_afresh: Callable[[Sequence[RerunBatch]], Iterable[Arrays | str]]
    most_rows: int | None = None
    failed_before: frozenset[int] = frozenset()
    progress: Callable[[str], None] = lambda _: None

    def random(self) -> np.random.Generator:
        """Return the generator of orders; one seed always gives the same numbers."""
        return np.random.default_rng([self.seed, *b"sessions"])


class _ProbeModule(Protocol):
    def ask(self, session: SessionProbe, plan: SessionPlan) -> str:
        """Run the batches; return why nothing ran, or an empty text."""


class SessionProbe:
    """A session probe while it runs."""

    def __init__(
        self,
        name: str,
        candidate: Candidate,
        recording: ProbesRecording,
        asked: Sequence[RerunBatch],
        question: ProbeQuestion,
    ) -> None:
        self.candidate = candidate
        self.asked = tuple(asked)
        self._judged = JudgedProbe(recording, question, name=name)
        self._matches = question.rules.matches
        self._tolerance = question.rules.tolerance
        self._profiles = {name: profile for name, profile in recording.profiles.items() if name in question.outputs}
        # The same for every batch.
        self._limits = functools.cache(self._limits_of_repeats)
        self._of_all: list[ProbeFailure] = []
        self.batches = self.rows = 0

    def answer(self, asked: RerunBatch, candidate: Candidate) -> Arrays | str:
        """Return the output on a batch, or why there is none; safe to call from several threads."""
        try:
            return candidate.answer(self._judged.batch(asked.at, asked.stored))
        except RefusedInputsError as err:
            return str(err)

    def judge(self, asked: RerunBatch, actual: Arrays | str, *, is_same_build: bool = True, when: str = "") -> None:
        """Judge an output, or the reason for none; with `is_same_build` it must also repeat the first output."""
        self._judged.when = when
        self.batches += 1
        self.rows += asked.stored.record.rows
        if isinstance(actual, str):
            self._judged.refuse(asked.at, asked.stored, actual)
            return
        if asked.is_judged and self._is_first_answer(asked, actual):
            return
        before = len(self._judged.failed_alone)
        if not asked.is_failed:
            self._judged.judge(asked.at, asked.stored, actual)
        if len(self._judged.failed_alone) == before and asked.first is not None:
            self._hold_to_first(asked, actual, asked.first, is_same_build=is_same_build)

    def _is_first_answer(self, asked: RerunBatch, actual: Arrays) -> bool:
        """Return whether all compared outputs equal the first ones bit for bit."""
        first = asked.first or {}
        names = [name for name in actual if name in self._judged.held and name in asked.stored.outputs]
        return bool(first) and set(names) == set(first) and all(_is_same(actual[name], first[name]) for name in names)

    def fail_all(self, reason: str) -> None:
        """Record that no batch ran, though each did before."""
        self.batches = len(self.asked)
        self._of_all = [
            ProbeFailure(batch=-1, about="all batches", check="refused", words=say("probe.refused_all", reason=reason))
        ]

    def failures(self) -> tuple[list[ProbeFailure], int]:
        """Return the first failed batches, and the number of all."""
        all_failures = self._of_all or self._judged.failures()
        return all_failures[:FAILURES_KEPT], len(all_failures)

    def _hold_to_first(self, asked: RerunBatch, actual: Arrays, first: Arrays, *, is_same_build: bool) -> None:
        first = like(first, asked.stored.outputs)
        what = "own first answer" if is_same_build else "answer as it is deployed"
        failed = self._changed_values(asked, actual, first, what, is_same_build=is_same_build)
        failed = failed or self._changed_matches(asked, actual, first, what)
        if failed is not None:
            self._judged.fail(failed)

    def _changed_values(
        self, asked: RerunBatch, actual: Arrays, first: Arrays, what: str, *, is_same_build: bool
    ) -> FailedBatch | None:
        for name in self._profiles:
            limits = self._limits(name, is_same_build=is_same_build)
            ratio, difference = repeat_difference(actual[name], first[name], limits)
            if ratio > 1:
                limit = float(limits.repeat_max_abs_diff.max())
                where = _worst_row(actual[name], first[name])
                return FailedBatch(
                    at=asked.at,
                    stored=asked.stored,
                    check="repeat_max_abs_diff",
                    words=say(
                        "probe.again_differs", output=name, difference=difference, side=what, part=where, limit=limit
                    ),
                    actual=actual,
                    output=name,
                    limit=limit,
                )
        return None

    def _limits_of_repeats(self, name: str, *, is_same_build: bool) -> Limits:
        if is_same_build:
            # The rows are real, so the declared limit of repeats applies.
            return limits_for(self._tolerance, self._profiles[name])
        made_up = limits_of_made_up(self._tolerance, self._profiles[name])
        return replace(made_up, repeat_max_abs_diff=made_up.max_abs_diff)

    def _changed_matches(self, asked: RerunBatch, actual: Arrays, first: Arrays, what: str) -> FailedBatch | None:
        batch = self._judged.batch(asked.at, asked.stored)
        for rule in self._matches:
            changed = changed_detections(rule, batch, actual, first)
            if changed:
                return FailedBatch(
                    at=asked.at,
                    stored=asked.stored,
                    check="repeat_detections",
                    words=say("probe.again_others", match=rule.name, side=what, difference=changed),
                    actual=actual,
                )
        return None


def _is_same(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    """Return whether two arrays are equal bit for bit: two NaN may be, 0 and -0 are not."""
    if one.dtype != other.dtype or one.shape != other.shape or one.dtype.hasobject:
        return False
    bits, others = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return bool(np.array_equal(bits, others))


def _worst_row(actual: NDArray[np.generic], first: NDArray[np.generic]) -> str:
    if actual.ndim == 0 or actual.shape != first.shape or not actual.size:
        return ""
    by_row = distance(actual, first).reshape(len(actual), -1).max(axis=1)
    return f" in row {int(by_row.argmax())} of the batch"


def _first_answers(
    candidate: Candidate,
    recording: ProbesRecording,
    question: ProbeQuestion,
    most_rows: int,
    failed_before: Collection[int],
) -> tuple[RerunBatch, ...]:
    """Return at least one batch to repeat, in at most `most_rows` rows, with the candidate's first outputs."""
    probe = probe_asked(recording)
    if probe is None:
        return ()
    of_one = max(_ROWS_OF_ONE, min((batch.rows for batch in probe.batches), default=0))
    batches: list[RerunBatch] = []
    judged = JudgedProbe(recording, replace(question, keep=lambda *_: ""), name=probe.name)
    rows = size = 0
    for at, stored in enumerate(recording.batches(probe)):
        count = stored.record.rows
        is_enough = bool(batches) and (rows + count > most_rows or size > _BYTES)
        if count > of_one or is_enough or question.unfit(stored.inputs):
            continue
        first = _first_answer(candidate, judged, at, stored)
        if first is None and at in failed_before:
            continue
        batches.append(RerunBatch(at=at, stored=stored, first=first))
        rows += count
        size += sum(array.nbytes for array in (*stored.inputs.values(), *stored.outputs.values()))
    failed = {failure.batch for failure in judged.failed_alone}
    # A batch that passed in that probe and fails now is a change, which these probes look for.
    changed = failed - set(failed_before)
    return tuple(
        replace(
            batch,
            is_failed=batch.at in failed - changed,
            is_judged=batch.first is not None and batch.at not in changed,
        )
        for batch in batches
    )


def _first_answer(candidate: Candidate, judged: JudgedProbe, at: int, stored: StoredProbeBatch) -> Arrays | None:
    """Return the candidate's compared outputs, which are judged; None if it refuses the batch."""
    try:
        answer = candidate.answer(judged.batch(at, stored))
    except RefusedInputsError:
        return None
    judged.judge(at, stored, answer)
    return {name: array for name, array in answer.items() if name in stored.outputs and name in judged.held}


def probe_asked(recording: ProbesRecording) -> ProbeRecord | None:
    """Return the probe whose batches run again; None if it was not recorded."""
    return next((probe for probe in recording.probes if probe.name == ASKED_AGAIN), None)


def run_sessions(
    candidate: Candidate, recording: ProbesRecording, question: ProbeQuestion, plan: SessionPlan, names: Collection[str]
) -> tuple[ProbeOutcome, ...]:
    """Run the named session probes on a candidate; raise ArtifactIntegrityError if a recorded chunk was changed."""
    wanted = [name for name in SESSION_PROBES if name in names]
    probe = probe_asked(recording)
    if not wanted or probe is None:
        return ()
    if probe.error and ASKED_AGAIN not in names:
        # No other outcome reports this, and the batches may be incomplete.
        words = say("probe.again_failed", name=ASKED_AGAIN) + failed_itself(probe.error)
        return tuple(ProbeOutcome(name=name, status=Status.ERROR, words=words, error=probe.error) for name in wanted)
    question = with_labels(recording, question)
    most_rows = _ROWS if plan.most_rows is None else min(_ROWS, plan.most_rows // _TIMES)
    batches = _first_answers(candidate, recording, question, most_rows, plan.failed_before)
    outcomes = []
    for name in wanted:
        plan.progress(name)
        outcomes.append(_run(name, SessionProbe(name, candidate, recording, batches, question), plan))
    return tuple(outcomes)


def _run(name: str, session: SessionProbe, plan: SessionPlan) -> ProbeOutcome:
    started = time.monotonic()
    module = cast("_ProbeModule", importlib.import_module(SESSION_PROBES[name].module))
    skipped = module.ask(session, plan) if session.asked else "no batch of the samples runs again"
    failures, failed = session.failures()
    return ProbeOutcome(
        name=name,
        status=Status.FAIL if failures else Status.WARNING if skipped else Status.PASS,
        words=_in_words(session, failures, failed, skipped),
        is_skipped=bool(skipped),
        batches=session.batches,
        rows=session.rows,
        failures=tuple(failures),
        failed=failed,
        seconds=time.monotonic() - started,
    )


def _in_words(session: SessionProbe, failures: Sequence[ProbeFailure], failed: int, skipped: str) -> Words:
    if failures:
        first = failures[0]
        words = say("probe.at", about=first.about)
        words += say("probe.failed", check=first.check, difference=first.words)
        return words + (say("probe.more", count=failed - 1) if failed > 1 else ())
    return say("probe.not_asked", reason=skipped) if skipped else say("probe.alike", rows=session.rows)
