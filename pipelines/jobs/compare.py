"""The job of a comparison, run in a child process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data, with_fields_of, with_finite
from paritygate.importing import use_folder
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.excused.jumping_rows import without_jumps
from paritygate.pipelines.compare.excused.reference_noise import RerunContext, with_reference_noise
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.judged import SeenInputs, result_of
from paritygate.pipelines.compare.opening import (
    check_limits_are_used,
    open_candidate,
    open_reference,
    reference_again,
    why_apart,
)
from paritygate.pipelines.compare.output_cache import output_cache
from paritygate.pipelines.compare.probes import ask_all, broken_contract, not_asked
from paritygate.pipelines.compare.progress_file import PartialResultFile
from paritygate.pipelines.compare.served_version import check_served_version
from paritygate.pipelines.compare.session_probes import ComparisonContext, plain_opener, why_not_plain
from paritygate.pipelines.process.child import Progress
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.measure.check import Cause, Status
from paritygate.validate.measure.strata import strata_left_out
from paritygate.validate.probes.probe_budget import SamplesCost
from paritygate.validate.runners.onnxruntime_providers import prepare_process
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.split import RowsLeftOut


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Compare and return the result as JSON data; after an error, a file has what was known by then."""
    partial = PartialResultFile(Path(args["folder"]))
    # An earlier job may have left it.
    partial.remove()
    try:
        result = _compare(args, report, partial)
    except Exception:
        partial.write()
        raise
    partial.remove()
    return result


def _compare(args: Mapping[str, Any], report: Progress, partial: PartialResultFile) -> dict[str, Any]:
    started, spent = time.monotonic(), time.process_time()
    job = from_data(ComparisonJob, args["job"])
    folder = Path(args["folder"])
    prepare_process(job.candidate.provider)
    left_out = RowsLeftOut(strata=job.rules.strata, are_left_out=_calibrated(job))
    if any(rule.is_function for rule in job.rules.gold):
        use_folder(job.samples.folder)
    answers_in = args.get("answers")
    models = output_cache(
        None if answers_in is None else Path(answers_in), is_judged_only=bool(args.get("is_judged_only"))
    )
    read = models.samples(functools.partial(open_samples, job.samples))
    opened = open_reference(job, folder, read, report, partial)
    expected = opened.expected
    opening = time.process_time()
    candidate, candidate_side, job = open_candidate(job, opened, read, report, models)
    check_limits_are_used(job, opened, candidate)
    partial.add_candidate(candidate_side)
    sample_dtypes: dict[str, str] = {}
    inputs = SeenInputs.of(sample_dtypes, expected, opened.signature, candidate)
    apart = why_apart(job, expected.inputs, candidate.input_names)
    if apart:
        # The check of `--takes` replaces that of the gate.
        expected = replace(expected, inputs=None)

    def read_watched() -> Iterator[Batch]:
        for batch in read():
            sample_dtypes.update((name, array.dtype.name) for name, array in batch.inputs.items())
            yield batch

    (workspace := folder / "passes").mkdir(exist_ok=True)
    before, spent_before = time.monotonic(), time.process_time()

    def compared(number: int, rows: int) -> None:
        partial.count_rows(rows)
        report(f"running the candidate, pass {number} of {job.rules.passes}", rows, 0)

    result = run_gate(
        candidate, expected, read_watched, job.rules, workspace=workspace, left_out=left_out, progress=compared
    )
    passed = models.measured("passes", time.monotonic() - before)
    samples = SamplesCost(
        rows=result.measurement.rows * job.rules.passes,
        values=0,
        seconds=models.measured("passes_cpu", time.process_time() - spent_before),
    )
    again = RerunContext(
        candidate=candidate,
        expected=expected,
        read=read,
        rules=job.rules,
        left_out=left_out,
        workspace=folder / "again",
        # Opened once for all reruns.
        open_reference=functools.cache(lambda: reference_again(job, opened, read, models)),
    )
    result = without_jumps(with_reference_noise(result, again), again)
    deadline = started + float(args["time_limit_s"])
    place = ComparisonContext(folder=folder, deadline=deadline, samples=samples, report=report, models=models)
    why_not = apart or broken_contract(result.checks)
    answers = (
        not_asked(job, why_not) if why_not else ask_all(job, candidate, opened.probes, tuple(result.limits), place)
    )
    if isinstance(candidate, ModelCandidate):
        # Some notes count calls, and are complete only now.
        candidate_side = replace(candidate_side, notes=list(candidate.facts.notes))
        result = replace(result, left_out=tuple(dict.fromkeys((*result.left_out, *candidate.facts.unread))))
    causes = _causes(job, result, again, place, (time.process_time() - spent, spent_before - opening))
    served = check_served_version(job, candidate.facts.answered_as) if isinstance(candidate, ModelCandidate) else ()
    probes = replace(answers.result, samples_seconds=passed, reference_samples_seconds=opened.seconds)
    comparison = result_of(
        job,
        replace(result, checks=(*result.checks, *strata_left_out(left_out))),
        expected,
        (opened.side, candidate_side),
        inputs=inputs,
        answers=replace(answers, result=probes),
        more=served,
    )
    models.close()
    comparison = replace(comparison, causes=causes)
    return to_data(replace(comparison, seconds=time.monotonic() - started))


def _calibrated(job: ComparisonJob) -> Callable[[Batch], list[bool]] | None:
    """Return a function for rows that calibrated the candidate, which do not count; None where none did."""
    if job.calibrated_rows is None:
        return None
    from paritygate.pipelines.calibration.rows import CalibratedRows

    return CalibratedRows.load(job.calibrated_rows).are_in


def _causes(
    job: ComparisonJob, result: GateResult, again: RerunContext, place: ComparisonContext, times: tuple[float, float]
) -> list[Cause]:
    """Return the causes of failing rows; `times` are those of the comparison and of opening."""
    if all(check.status is not Status.FAIL for check in result.checks):
        return []
    # Loaded only where it is needed.
    from paritygate.validate.causes.cause import Case, Clock
    from paritygate.validate.causes.naming import causes_of, seconds_for_causes

    model, source = job.candidate, job.source if job.reference.is_recorded else job.reference
    limits = model.endpoint_limits
    is_served = isinstance(again.candidate, ModelCandidate) and again.candidate.loaded.is_served
    elapsed_s, opening_s = times
    case = with_fields_of(
        Case,
        again,
        result=result,
        model=None if model.is_recorded else model,
        reference_file=source.path if source is not None and source.kind is SourceKind.ONNX else None,
        open_plain=None if why_not_plain(job) else plain_opener(job, place.models, "plain-again"),
        clock=Clock(
            seconds_for_causes(elapsed_s),
            samples=(place.samples.seconds, place.samples.rows),
            opening=opening_s,
            deadline=place.deadline,
        ),
        is_asked=not is_served or (limits is not None and limits.trials > 0),
    )
    return [with_finite(cause) for cause in causes_of(case)]
