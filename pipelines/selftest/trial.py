"""Run the gate on one ONNX file, on samples and probes, in this process.

A probe stops at its first failure, because a selftest needs no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from paritygate.files import make_marked_folder, remove_marked_folder
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.probes import broken_contract, question_of, recorded_probes
from paritygate.pipelines.compare.reproduction import FailureStore
from paritygate.pipelines.compare.session_probes import Unclipped
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.selftest.result import FindingResult
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.measure.check import Check, Status, Verdict, verdict_of
from paritygate.validate.measure.limits import Limits
from paritygate.validate.probes.recording import ProbeRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.run import FailedBatch, ProbeOutcome, run_probes
from paritygate.validate.reference.recorded import expected_from_recording
from paritygate.validate.reference.recording import Recording
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.samples import open_samples


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultTrial:
    """The outcome of one file: checks on samples, one per probe that ran, and rows of probes to the first failure."""

    checks: tuple[Check, ...]
    probe_checks: tuple[Check, ...]
    probe_rows: Mapping[str, int]
    limits: Mapping[str, Limits]
    rows: int

    @property
    def verdict(self) -> Verdict:
        """The gate's verdict on the file."""
        return verdict_of((*self.checks, *self.probe_checks))

    @property
    def by_samples(self) -> list[FindingResult]:
        """The failed checks on the samples."""
        return _findings(self.checks, (Status.FAIL,))

    @property
    def by_probes(self) -> list[FindingResult]:
        """The failed probes."""
        return _findings(self.probe_checks, (Status.FAIL,))

    @property
    def at_edge(self) -> list[str]:
        """The checks that differ only where no sample is, or at padding."""
        names = (check.name for check in (*self.checks, *self.probe_checks) if check.status is Status.EDGE)
        return list(dict.fromkeys(names))

    @property
    def no_passes(self) -> list[FindingResult]:
        """Every check that keeps the file from passing."""
        return _findings((*self.checks, *self.probe_checks), (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE))


def _findings(checks: tuple[Check, ...], statuses: tuple[Status, ...]) -> list[FindingResult]:
    return [
        FindingResult(check=check.name, output=check.output, detail=check.detail)
        for check in checks
        if check.status in statuses
    ]


def open_mutated(job: ComparisonJob, path: Path) -> Runner:
    """Return the runner of a file in place of the job's candidate; raise BackendError if the runtime refuses it."""
    model = replace(job.candidate, text=path.name, folder=path.parent, kind=SourceKind.ONNX)
    return open_model(model, job.device)


def try_file(runner: Runner, job: ComparisonJob, folder: Path, report: Progress, what: str) -> FaultTrial:
    """Compare a loaded file with the recording, as `validate` does; raise MeasurementError for other samples."""
    recording = Recording.load(job.reference.path)
    candidate = ModelCandidate(runner)
    workspace = make_marked_folder(folder / "passes")
    result = run_gate(
        candidate,
        expected_from_recording(recording),
        open_samples(job.samples),
        job.rules,
        workspace=workspace,
        progress=lambda _, rows: report(f"{what}: samples", rows, recording.rows),
    )
    remove_marked_folder(workspace)
    # A broken contract is broken in every probe as well.
    is_asked = not broken_contract(result.checks)
    outcomes = ask_until_failed(
        job,
        candidate,
        recorded_probes(job.reference.path) if is_asked else None,
        tuple(result.limits),
        lambda _, done, total: report(f"{what}: probes", done, total),
        unclipped=Unclipped(job, folder, ref=runner.loaded.ref),
    )
    return FaultTrial(
        checks=result.checks,
        probe_checks=tuple(outcome.check for outcome in outcomes),
        probe_rows={outcome.name: outcome.rows for outcome in outcomes},
        limits=result.limits,
        rows=result.measurement.rows,
    )


def ask_until_failed(  # noqa: PLR0913 - all that a probe hangs on
    job: ComparisonJob,
    candidate: ModelCandidate,
    recording: ProbesRecording | None,
    outputs: tuple[str, ...],
    report: Progress,
    *,
    unclipped: Unclipped,
) -> tuple[ProbeOutcome, ...]:
    """Return the outcome of each probe that ran; one that passes ran completely. `recording` is None without probes."""
    if recording is None or recording.skipped or not job.rules.probes:
        return ()
    failed: set[str] = set()

    def note(probe: str, batch: FailedBatch) -> str:
        if not batch.is_finding:
            failed.add(probe)
        return ""

    recorded = {item.name: getattr(recording, item.name) for item in fields(recording)}
    stopping = _Stopping(**recorded, failed=failed)
    asked = question_of(job, candidate, FailureStore(job, recording), outputs, unclipped)
    question = replace(asked, keep=note, judges_at_once=True)
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
    """A recording whose probes stop once they are in `failed`."""

    failed: set[str]

    def batches(self, probe: ProbeRecord) -> Iterator[StoredProbeBatch]:
        for stored in ProbesRecording.batches(self, probe):
            yield stored
            if probe.name in self.failed:
                return
