"""The job of one shard of a comparison, run in a child process."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate import __version__
from paritygate.codec import from_data, to_data, with_fields_of
from paritygate.errors import UsageError
from paritygate.machine import machine_facts
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.judged import SeenInputs
from paritygate.pipelines.compare.opening import OpenedReference, open_candidate, open_reference, reference_again
from paritygate.pipelines.compare.output_cache import OutputCache
from paritygate.pipelines.compare.probes import Answers, ask_all, broken_contract, not_asked
from paritygate.pipelines.compare.progress_file import PartialResultFile
from paritygate.pipelines.compare.session_probes import ComparisonContext
from paritygate.pipelines.compare.shards.excuses import ShardRerun, excuses_of
from paritygate.pipelines.compare.shards.part import (
    Binding,
    CandidateFacts,
    Part,
    labels_digest,
    part_there,
    rules_digest,
    write_part,
)
from paritygate.pipelines.compare.shards.shard import MOST_GOLD_ROWS, ShardResult
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.child_main import serve
from paritygate.validate.gate.candidate import Candidate, ModelCandidate
from paritygate.validate.gate.gate import Passes
from paritygate.validate.gate.measures import Measures
from paritygate.validate.gate.rule_checks import check_ignored
from paritygate.validate.measure.parts.exact_comparison import ExactComparison
from paritygate.validate.probes.probe_budget import SamplesCost
from paritygate.validate.reference.batch_range import nth_range, only_range
from paritygate.validate.reference.recording import Recording
from paritygate.validate.runners.onnxruntime_providers import prepare_process
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.split import RowsLeftOut

if TYPE_CHECKING:
    from paritygate.batch import Batch
    from paritygate.pipelines.compare.result import SideResult
    from paritygate.validate.runners.runner import Runner


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opened:
    """The models of a comparison, which stay open for all shards."""

    job: ComparisonJob
    folder: Path
    reference: OpenedReference
    recording: Recording
    candidate: Candidate
    side: SideResult  # of the candidate
    binding: Binding  # but for the number of shards
    open_source: Callable[[], Runner]
    time_limit_s: float


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any] | None:
    """Open the models, and write the part of the one shard that is asked for, or of each that a request asks for."""
    measured = functools.partial(_measured, _open(args, report), report)
    if "request" in args:
        return measured(args["request"])
    serve(args, report, measured)
    return None


def _open(args: Mapping[str, Any], report: Progress) -> _Opened:
    job = from_data(ComparisonJob, args["job"])
    folder = Path(args["folder"])
    prepare_process(job.candidate.provider)
    read = open_samples(job.samples)
    reference = open_reference(job, folder, read, report, PartialResultFile(folder))
    recording = Recording.load(job.reference.path)
    _check_gold(job, recording)
    batches = nth_range(recording, 1, 1).batches
    candidate, side, job = open_candidate(job, reference, read, report, OutputCache())
    if side.digest is None:
        msg = f"a comparison in parts needs a candidate with a digest, and {job.candidate.name} has none"
        raise UsageError(msg, hint="give a model file, or compare without --shard and --workers")
    return _Opened(
        job=job,
        folder=folder,
        reference=reference,
        recording=recording,
        candidate=candidate,
        side=side,
        binding=Binding(
            paritygate=__version__,
            shards=1,
            reference=recording.digest,
            candidate=side.digest,
            samples=recording.samples_digest,
            source="" if job.source is None else str(recording.model.get("digest")),
            # The recorded digests of batches cover inputs alone.
            labels=labels_digest(islice((batch for batch in read() if batch.rows), batches), job.rules),
            rules=rules_digest(job),
            batches=batches,
        ),
        open_source=functools.cache(lambda: _source(job, reference, read)),
        time_limit_s=float(args["time_limit_s"]),
    )


def _measured(models: _Opened, report: Progress, request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a shard, write its part, and return its place as JSON data."""
    started = time.monotonic()
    job, opened, recording, candidate = models.job, models.reference, models.recording, models.candidate
    (number, of), out = request["shard"], Path(request["out"])
    batches = nth_range(recording, number, of)
    binding = replace(models.binding, shards=of)
    there = part_there(out, binding, number)
    if there is not None:
        return to_data(_result(there, is_unchanged=True))
    dtypes: dict[str, str] = {}

    def watched() -> Iterator[Batch]:
        for batch in batches.read(job.samples):
            dtypes.update((name, array.dtype.name) for name, array in batch.inputs.items())
            yield batch

    check_ignored(opened.expected.output_names | candidate.output_names, job.rules)
    expected = only_range(opened.expected, recording, batches)

    def measure(candidate: Candidate) -> Measures:
        compare = functools.partial(ExactComparison, rows_before=batches.rows_before)
        measures = Measures(expected, job.rules, compare)
        if batches.first == batches.last:
            measures.end_pass()
            return measures
        # In a folder that is removed even if this process is killed.
        with tempfile.TemporaryDirectory(dir=models.folder) as workspace:
            passes = Passes(
                candidate=candidate,
                expected=expected,
                measures=measures,
                left_out=RowsLeftOut(),
                workspace=Path(workspace),
            )
            passes.run(watched, lambda _, rows: report(f"running the candidate, shard {number} of {of}", rows, 0))
        return measures

    before, spent = time.monotonic(), time.process_time()
    measures = measure(candidate)
    passed, spent = time.monotonic() - before, time.process_time() - spent
    part = Part(
        binding=binding,
        shard=number,
        first=batches.first,
        last=batches.last,
        rows=batches.rows,
        reference=opened.side,
        candidate=models.side,
        facts=_facts(candidate, SeenInputs.of(dtypes, opened.expected, opened.signature, candidate)),
        dtypes=dtypes,
        measures=measures.to_data(),
        excuses={}
        if job.source is None
        else excuses_of(
            measures,
            ShardRerun(
                candidate=candidate,
                expected=expected,
                open_reference=models.open_source,
                measure=measure,
                rows=recording.rows,
            ),
        ),
        machine=machine_facts(),
        pass_seconds=passed,
    )
    if number == 1:
        # Of a few rows, it is what all rows would have cost.
        seconds = spent / max(batches.rows * job.rules.passes, 1)
        samples = SamplesCost(rows=recording.rows, values=0, seconds=seconds * recording.rows)
        place = ComparisonContext(
            folder=models.folder,
            deadline=started + models.time_limit_s,
            samples=samples,
            report=report,
            models=OutputCache(),
        )
        answers = _answers(job, candidate, opened, measures, place)
        part = replace(
            part,
            job=to_data(job),
            # The chunks would grow with the rows.
            recording=to_data(replace(recording, chunks={})),
            probe_checks=list(answers.checks),
            probes=answers.result,
        )
    if isinstance(candidate, ModelCandidate):
        facts = candidate.facts
        part = replace(part, candidate=replace(models.side, notes=list(facts.notes)), unread=facts.unread)
    write_part(out, replace(part, seconds=time.monotonic() - started))
    return to_data(_result(part, is_unchanged=False))


