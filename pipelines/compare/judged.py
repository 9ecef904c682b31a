"""The result of a comparison, of its figures and of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paritygate.codec import to_data, with_finite
from paritygate.machine import is_int8_cut_off, machine_facts
from paritygate.models.source import OBJECTS, SourceKind
from paritygate.models.source_copy import is_source_copy, read_source_copy
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.probes import Answers
from paritygate.pipelines.compare.result import ComparisonResult, SideResult, code_notes, output_result, stratum_result
from paritygate.precision import Precision
from paritygate.signature import Signature, is_integer_dtype
from paritygate.validate.gate.candidate import Candidate, ModelCandidate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.undeclared_padding import said_once
from paritygate.validate.measure.check import Check, Kind, Status, Verdict, exit_code_of, verdict_of
from paritygate.validate.measure.limits import looser_than_default
from paritygate.validate.measure.tolerance import LIMIT_RULE
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.recording import Recording
from paritygate.validate.words.sentence import say


def _check_samples(job: ComparisonJob) -> tuple[Check, ...]:
    """Return a check on generated samples; none for real ones."""
    if job.samples.random is None:
        return ()
    return (Check(name="samples", status=Status.INCONCLUSIVE, words=say("samples.random")),)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenInputs:
    """The inputs of the samples: their dtypes, and what the models take."""

    dtypes: Mapping[str, str]
    takes: frozenset[str]  # of either model; empty if unknown
    specs: tuple[tuple[str, str], ...]  # the names and dtypes of the reference's inputs, then of the candidate's

    @classmethod
    def of(
        cls, dtypes: Mapping[str, str], expected: ExpectedOutputs, reference: Signature | None, candidate: Candidate
    ) -> SeenInputs:
        """Return the inputs of samples that both sides ran on."""
        signatures = [reference, candidate.signature if isinstance(candidate, ModelCandidate) else None]
        specs = (spec for signature in signatures if signature is not None for spec in signature.inputs)
        takes = (expected.inputs or frozenset()) | (candidate.input_names or frozenset())
        return cls(dtypes=dtypes, takes=takes, specs=tuple((spec.name, spec.dtype) for spec in specs))

    def notes(self) -> Iterator[str]:
        """Yield a note on inputs that no side takes, and on each input whose integers are cast."""
        unused = [name for name in self.dtypes if self.takes and name not in self.takes]
        if unused:
            listed = ", ".join(map(repr, unused))
            yield f"the samples also hold {listed}, which is not an input of the model: it was not used"
        for name, dtype in self.dtypes.items():
            taken = dict.fromkeys(own for spec, own in self.specs if spec == name and own != dtype)
            # Only integers are cast, and text has another name in NumPy.
            if taken and is_integer_dtype(dtype):
                casts = " and ".join(taken)
                yield f"the samples hold {name!r} as {dtype}, and were cast to {casts}, which holds every value"


def _check_texts(inputs: SeenInputs, answers: Answers) -> tuple[Check, ...]:
    """Return a warning on inputs of text, which probes leave as it is, unless they know the keys of a graph."""
    asked = answers.result.asked
    if not asked or ("keys" in asked and asked["keys"].batches):
        return ()
    return tuple(
        Check(name="probes_of_text", status=Status.WARNING, kind=Kind.NOT_ASKED, words=say("probes.text", input=name))
        for name, dtype in inputs.dtypes.items()
        if dtype.startswith("str") and (not inputs.takes or name in inputs.takes)
    )


def result_of(  # noqa: PLR0913 - all that a comparison found
    job: ComparisonJob,
    result: GateResult,
    expected: ExpectedOutputs,
    sides: tuple[SideResult, SideResult],
    *,
    inputs: SeenInputs,
    answers: Answers,
    more: tuple[Check, ...] = (),
) -> ComparisonResult:
    """Return the result; `answers` are those to the probes, and `more` are checks beside those of the figures."""
    reference, candidate = sides
    measured = result.measurement
    checks = (
        _check_distinct(job, reference, candidate),
        *_check_calibration(job, measured.rows),
        *_check_provider(reference, candidate),
        *said_once((*result.checks, *_check_samples(job), *more, *answers.checks, *_check_texts(inputs, answers))),
    )
    verdict = verdict_of(checks)
    return ComparisonResult(
        verdict=str(verdict),
        exit_code=int(exit_code_of(verdict)),
        rows=measured.rows,
        batches=measured.batches,
        passes=measured.passes,
        precision=str(job.rules.precision),
        reference=reference,
        candidate=candidate,
        samples=job.samples.path or job.samples.text,
        samples_digest=result.samples_digest,
        tolerance=to_data(job.rules.tolerance),
        limit_rule=LIMIT_RULE,
        looser_than_default=list(looser_than_default(job.rules.tolerance, expected.profiles.values())),
        outputs={
            name: output_result(
                name, measured, expected.profiles[name], result.limits[name], result.looks_like.get(name, ())
            )
            for name in measured.statistics
        },
        decisions=dict(measured.decisions),
        mismatches=measured.mismatches,
        strata={
            name: {value: stratum_result(measured, result.limits) for value, measured in values.items()}
            for name, values in result.strata.items()
        },
        checks=list(checks),
        gold=dict(result.gold),
        matches={name: with_finite(item) for name, item in result.matches.items()},
        outputs_left_out=list(result.left_out),
        outputs_ignored=dict(job.rules.ignored),
        probes=answers.result,
        edge_findings=[finding for probe in answers.result.asked.values() for finding in probe.findings],
        notes=[*_notes(job, reference, candidate), *_note_on_int8(job, candidate, verdict), *inputs.notes()],
        machine=machine_facts(),
    )


def _check_distinct(job: ComparisonJob, reference: SideResult, candidate: SideResult) -> Check:
    models = (job.candidate, job.reference)
    are_objects = all(model.kind in OBJECTS for model in models)
    is_same = (
        candidate.digest is not None
        and candidate.digest == reference.digest
        and (candidate.runtime, candidate.version, candidate.device)
        == (reference.runtime, reference.version, reference.device)
        # Older recordings have no provider.
        and (None in {candidate.provider, reference.provider} or candidate.provider == reference.provider)
    )
    if is_same and job.candidate.is_recorded and job.reference.is_recorded:
        # Two models that agree bit for bit leave equal files, and so does a copy: they look the same here.
        words = say("distinct.recorded", digest=candidate.digest)
        return Check(name="distinct", status=Status.WARNING, words=words)
    changed = _changed_code(job) if is_same and job.may_be_the_source else ()
    if changed:
        return Check(name="distinct", status=Status.PASS, words=say("distinct.code", changed=changed))
    if is_same and (job.may_be_the_source or are_objects):
        words = say("distinct.objects" if are_objects else "distinct.source")
        return Check(name="distinct", status=Status.WARNING, words=words)
    if is_same:
        return Check(name="distinct", status=Status.ERROR, words=say("distinct.itself", digest=candidate.digest))
    return Check(name="distinct", status=Status.PASS, words=say("distinct"))


def _check_calibration(job: ComparisonJob, rows: int) -> tuple[Check, ...]:
    if job.calibrated_rows is None:
        return ()
    # Reading the samples skips calibrated rows.
    return (Check(name="calibration", status=Status.PASS, words=say("calibration", rows=rows), rows=rows),)


def _check_provider(reference: SideResult, candidate: SideResult) -> tuple[Check, ...]:
    """Return a warning for what a provider of either side leaves open or does otherwise than requested."""
    return tuple(
        Check(name="provider", status=Status.WARNING, words=say("provider", side=side, cause=text))
        for side, result in (("reference", reference), ("candidate", candidate))
        for text in result.provider_warnings
    )


def _changed_code(job: ComparisonJob) -> tuple[str, ...]:
    """Return the code files of a source's copy that changed, because its digest covers only parameters."""
    if not job.reference.is_recorded or not is_source_copy(job.candidate):
        return ()
    files = Recording.load(job.reference.path).model.get("files", {})
    copied = read_source_copy(job.candidate.folder.parent).files
    return tuple(name for name, digest in sorted(copied.items()) if files.get(name) != digest)


