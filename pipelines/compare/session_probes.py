"""The probes of the session as a part of comparing: how the candidate is opened again, and asked in a fresh process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import BackendError
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.kept_answers import KeptAnswers
from paritygate.pipelines.process.child import ChildJob, Progress, run_child, run_here
from paritygate.validate.gate.candidate import Candidate, ModelCandidate
from paritygate.validate.probes.allowance import SamplesCost, rows_asked_again
from paritygate.validate.probes.outcome import ProbeFailure
from paritygate.validate.probes.recording import ProbesRecording
from paritygate.validate.probes.sessions.session import AskedBatch, FreshProcessAnswers, SessionPlan
from paritygate.validate.reference.recording import ChunkWriter
from paritygate.validate.runners.opening import open_model

__all__ = ["ANSWERS", "Place", "session_plan"]

ANSWERS = "first-answers"
_EMULATED = "an emulation stands for a device, and its process for none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a comparison works, and until when.

    Attributes:
        folder: Its folder.
        deadline: When its time is over, by the monotonic clock.
        samples: What the candidate's pass over the samples was.
        report: Takes the progress.
        models: Keeps the answers of models, or has them.
        failed_before: Of the probe whose batches are asked again, the positions of those that it fails by.
    """

    folder: Path
    deadline: float
    samples: SamplesCost
    report: Progress
    models: KeptAnswers
    failed_before: frozenset[int] = frozenset()


def session_plan(
    job: ComparisonJob,
    candidate: ModelCandidate,
    recording: ProbesRecording,
    outputs: tuple[str, ...],
    place: Place,
) -> SessionPlan:
    """Return how the candidate is asked again."""
    return SessionPlan(
        seed=job.rules.seed,
        why_not_at_once="" if candidate.may_be_called_at_once else "its runner is called once at a time",
        why_not_plain=_why_not_plain(job),
        open_plain=_opener(job, place.models),
        why_not_afresh=_why_not_afresh(job),
        answer_afresh=_FreshProcess(job, recording, outputs, place),
        most_rows=rows_asked_again(place.samples),
        failed_before=place.failed_before,
        progress=lambda name: place.report(f"asking the candidate: probe {name}", 0, 0),
    )


def _why_not_plain(job: ComparisonJob) -> str:
    if job.is_emulated:
        return "it is emulated with its operators unfused"
    if job.candidate.kind is not SourceKind.ONNX or job.device != "cpu":
        return "graph optimisations are turned off in ONNX Runtime on the CPU alone"
    return ""


def _why_not_afresh(job: ComparisonJob) -> str:
    if job.candidate.kind is SourceKind.LIVE:
        return "the candidate is an object, which no other process has"
    if job.candidate.kind is SourceKind.ENDPOINT:
        return "the candidate is on a server, which another process asks no otherwise"
    return _EMULATED if job.is_emulated else ""


def _opener(job: ComparisonJob, models: KeptAnswers) -> Callable[[], Candidate]:
    def opened() -> Candidate:
        ref = job.candidate
        return ModelCandidate(models.opened("plain", ref, lambda: open_model(ref, job.device, is_optimised=False)))

    return opened


class _FreshProcess:
    """Has another process load the candidate, answer, and judge the answers."""

    def __init__(self, job: ComparisonJob, recording: ProbesRecording, outputs: tuple[str, ...], place: Place) -> None:
        self._job = job
        self._recording = recording
        self._outputs = outputs
        self._place = place

    def __call__(self, asked: Sequence[AskedBatch]) -> FreshProcessAnswers:
        folder = self._place.folder / ANSWERS
        folder.mkdir(exist_ok=True)
        kept = [item for item in asked if item.first is not None]
        writer = ChunkWriter(folder)
        for item in kept:
            writer.add(dict(item.first or {}), rows=item.stored.record.rows, case=str(item.at))
        writer.flush()
        args: dict[str, Any] = {
            "job": to_data(self._job),
            "probes": str(self._recording.folder),
            "outputs": list(self._outputs),
            "answers": str(folder),
            "chunks": writer.chunks,
            "failed": [item.at for item in kept if item.is_failed],
            "judged": [item.at for item in kept if item.is_judged],
        }
        answers_in, is_judged_only = self._place.models.of_another_process()
        if answers_in is not None:
            args |= {"kept": str(answers_in), "is_judged_only": is_judged_only}
        try:
            # What is looked up is the same in any process.
            found = (run_here if is_judged_only else run_child)(self._child(args))
        except BackendError as err:
            # It answered here: that another process does not is what this looks for.
            failure = ProbeFailure(batch=-1, about="all batches", check="refused", detail=str(err))
            return FreshProcessAnswers(batches=len(kept), rows=0, failures=(failure,), failed=1)
        return FreshProcessAnswers(
            batches=found["batches"],
            rows=found["rows"],
            failures=tuple(ProbeFailure(**item) for item in found["failures"]),
            failed=found["failed"],
        )

    def _child(self, args: dict[str, Any]) -> ChildJob:
        return ChildJob(
            name="answer",
            args=args,
            folder=self._place.folder / "fresh",
            what=f"{self._job.candidate.name} in a fresh process",
            time_limit_s=max(self._place.deadline - time.monotonic(), 1.0),
            crash_error=BackendError,
        )