def _answers(
    job: ComparisonJob, candidate: Candidate, opened: OpenedReference, measures: Measures, place: ComparisonContext
) -> Answers:
    """Run the probes, unless the rows of this shard show already that the contract is broken."""
    names = Measures(opened.expected, job.rules)
    names.compare_names(candidate)
    broken = broken_contract((*names.checks(), *measures.checks()))
    return not_asked(job, broken) if broken else ask_all(job, candidate, opened.probes, measures.compared, place)


def _source(job: ComparisonJob, opened: OpenedReference, read: Callable[[], Iterator[Batch]]) -> Runner:
    runner = reference_again(job, opened, read, OutputCache())
    if runner is None or job.source is None:
        msg = f"--source {'' if job.source is None else job.source.name} could not be opened"
        raise UsageError(msg, hint="compare where the model and its framework are, or leave --source out of all shards")
    return runner


def _facts(candidate: Candidate, inputs: SeenInputs) -> CandidateFacts:
    return CandidateFacts(
        output_names=candidate.output_names,
        input_names=candidate.input_names,
        classes={name: list(classes) for name, classes in candidate.classes.items()},
        warnings=candidate.warnings,
        inputs=inputs.specs,
    )


def _check_gold(job: ComparisonJob, recording: Recording) -> None:
    if job.rules.gold and recording.rows > MOST_GOLD_ROWS:
        most = f"{MOST_GOLD_ROWS:,} rows at most, and the reference has {recording.rows:,}"
        msg = f"a comparison in parts takes --gold for {most}"
        raise UsageError(msg, hint="leave --gold out, or compare fewer rows without --shard and --workers")


def _result(part: Part, *, is_unchanged: bool) -> ShardResult:
    return with_fields_of(
        ShardResult,
        part,
        part="",
        shards=part.binding.shards,
        batches=part.binding.batches,
        is_unchanged=is_unchanged,
    )
