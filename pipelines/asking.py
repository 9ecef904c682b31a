"""Probes as a part of comparing: where the reference's answers are, and what the candidate answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.fixed_shape import FixedShape, read_fixed_shape
from paritygate.pipelines.child import Progress
from paritygate.pipelines.comparison import ComparisonJob
from paritygate.pipelines.probing import PROBES_FOLDER, Graph, ProbeRequest
from paritygate.pipelines.result import ProbeFailureResult, ProbeResult, ProbesResult, RoleResult
from paritygate.source import SourceKind
from paritygate.validate.candidate import Candidate, ModelCandidate
from paritygate.validate.probes.probe import PROBES
from paritygate.validate.probes.recording import PROBES_FILE, ProbesRecording
from paritygate.validate.probes.run import ProbeOutcome, ProbeQuestion, run_probes
from paritygate.validate.verdict import Check, Status

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

__all__ = ["Answers", "ask", "recorded_probes", "request_of"]

_GIVEN = "outputs that were recorded elsewhere cannot be asked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What came of asking.

    Attributes:
        checks: One a probe that asked something.
        result: All of it, as the report has it.
    """

    checks: tuple[Check, ...]
    result: ProbesResult


def request_of(job: ComparisonJob) -> ProbeRequest:
    """Return which probes to make of the reference, where it is a model: what either side's ONNX graph says counts."""
    sides = (job.reference, job.candidate)
    found = next((side for side in sides if side.model is not None and side.model.kind is SourceKind.ONNX), None)
    graph = None if found is None or found.model is None else Graph(path=found.model.path, rename=found.rename)
    return ProbeRequest(names=job.probes, graph=graph, seed=job.seed)


def recorded_probes(outputs: Path) -> ProbesRecording | None:
    """Return the probes recorded with a reference; None if none were."""
    folder = outputs / PROBES_FOLDER
    return ProbesRecording.load(folder) if (folder / PROBES_FILE).is_file() else None


def ask(
    job: ComparisonJob,
    candidate: Candidate,
    recording: ProbesRecording | None,
    outputs: tuple[str, ...],
    report: Progress,
) -> Answers:
    """Ask the candidate what the reference was asked.

    Args:
        job: The comparison.
        candidate: What answers.
        recording: The probes, with the reference's answers; None where the reference could not be asked.
        outputs: The outputs that are compared.
        report: Takes the progress.
    """
    wanted = tuple(name for name in PROBES if name in job.probes)
    off = [name for name in PROBES if name not in wanted]
    skipped = ""
    if wanted and not isinstance(candidate, ModelCandidate):
        skipped = f"the candidate: {_GIVEN}"
    elif wanted and recording is None:
        skipped = f"the reference: {_GIVEN}"
    elif recording is not None and wanted:
        skipped = recording.skipped
    if not wanted or skipped or recording is None:
        checks = (Check(name="probes", status=Status.WARNING, detail=f"not asked: {skipped}"),) if skipped else ()
        return Answers(checks=checks, result=ProbesResult(switched_off=off, skipped=skipped))
    question = ProbeQuestion(
        tolerance=job.tolerance,
        precision=job.precision,
        decisions=job.decisions,
        argmax_of=job.argmax_of,
        outputs=outputs,
        fits=_Fits(job),
    )
    outcomes = run_probes(
        candidate,
        recording,
        question,
        names=wanted,
        progress=lambda name, rows: report(f"asking the candidate: probe {name}", rows, 0),
    )
    return Answers(
        checks=tuple(outcome.check for outcome in outcomes if outcome.batches or outcome.dropped or outcome.unfit),
        result=ProbesResult(
            asked={outcome.name: _probe_result(outcome) for outcome in outcomes},
            switched_off=off,
            roles={name: RoleResult(role=str(role.role), why=role.why) for name, role in recording.roles.items()},
            seed=recording.seed,
        ),
    )


class _Fits:
    """Whether a candidate takes inputs of these shapes and values at all: one with fixed dims does not take all."""

    def __init__(self, job: ComparisonJob) -> None:
        path = job.candidate.fixed_shape
        self._rule: FixedShape | None = None if path is None else read_fixed_shape(path)

    def __call__(self, inputs: Arrays) -> bool:
        rule = self._rule
        if rule is None:
            return True
        for spec in rule.signature.inputs:
            array: NDArray[Any] = inputs[spec.name]
            for dim, size in zip(spec.shape or (), array.shape, strict=False):
                if isinstance(dim, str) and dim in rule.padded_dims and size > rule.dims[dim]:
                    return False
            if spec.name in rule.dtypes and not np.array_equal(
                array.astype(rule.dtypes[spec.name]).astype(array.dtype), array
            ):
                return False
        return True


def _probe_result(outcome: ProbeOutcome) -> ProbeResult:
    return ProbeResult(
        status=str(outcome.status),
        detail=outcome.detail,
        batches=outcome.batches,
        rows=outcome.rows,
        dropped=outcome.dropped,
        unfit=outcome.unfit,
        failed=outcome.failed,
        failures=[
            ProbeFailureResult(batch=item.batch, about=item.about, check=item.check, detail=item.detail)
            for item in outcome.failures
        ],
        seconds=outcome.seconds,
    )
