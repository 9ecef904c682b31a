"""The job of answering afresh: the candidate loaded in a process of its own, asked what it was asked before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paritygate.codec import from_data
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.kept_answers import kept_answers
from paritygate.pipelines.compare.probes import question_of
from paritygate.pipelines.compare.reproduction import FailureStore
from paritygate.pipelines.process.child import Progress
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.probes.recording import ProbesRecording
from paritygate.validate.probes.run import with_labels
from paritygate.validate.probes.sessions.session import AskedBatch, SessionProbe, probe_asked
from paritygate.validate.reference.recording import read_chunks
from paritygate.validate.runners.onnxruntime.providers import prepare_process
from paritygate.validate.runners.opening import open_model

__all__ = ["run"]


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Answer, judge, and return what failed as JSON data."""
    job = from_data(ComparisonJob, args["job"])
    prepare_process(job.candidate.provider)
    recording = ProbesRecording.load(Path(args["probes"]))
    report("loading the candidate", 0, 0)
    kept_in = args.get("kept")
    models = kept_answers(None if kept_in is None else Path(kept_in), is_judged_only=bool(args.get("is_judged_only")))
    candidate = ModelCandidate(models.opened("candidate", job.candidate, lambda: open_model(job.candidate, job.device)))
    question = with_labels(recording, question_of(job, candidate, FailureStore(job, recording), tuple(args["outputs"])))
    probe = probe_asked(recording)
    assert probe is not None  # noqa: S101 - its batches were asked before
    first = {int(batch.case or 0): batch.outputs for batch in read_chunks(Path(args["answers"]), args["chunks"])}
    asked = [
        AskedBatch(
            at=at, stored=stored, first=first[at], is_failed=at in args["failed"], is_judged=at in args["judged"]
        )
        for at, stored in enumerate(recording.batches(probe))
        if at in first
    ]
    session = SessionProbe("fresh", candidate, recording, asked, question)
    # Here the smallest batch is the first call of all: before, others came first, after which some runtimes answer what
    # they refuse as the first.
    for item in sorted(asked, key=lambda item: item.stored.record.rows):
        session.judge(item, session.answer(item, candidate))
        report("answering", session.rows, 0)
    failures, failed = session.failures()
    models.close()
    return {
        "batches": session.batches,
        "rows": session.rows,
        "failures": [asdict(failure) for failure in failures],
        "failed": failed,
    }
