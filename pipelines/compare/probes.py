"""Run the candidate on the probes, and compare it with the reference's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.codec import with_fields_of
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.probe_request import Graph, ProbeRequest
from paritygate.pipelines.compare.result import (
    NOT_ASKED,
    DroppedResult,
    ProbeFailureResult,
    ProbeResult,
    ProbesResult,
    RoleResult,
)
from paritygate.pipelines.compare.unfit_inputs import UnfitInputs
from paritygate.validate.gate.candidate import Candidate, ModelCandidate
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.probes.catalogue import ALL_PROBES, ASKED_AGAIN, SESSION_PROBES, to_record
from paritygate.validate.probes.recording import PROBES_FILE, PROBES_FOLDER, ProbeRecord, ProbesRecording
from paritygate.validate.probes.skip_reasons import DropKind, drop_words
from paritygate.validate.words.sentence import render, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.pipelines.compare.reproduction import FailureStore
    from paritygate.pipelines.compare.session_probes import ComparisonContext
    from paritygate.validate.probes.outcome import ProbeFailure
    from paritygate.validate.probes.run import ProbeOutcome, ProbeQuestion

    Outputs = dict[str, NDArray[np.generic]]

_SHOWN = 3
_ACCEPTS = "accepts_inputs"
_GIVEN = "outputs that were recorded elsewhere cannot run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """The outcome of the probes."""

    checks: tuple[Check, ...]  # one a probe that ran
    result: ProbesResult  # as the report has it


def request_of(job: ComparisonJob) -> ProbeRequest:
    """Return the probes of a reference that is a model.

    They follow from either side's ONNX graph, and from the dims that a side was released with.
    """
    models = (job.reference, job.candidate)
    onnx_model = next((model for model in models if model.kind is SourceKind.ONNX), None)
    graph = None if onnx_model is None else Graph(path=onnx_model.path, rename=onnx_model.rename)
    dims = job.reference.dims or job.candidate.dims
    return ProbeRequest(names=job.rules.probes, dims=dims, roles=job.roles, graph=graph, seed=job.rules.seed)


def recorded_probes(outputs: Path) -> ProbesRecording | None:
    """Return the probes recorded with a reference; None if none were."""
    folder = outputs / PROBES_FOLDER
    return ProbesRecording.load(folder) if (folder / PROBES_FILE).is_file() else None


def question_of(
    job: ComparisonJob,
    candidate: ModelCandidate,
    store: FailureStore,
    outputs: tuple[str, ...],
    unclipped: Callable[[Batch], Outputs | None] = lambda _: None,
) -> ProbeQuestion:
    """Return the comparison of one probe's outputs.

    `unclipped` returns the outputs of an INT8 candidate without activation ranges.
    """
    from paritygate.validate.probes.run import ProbeQuestion

    return ProbeQuestion(
        rules=job.rules,
        outputs=outputs,
        unfit=UnfitInputs(candidate.signature, job.candidate.fixed_shape, candidate.facts.largest_batch),
        runtime=candidate.facts.runtime,
        unclipped=unclipped,
        keep=store.keep,
    )


def ask_all(
    job: ComparisonJob,
    candidate: Candidate,
    recording: ProbesRecording | None,
    outputs: tuple[str, ...],
    place: ComparisonContext,
) -> Answers:
    """Run the candidate on the reference's probes, then on some batches in other ways, by the session probes.

    `recording` is None where the reference could not run on the probes.
    """
    skipped = _why_not(candidate, recording)
    if not job.rules.probes or skipped or recording is None or not isinstance(candidate, ModelCandidate):
        return not_asked(job, skipped)
    # A comparison without probes is spared all of this.
    from paritygate.pipelines.compare.reproduction import FailureStore
    from paritygate.pipelines.compare.session_probes import Unclipped, session_plan
    from paritygate.validate.probes.run import run_probes
    from paritygate.validate.probes.sessions.session import run_sessions

    store = FailureStore(job, recording)
    outcomes = run_probes(
        candidate,
        recording,
        question_of(job, candidate, store, outputs, Unclipped(job, place.folder, place.models)),
        names=job.rules.probes,
        progress=lambda name, rows: place.report(f"running the candidate: probe {name}", rows, 0),
    )
    failed = next((item.failed_batches for item in outcomes if item.name == ASKED_AGAIN), frozenset())
    plan = session_plan(job, candidate, outputs, place, failed_before=failed)
    question = question_of(job, candidate, store, outputs)
    outcomes += run_sessions(candidate, recording, question, plan, job.rules.probes)
    records = {record.name: record for record in recording.probes}
    missing = [name for name in to_record(job.rules.probes) if name not in records]
    checks = (check for item in outcomes if item.is_check for check in (item.check, *item.padded, *item.warnings))
    return Answers(
        checks=(*_checks_of_missing(missing, job), *checks),
        result=ProbesResult(
            asked={outcome.name: _probe_result(outcome, records.get(outcome.name), store) for outcome in outcomes},
            switched_off=_switched_off(job),
            not_recorded=missing,
            roles={name: RoleResult(role=str(role.role), why=role.why) for name, role in recording.roles.items()},
            seed=recording.seed,
            edge=str(job.rules.edge),
        ),
    )


def not_asked(job: ComparisonJob, why: str) -> Answers:
    """Return that no probe ran, for a reason or because all are switched off."""
    reason = why if job.rules.probes else ""
    words = say("probes.not_asked", reason=reason)
    unasked = Check(name="probes", status=Status.WARNING, kind=Kind.NOT_ASKED, words=words)
    return Answers(
        checks=(unasked,) if reason else (),
        result=ProbesResult(switched_off=_switched_off(job), skipped=reason, edge=str(job.rules.edge)),
    )


def broken_contract(checks: Sequence[Check]) -> str:
    """Return a message if the candidate breaks the contract on the samples already; else nothing."""
    broken = next((check for check in checks if check.status is Status.FAIL and _is_of_contract(check)), None)
    if broken is None:
        return ""
    if broken.name == _ACCEPTS:
        return "the candidate does not answer all samples"
    return f"the candidate's inputs or outputs are not those of the reference ({broken.name})"


def _switched_off(job: ComparisonJob) -> list[str]:
    return [name for name in ALL_PROBES if name not in job.rules.probes]


def _why_not(candidate: Candidate, recording: ProbesRecording | None) -> str:
    if not isinstance(candidate, ModelCandidate):
        return f"the candidate: {_GIVEN}"
    return f"the reference: {_GIVEN}" if recording is None else recording.skipped


def _is_of_contract(check: Check) -> bool:
    return check.name == _ACCEPTS or check.name.startswith("contract")


def _checks_of_missing(missing: Sequence[str], job: ComparisonJob) -> tuple[Check, ...]:
    if not missing:
        return ()
    words = say("probes.not_recorded", probes=missing)
    again = [name for name in job.rules.probes if name in SESSION_PROBES]
    if ASKED_AGAIN in missing and again:
        words += say("probes.nor", probes=again)
    return (Check(name="probes", status=Status.WARNING, kind=Kind.NOT_ASKED, words=words),)


def _probe_result(outcome: ProbeOutcome, record: ProbeRecord | None, store: FailureStore) -> ProbeResult:
    return with_fields_of(
        ProbeResult,
        outcome,
        looks_for=ALL_PROBES[outcome.name].looks_for,
        status=str(outcome.status) if outcome.batches or outcome.failed or outcome.error else NOT_ASKED,
        kind=str(outcome.kind),
        words=list(outcome.words),
        detail=render(outcome.words),
        dropped=sum(outcome.dropped.values()),
        dropped_by={str(kind): _dropped_result(kind, count, record) for kind, count in outcome.dropped.items()},
        unfit=len(outcome.unfit),
        unfit_first=list(outcome.unfit[:_SHOWN]),
        notes=[] if record is None else list(record.notes),
        failures=[_failure_result(item, outcome, store) for item in outcome.failures],
        findings=[_failure_result(item, outcome, store) for item in outcome.findings],
        reference_seconds=None if record is None else record.seconds,
    )


def _failure_result(failure: ProbeFailure, outcome: ProbeOutcome, store: FailureStore) -> ProbeFailureResult:
    return ProbeFailureResult(
        probe=outcome.name,
        batch=failure.batch,
        about=failure.about,
        check=failure.check,
        words=list(failure.words),
        detail=render(failure.words),
        inputs=failure.inputs or None,
        again=store.again(outcome.name, failure),
        edge=failure.edge,
        batches=outcome.found.get(failure.edge, 1),
        if_it_occurs=" and ".join(dict.fromkeys(filter(None, (edge.if_it_occurs for edge in failure.edges)))),
        if_it_never_occurs=" or ".join(
            dict.fromkeys(filter(None, (edge.if_it_never_occurs for edge in failure.edges)))
        ),
    )


def _dropped_result(kind: DropKind, count: int, record: ProbeRecord | None) -> DroppedResult:
    named = () if record is None else tuple(item for item in record.dropped if item.kind is kind)
    (words,) = drop_words({kind: count}, rows=0 if record is None else record.allowed_rows)
    return DroppedResult(
        batches=count, in_words=words, first=[f"{item.about}: {item.reason}" for item in named[:_SHOWN]]
    )
