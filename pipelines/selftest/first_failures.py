"""The probes asked until each has failed once: that one did is all that a selftest wants to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.probes import question_of
from paritygate.pipelines.compare.reproduction import FailureStore
from paritygate.pipelines.process.child import Progress
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.probes.recording import ProbeRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.run import FailedBatch, ProbeOutcome, run_probes

__all__ = ["ask_until_failed"]


def ask_until_failed(
    job: ComparisonJob,
    candidate: ModelCandidate,
    recording: ProbesRecording | None,
    outputs: tuple[str, ...],
    report: Progress,
) -> tuple[ProbeOutcome, ...]:
    """Return what came of each probe that was asked; what passes was asked everything.

    Args:
        job: The comparison.
        candidate: What answers.
        recording: The probes, with the reference's answers; None where there are none.
        outputs: The outputs that are compared.
        report: Takes the progress.
    """
    if recording is None or recording.skipped or not job.rules.probes:
        return ()
    failed: set[str] = set()

    def note(probe: str, batch: FailedBatch) -> str:
        if not batch.is_finding:
            failed.add(probe)
        return ""

    stopping = _Stopping(
        folder=recording.folder,
        probes=recording.probes,
        roles=recording.roles,
        skipped=recording.skipped,
        seed=recording.seed,
        failed=failed,
    )
    question = replace(question_of(job, candidate, FailureStore(job, recording), outputs), keep=note)
    outcomes = run_probes(
        candidate,
        stopping,
        question,
        names=job.rules.probes,
        progress=lambda name, rows: report(f"probe {name}", rows, 0),
    )
    return tuple(outcome for outcome in outcomes if outcome.batches or outcome.failed or outcome.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stopping(ProbesRecording):
    """A recording whose probes end where they were failed.

    Attributes:
        failed: The probes that were.
    """

    failed: set[str]

    def batches(self, probe: ProbeRecord) -> Iterator[StoredProbeBatch]:
        for stored in ProbesRecording.batches(self, probe):
            yield stored
            if probe.name in self.failed:
                return