def _note_on_int8(job: ComparisonJob, candidate: SideResult, verdict: Verdict) -> list[str]:
    """Return a note on this processor if an INT8 model fails on it."""
    is_run_here = candidate.kind in {str(SourceKind.ONNX), str(SourceKind.OPENVINO)} and candidate.device == "cpu"
    if (
        job.rules.precision is not Precision.INT8
        or verdict is not Verdict.FAIL
        or not is_run_here
        or not is_int8_cut_off()
    ):
        return []
    note = (
        "this processor has no VNNI, so sums of INT8 products may saturate at 16 bits. Outputs may differ on "
        "a processor with VNNI: validate there too (pack --run DIR here, then unpack and validate)"
    )
    return [note]


def _notes(job: ComparisonJob, reference: SideResult, candidate: SideResult) -> list[str]:
    notes = [f"reference: {note}" for note in reference.notes] + [f"candidate: {note}" for note in candidate.notes]
    precision = candidate.precision_found
    if precision is not None and precision != str(job.rules.precision):
        notes.append(f"the precision found in the candidate is {precision}, judged as {job.rules.precision}")
    if job.rules.argmax_of:
        notes += [f"{label} is declared the argmax of {scores}" for label, scores in job.rules.argmax_of.items()]
    notes += [f"metric {rule.metric} is code of yours" for rule in job.rules.gold if rule.is_function]
    return [*notes, *code_notes(reference, candidate)]
