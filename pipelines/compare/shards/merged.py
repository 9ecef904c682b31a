"""Merge the parts of a comparison into its result: no model is opened, and no sample."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from paritygate.codec import from_data, from_json
from paritygate.errors import InputFileError, UsageError
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.judged import SeenInputs, result_of
from paritygate.pipelines.compare.probes import Answers, broken_contract, not_asked
from paritygate.pipelines.compare.result import ComparisonResult, SideResult
from paritygate.pipelines.compare.shards.excuses import caps_of, with_excuses
from paritygate.pipelines.compare.shards.part import Part, check_together, read_part, reading_part
from paritygate.pipelines.compare.shards.shard import check_rules_can_be_cut
from paritygate.validate.gate.measures import GateResult, Measures
from paritygate.validate.measure.check import NOT_ASKED, Cause, Status
from paritygate.validate.measure.parts.exact_comparison import ExactComparison
from paritygate.validate.reference.recorded import expected_from_recording
from paritygate.validate.reference.recording import Recording
from paritygate.validate.words.sentence import say


def merge_parts(paths: Sequence[Path]) -> tuple[ComparisonJob, ComparisonResult]:
    """Return the comparison whose parts are in these files, in any order, and its result.

    Raises:
        InputFileError: A file is not a part, or it is corrupt.
        ArtifactIntegrityError: A part was changed after it was written.
        UsageError: Parts are of several comparisons, missing, or there twice.
    """
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        msg = f"{twice} is given twice"
        raise UsageError(msg, hint="give each part once")
    parts = {path: read_part(path) for path in paths}
    order = check_together(parts)
    # Each value may have its type, and they do not fit together.
    with reading_part(order[0].parent):
        return _merged(order, [parts[path] for path in order])


def _merged(order: Sequence[Path], parts: Sequence[Part]) -> tuple[ComparisonJob, ComparisonResult]:
    first = parts[0]
    job, recording = _of_first(order[0], first)
    expected = expected_from_recording(recording)

    empty = functools.partial(Measures, expected, job.rules, ExactComparison)

    def measured(others: Sequence[Mapping[str, Any] | None]) -> GateResult:
        measures = empty()
        measures.compare_names(first.facts)
        for path, part, other in zip(order, parts, others, strict=True):
            measures.take_in(_read(empty(), path, part, part.measures if other is None else other))
        measures.end_pass()
        return measures.finish(first.facts, samples_digest=first.binding.samples)

    result = measured([None] * len(parts))
    if result.measurement.rows != recording.rows:
        msg = f"the parts hold {result.measurement.rows} of {recording.rows} rows"
        raise InputFileError(msg, hint="make the parts again")
    caps = caps_of(empty(), recording.rows)
    result = with_excuses(result, [part.excuses for part in parts], caps, measured)
    unread = (name for part in parts for name in part.unread)
    result = replace(result, left_out=tuple(dict.fromkeys((*result.left_out, *unread))))
    broken = broken_contract(result.checks)
    answers = not_asked(job, broken) if broken else _answers(first)
    seconds = sum(part.pass_seconds for part in parts)
    merged = result_of(
        job,
        result,
        expected,
        (first.reference, _candidate(parts)),
        inputs=SeenInputs(
            dtypes={name: dtype for part in parts for name, dtype in part.dtypes.items()},
            takes=(expected.inputs or frozenset()) | (first.facts.input_names or frozenset()),
            specs=first.facts.inputs,
        ),
        answers=replace(answers, result=replace(answers.result, samples_seconds=seconds)),
    )
    is_failed = any(check.status is Status.FAIL for check in result.checks)
    causes = [Cause(kind="trials", outcome=NOT_ASKED, words=say("cause.merged"))] if is_failed else []
    return job, replace(merged, machine=first.machine, causes=causes, seconds=sum(part.seconds for part in parts))


def _of_first(path: Path, part: Part) -> tuple[ComparisonJob, Recording]:
    """Return the comparison, and the record of its reference without the outputs."""
    with reading_part(path, part):
        job = from_data(ComparisonJob, part.job)
        recording = from_json(Recording, {**(part.recording or {}), "folder": part.reference.name})
    # A function would be code that a file names.
    check_rules_can_be_cut(job.rules)
    return job, recording


def _read(measures: Measures, path: Path, part: Part, data: Mapping[str, Any]) -> Measures:
    with reading_part(path, part):
        measures.read(data)
    return measures


def _answers(first: Part) -> Answers:
    if first.probes is None:
        msg = "the probes of the first part are missing"
        raise ValueError(msg)
    return Answers(checks=tuple(first.probe_checks or ()), result=first.probes)


def _candidate(parts: Sequence[Part]) -> SideResult:
    """Return the description of the candidate, with the notes of all parts."""
    notes = dict.fromkeys(note for part in parts for note in part.candidate.notes)
    warnings = dict.fromkeys(text for part in parts for text in part.candidate.provider_warnings)
    return replace(parts[0].candidate, notes=list(notes), provider_warnings=list(warnings))
