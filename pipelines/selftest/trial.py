"""One ONNX file through the gate, on samples and probes, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.files import make_marked_folder, remove_marked_folder
from paritygate.models.source import Source, SourceKind
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.opening import open_side
from paritygate.pipelines.compare.probes import broken_contract, recorded_probes
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.selftest.first_failures import ask_until_failed
from paritygate.pipelines.selftest.result import FindingResult
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.verdict import Check, Status, Verdict, verdict_of
from paritygate.validate.reference.recorded import expected_from_recording
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.samples import open_samples

if TYPE_CHECKING:
    from paritygate.validate.gate.tolerance import Limits
    from paritygate.validate.runners.runner import Runner

__all__ = ["Trial", "open_planted", "try_file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What came of one file.

    Attributes:
        checks: Every check on the samples.
        probe_checks: One check a probe that was asked something.
        probe_rows: Rows of each, up to its first failure.
        limits: The limits of each output on the samples.
        rows: Rows of the samples.
    """

    checks: tuple[Check, ...]
    probe_checks: tuple[Check, ...]
    probe_rows: Mapping[str, int]
    limits: Mapping[str, Limits]
    rows: int

    @property
    def verdict(self) -> Verdict:
        """What the gate says of the file."""
        return verdict_of((*self.checks, *self.probe_checks))

    @property
    def by_samples(self) -> list[FindingResult]:
        """The checks on the samples that failed."""
        return _findings(self.checks, (Status.FAIL,))

    @property
    def by_probes(self) -> list[FindingResult]:
        """The probes that failed."""
        return _findings(self.probe_checks, (Status.FAIL,))

    @property
    def at_edge(self) -> list[str]:
        """The probes in which something differs where no sample is, and nowhere else."""
        return [check.name for check in self.probe_checks if check.status is Status.EDGE]

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


def open_planted(job: ComparisonJob, path: Path) -> Runner:
    """Return the runner of a file that stands in for the job's candidate.

    Raises:
        BackendError: The runtime refuses the file.
    """
    model = Source(text=path.name, folder=path.parent, kind=SourceKind.ONNX)
    runner, _ = open_side(replace(job.candidate, model=model), job.device)
    return runner


def try_file(runner: Runner, job: ComparisonJob, folder: Path, report: Progress, what: str) -> Trial:
    """Hold a loaded file against the recorded reference, exactly as `validate` does.

    Args:
        runner: The file, loaded.
        job: The comparison; its reference is recorded.
        folder: A folder to work in.
        report: Takes the progress.
        what: What the file is, in words.

    Raises:
        MeasurementError: The samples are not those of the recording.
    """
    assert job.reference.outputs is not None  # noqa: S101 - a selftest records its reference
    recording = Recording.load(job.reference.outputs)
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
        recorded_probes(job.reference.outputs) if is_asked else None,
        tuple(result.limits),
        lambda _, done, total: report(f"{what}: probes", done, total),
    )
    return Trial(
        checks=result.checks,
        probe_checks=tuple(outcome.check for outcome in outcomes),
        probe_rows={outcome.name: outcome.rows for outcome in outcomes},
        limits=result.limits,
        rows=result.measurement.rows,
    )
