"""The job of a comparison, run in a child process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data, with_finite
from paritygate.errors import ArtifactIntegrityError, CacheMissError, ParitygateError, UsageError
from paritygate.files import digest_of_file
from paritygate.importing import use_folder
from paritygate.machine import is_int8_cut_off, machine_facts
from paritygate.models.example import Example, example_of
from paritygate.models.loading import load_model, naming_signatures
from paritygate.models.named_call import is_default_output_name
from paritygate.models.recorded_source import check_is_recorded
from paritygate.models.source import ModelRef, SourceKind
from paritygate.models.source_copy import is_source_copy, read_source_copy
from paritygate.pipelines.compare.excused.jumping_rows import without_jumps
from paritygate.pipelines.compare.excused.reference_noise import RerunContext, with_reference_noise
from paritygate.pipelines.compare.independent_batch_dims import with_rows_apart
from paritygate.pipelines.compare.infer_dims import signature_in_batch
from paritygate.pipelines.compare.job import OBJECTS, ComparisonJob
from paritygate.pipelines.compare.output_cache import OutputCache, output_cache
from paritygate.pipelines.compare.probes import (
    Answers,
    ask,
    ask_session_probes,
    broken_contract,
    not_asked,
    recorded_probes,
    request_of,
)
from paritygate.pipelines.compare.progress_file import PartialResultFile
from paritygate.pipelines.compare.result import (
    ComparisonResult,
    SideResult,
    code_notes,
    output_result,
    stratum_result,
)
from paritygate.pipelines.compare.served_version import check_served_version
from paritygate.pipelines.compare.session_probes import ComparisonContext, plain_opener, why_not_plain
from paritygate.pipelines.process.child import Progress
from paritygate.precision import Precision
from paritygate.signature import is_integer_dtype
from paritygate.text import meant
from paritygate.validate.gate.candidate import Candidate, ModelCandidate, RecordedCandidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rule_checks import check_asked
from paritygate.validate.gate.undeclared_padding import said_once
from paritygate.validate.measure.check import Cause, Check, Kind, Status, Verdict, exit_code_of, verdict_of
from paritygate.validate.measure.profile import with_activation_floors
from paritygate.validate.measure.strata import strata_left_out
from paritygate.validate.measure.tolerance import LIMIT_RULE, looser_than_default
from paritygate.validate.measure.valid_positions import ValidWhere, valid_positions
from paritygate.validate.probes.probe_budget import SamplesCost
from paritygate.validate.probes.recording import PROBES_FILE, PROBES_FOLDER, ProbesRecording
from paritygate.validate.reference.earlier_recording import load_to_judge
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recorded import (
    ExpectedOutputs,
    RecordedOutputs,
    expected_from_file,
    expected_from_recording,
    open_recording_reader,
)
from paritygate.validate.reference.recording import RECORD_FILE, Recording
from paritygate.validate.runners.onnxruntime_providers import prepare_process
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.samples import is_table, open_samples
from paritygate.validate.samples.split import RowsLeftOut
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from paritygate.batch import Batch
    from paritygate.signature import Signature


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
    opened = _open_reference(job, folder, read, report, partial)
    expected = opened.expected
    opening = time.process_time()
    candidate, candidate_side, job = _open_candidate(job, opened, read, report, models)
    partial.add_candidate(candidate_side)
    takes = (expected.inputs or frozenset()) | (candidate.input_names or frozenset())
    apart = _apart(job, expected.inputs, candidate.input_names)
    if apart:
        # The check of `--takes` replaces that of the gate.
        expected = replace(expected, inputs=None)
    sample_dtypes: dict[str, str] = {}

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
        candidate,
        expected,
        read_watched,
        job.rules,
        workspace=workspace,
        left_out=left_out,
        progress=compared,
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
        open_reference=functools.cache(lambda: _reference_again(job, opened, read, models)),
    )
    result = without_jumps(with_reference_noise(result, again), again)
    deadline = started + float(args["time_limit_s"])
    place = ComparisonContext(folder=folder, deadline=deadline, samples=samples, report=report, models=models)
    answers = not_asked(job, apart) if apart else _ask(job, candidate, opened.probes, result, place)
    unused = [name for name in sample_dtypes if takes and name not in takes]
    notes = [
        *_unused_inputs(unused),
        *_cast_inputs(sample_dtypes, opened.signature, candidate),
    ]
    if isinstance(candidate, ModelCandidate):
        # Some notes count calls, and are complete only now.
        candidate_side = replace(candidate_side, notes=list(candidate.notes))
    causes = _causes(job, result, again, place, (time.process_time() - spent, spent_before - opening))
    served = check_served_version(job, candidate.answered_as) if isinstance(candidate, ModelCandidate) else ()
    checks = tuple(
        said_once(
            (
                *result.checks,
                *strata_left_out(left_out),
                *_check_samples(job),
                *served,
                *answers.checks,
                *_check_texts([name for name in sample_dtypes if not takes or name in takes], sample_dtypes, answers),
            )
        )
    )
    comparison = _result(job, replace(result, checks=checks), expected, (opened.side, candidate_side))
    probes = replace(answers.result, samples_seconds=passed, reference_samples_seconds=opened.seconds)
    findings = [finding for probe in probes.asked.values() for finding in probe.findings]
    models.close()
    comparison = replace(
        comparison, notes=[*comparison.notes, *notes], probes=probes, edge_findings=findings, causes=causes
    )
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
    elapsed_s, opening_s = times
    case = Case(
        result=result,
        candidate=again.candidate,
        model=None if model.is_recorded else model,
        expected=again.expected,
        reference_file=source.path if source is not None and source.kind is SourceKind.ONNX else None,
        read=again.read,
        rules=again.rules,
        left_out=again.left_out,
        workspace=again.workspace,
        open_plain=None if why_not_plain(job) else plain_opener(job, place.models, "plain-again"),
        open_reference=again.open_reference,
        clock=Clock(
            seconds_for_causes(elapsed_s),
            samples=(place.samples.seconds, place.samples.rows),
            opening=opening_s,
            deadline=place.deadline,
        ),
        is_asked=model.kind is not SourceKind.ENDPOINT or (limits is not None and limits.trials > 0),
    )
    return [with_finite(cause) for cause in causes_of(case)]


def _check_samples(job: ComparisonJob) -> tuple[Check, ...]:
    """Return a check on generated samples; none for real ones."""
    if job.samples.random is None:
        return ()
    return (Check(name="samples", status=Status.INCONCLUSIVE, words=say("samples.random")),)


def _apart(job: ComparisonJob, reference: frozenset[str] | None, candidate: frozenset[str] | None) -> str:
    """Return why no probe can run, where the sides take different inputs of the samples."""
    sides = (("reference", job.reference, reference), ("candidate", job.candidate, candidate))
    for side, model, inputs in sides:
        if model.takes and frozenset(model.takes) != inputs:
            declared, takes = ", ".join(model.takes), ", ".join(sorted(inputs or ()))
            msg = f"--takes lists {declared} for the {side}, but its inputs are {takes}"
            raise UsageError(msg, hint=f"name its inputs: --takes {side}={','.join(sorted(inputs or ()))}")
    if not any(model.takes for _, model, _ in sides):
        return ""
    known_sides = [(side, inputs) for side, _, inputs in sides if inputs is not None]
    words = " and ".join(f"the {side} takes {', '.join(sorted(inputs))}" for side, inputs in known_sides)
    if reference is not None and candidate is not None and (reference <= candidate or candidate <= reference):
        # A candidate that lacks an input, or has one more, is another model.
        msg = f"--takes is for sides that each take what the other does not, and {words}"
        raise UsageError(msg, hint="leave --takes out")
    return f"{words}: inputs that are made up for one cannot be sent to the other"


def _unused_inputs(names: Iterable[str]) -> list[str]:
    """Return a note on inputs of the samples that no side takes."""
    listed = ", ".join(map(repr, names))
    return [f"the samples also hold {listed}, which is not an input of the model: it was not used"] if listed else []


def _cast_inputs(held: Mapping[str, str], reference: Signature | None, candidate: Candidate) -> Iterator[str]:
    """Yield a note on each input whose integers are cast; `held` has the dtypes in the samples."""
    signatures = [reference, candidate.signature if isinstance(candidate, ModelCandidate) else None]
    specs = [spec for signature in signatures if signature is not None for spec in signature.inputs]
    for name, dtype in held.items():
        taken = dict.fromkeys(spec.dtype for spec in specs if spec.name == name and spec.dtype != dtype)
        # Only integers are cast, and text has another name in NumPy.
        if taken and is_integer_dtype(dtype):
            casts = " and ".join(taken)
            yield f"the samples hold {name!r} as {dtype}, and were cast to {casts}, which holds every value"


def _ask(
    job: ComparisonJob,
    candidate: Candidate,
    probes: ProbesRecording | None,
    result: GateResult,
    place: ComparisonContext,
) -> Answers:
    broken = broken_contract(result.checks)
    if broken:
        return not_asked(job, broken)
    outputs = tuple(result.limits)
    first = ask(job, candidate, probes, outputs, place)
    place = replace(place, failed_before=first.failed_before)
    return first.joined(ask_session_probes(job, candidate, probes, outputs, place))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reference:
    """The reference: its outputs, its description, its outputs for probes, and its seconds for the samples."""

    expected: ExpectedOutputs
    signature: Signature | None
    side: SideResult
    probes: ProbesRecording | None
    seconds: float | None = None
    # Of a Keras model: the names of outputs by their order, by their own names.
    second_names: Mapping[str, str] = field(default_factory=dict)


def _open_reference(
    job: ComparisonJob,
    folder: Path,
    read: Callable[[], Iterator[Batch]],
    report: Progress,
    partial: PartialResultFile,
) -> _Reference:
    ref = job.reference
    if ref.is_recorded:
        _check_no_roles(job)
        report("reading the reference", 0, 0)
        if (ref.path / RECORD_FILE).is_file():
            recording = load_to_judge(ref.path)
            _check_probes(recording)
            described = _describe_recording(ref, recording)
            partial.add_reference(described)
            return _Reference(
                expected=expected_from_recording(recording),
                signature=recording.signature,
                side=described,
                probes=recorded_probes(ref.path),
            )
        expected = expected_from_file(
            ref.path,
            axes=job.rules.axes,
            rename=ref.rename,
            is_non_finite_declared=job.rules.is_non_finite_declared,
            selected=job.rules.outputs,
            ignored=tuple(job.rules.ignored),
            positions=_positions(job, None, read),
            read=read,
        )
        graph = request_of(job).graph
        if graph is not None:
            from paritygate.pipelines.compare.probe_recording import floors_of_graph

            profiles = with_activation_floors(expected.profiles, floors_of_graph(graph))
            expected = replace(expected, profiles=profiles)
        described = SideResult(name=ref.name, kind="recorded outputs", digest=expected.digest)
        partial.add_reference(described)
        return _Reference(expected=expected, signature=None, side=described, probes=None)
    report("loading the reference", 0, 0)
    ref = with_rows_apart(_reference_by_order(job, ref), read)
    runner = _open_model(job, ref, read)
    check_asked({spec.name: spec.dtype for spec in runner.signature.outputs}, job.rules)
    _check_roles(job, runner.signature)
    _check_columns(job, ref, runner, job.candidate)
    described = _describe(ref, runner)
    partial.add_reference(described)
    # Generated inputs for one do not fit the other.
    is_probed = not (ref.takes or job.candidate.takes)
    place = folder / "reference"
    place.mkdir(exist_ok=True)
    from paritygate.pipelines.compare.probe_recording import Prober

    prober = Prober(runner, request_of(job))
    started = time.monotonic()
    with naming_signatures(ref):
        recording = record_reference(
            runner,
            read,
            RecordPlan(
                folder=place,
                model={"name": ref.name, "digest": described.digest},
                axes=job.rules.axes,
                is_non_finite_declared=job.rules.is_non_finite_declared,
                selected=job.rules.outputs,
                ignored=job.rules.ignored,
                seed=job.rules.seed,
                positions=_positions(job, runner, read),
                activation_floors=prober.activation_floors(),
                padding=lambda: prober.padding([_signature_of_file(job.candidate)]),
            ),
            progress=lambda rows: report("running the reference", rows, 0),
            watch=prober.watch,
        )
    return _Reference(
        expected=expected_from_recording(recording),
        signature=runner.signature,
        side=described,
        seconds=time.monotonic() - started,
        probes=prober.record(recording, place / PROBES_FOLDER, report) if is_probed else None,
        second_names=runner.second_names,
    )


def _check_no_roles(job: ComparisonJob) -> None:
    if job.roles:
        msg = f"the role of {next(iter(job.roles))!r} is declared, but the reference was recorded before it"
        raise UsageError(msg, hint="compare with the model itself, or write roles into a spec and record it by that")


def _check_roles(job: ComparisonJob, signature: Signature) -> None:
    inputs = [spec.name for spec in signature.inputs]
    for name in job.roles:
        if name not in inputs:
            msg = f"the role is for {name!r}, which is not an input (inputs: {', '.join(inputs)})"
            raise UsageError(msg, hint=f"name an input of the reference{meant(name, inputs)}")


def _reference_again(
    job: ComparisonJob, opened: _Reference, read: Callable[[], Iterator[Batch]], models: OutputCache
) -> Runner | None:
    """Return the reference, loaded again; None where only its outputs are here, or every call loads another one."""
    ref = job.source if job.reference.is_recorded else job.reference
    if ref is None:
        return None
    ref = _reference_by_order(job, ref)
    try:
        runner = models.opened("reference", ref, lambda: _open_model(job, ref, read))
    except CacheMissError:
        raise
    except ParitygateError:
        # Another machine may have neither the source nor its framework.
        return None
    if job.reference.is_recorded and (job.reference.path / RECORD_FILE).is_file():
        check_is_recorded(runner.loaded, Recording.load(job.reference.path).model)
        return runner
    return runner if opened.side.digest in {None, runner.loaded.digest} else None


def _reference_by_order(job: ComparisonJob, ref: ModelRef) -> ModelRef:
    return _asked_by_order(ref, (*job.rules.outputs_named(), *job.candidate.rename.values()))


def _check_texts(inputs: Iterable[str], dtypes: Mapping[str, str], answers: Answers) -> tuple[Check, ...]:
    """Return a warning on inputs of text, which probes leave as it is, unless they know the keys of a graph."""
    asked = answers.result.asked
    if not asked or ("keys" in asked and asked["keys"].batches):
        return ()
    return tuple(
        Check(name="probes_of_text", status=Status.WARNING, kind=Kind.NOT_ASKED, words=say("probes.text", input=name))
        for name in inputs
        if dtypes[name].startswith("str")
    )


def _check_columns(job: ComparisonJob, ref: ModelRef, runner: Runner, other: ModelRef) -> None:
    """Check that the columns of a table are those that a model takes."""
    if is_table(job.samples):
        from paritygate.validate.samples.table_check import check_table

        signature = runner.signature
        specs = () if ref.takes else signature.inputs
        check_table(job.samples, specs, can_be_renamed=bool(other.takes), signature=signature)


def _open_model(job: ComparisonJob, ref: ModelRef, read: Callable[[], Iterator[Batch]]) -> Runner:
    example = _example(ref, job.candidate, read, lambda: _signature_of_file(job.candidate))
    return open_model(ref, job.device, example=example, side="reference")


def _positions(
    job: ComparisonJob, reference: Runner | None, read: Callable[[], Iterator[Batch]]
) -> dict[str, ValidWhere]:
    """Return which positions count; dims of a Python object come from an ONNX candidate or a first batch."""
    if not job.rules.valid_where:
        return {}
    signatures = [None if reference is None else reference.signature, _signature_of_file(job.candidate)]
    if reference is not None and job.reference.kind in OBJECTS and signatures[1] is None:
        signatures.append(signature_in_batch(reference, read))
    return valid_positions(job.rules.valid_where, signatures)


def _example(
    ref: ModelRef, other: ModelRef, read: Callable[[], Iterator[Batch]], like: Callable[[], Signature | None]
) -> Example | None:
    """Return an example to find the signature of a model by; None where it has one."""
    if ref.signature is not None or not (ref.kind in OBJECTS or _is_without_names(ref)):
        return None
    return example_of(read if ref.takes else _without(other.takes, read), like(), ref.takes)


def _is_without_names(ref: ModelRef) -> bool:
    """Return whether it is a TorchScript file of another tool, without names of its outputs."""
    if ref.kind is not SourceKind.TORCHSCRIPT or not ref.path.is_file():
        return False
    from paritygate.models.torch.archive import names_in_archive

    return names_in_archive(ref.path) is None


def _without(names: tuple[str, ...], read: Callable[[], Iterator[Batch]]) -> Callable[[], Iterator[Batch]]:
    """Return the samples without the inputs that the other side takes, if any are left."""

    def rest(batch: Batch) -> Batch:
        inputs = {name: array for name, array in batch.inputs.items() if name not in names}
        return replace(batch, inputs=inputs or batch.inputs)

    return lambda: map(rest, read())


def _signature_of_file(ref: ModelRef) -> Signature | None:
    """Return the signature of an ONNX file, with the names to compare by; other formats take long to load."""
    return load_model(ref).signature_said() if ref.kind is SourceKind.ONNX else None


def _asked_by_order(ref: ModelRef, names: Iterable[str]) -> ModelRef:
    """Return the model, with the requested names by order for the outputs of Keras."""
    if ref.kind is not SourceKind.KERAS:
        return ref
    taken = {*ref.rename, *ref.rename.values()}
    by_order = {name: name for name in names if is_default_output_name(name) and name not in taken}
    return replace(ref, rename={**ref.rename, **by_order})


def _check_probes(recording: Recording) -> None:
    """Check that the probes were recorded with the reference; an older recording cannot tell."""
    wanted, path = recording.settings.get(PROBES_FOLDER), recording.folder / PROBES_FOLDER / PROBES_FILE
    if wanted is None or (path.is_file() and digest_of_file(path) == wanted):
        return
    problem = (
        "differs from the one recorded with the reference"
        if path.is_file()
        else "is missing, and was recorded with the reference"
    )
    msg = f"{path} {problem}"
    raise ArtifactIntegrityError(
        msg, hint="record the reference again", command="convert-and-validate record --run DIR"
    )


def _open_candidate(
    job: ComparisonJob,
    reference: _Reference,
    read: Callable[[], Iterator[Batch]],
    report: Progress,
    models: OutputCache,
) -> tuple[Candidate, SideResult, ComparisonJob]:
    """Return the candidate, its description, and the job with the names to compare its outputs by."""
    ref = job.candidate
    if ref.is_recorded:
        if (ref.path / RECORD_FILE).is_file():
            if ref.rename:
                msg = f"--map renames {', '.join(ref.rename)}, and {ref.name} was recorded under the names served"
                raise UsageError(msg, hint="leave --map out, or record the outputs again under other names")
            recording = load_to_judge(ref.path)
            candidate = RecordedCandidate(
                output_names=recording.dtypes, open_reader=lambda: open_recording_reader(recording)
            )
            return candidate, _describe_recording(ref, recording), job
        file_outputs = RecordedOutputs(ref.path, ref.rename, job.rules.outputs, tuple(job.rules.ignored))
        described = SideResult(name=ref.name, kind="recorded outputs", digest=digest_of_file(ref.path))
        return RecordedCandidate(output_names=file_outputs.names, open_reader=file_outputs.open_reader), described, job
    report("loading the candidate", 0, 0)
    ref = _asked_by_order(ref, reference.expected.output_names)
    emulate = job.rules.precision if job.is_emulated else None
    example = _example(ref, job.reference, read, lambda: reference.signature)

    def opened(ref: ModelRef) -> Runner:
        return open_model(ref, job.device, emulate=emulate, example=example, side="candidate")

    runner = models.opened("candidate", ref, lambda: opened(ref))
    if job.reference.is_recorded:
        _check_columns(job, ref, runner, job.reference)
    has = {spec.name for spec in runner.signature.outputs}
    pairs = {(own, name) for pair in reference.second_names.items() for own, name in (pair, pair[::-1])}
    answers_to = {*has, *runner.second_names.values()} - set(ref.rename.values())
    again = {
        other: name for name, other in pairs if name in reference.expected.output_names - has and other in answers_to
    }
    if again:
        # One model is Keras with outputs named by layers, and the other names them by their order.
        named = replace(ref, rename={**ref.rename, **again})
        runner = models.opened("candidate-by-order", named, lambda: opened(named))
        ref = named
    if example is not None:
        # A fresh process must get the same signature.
        ref = replace(ref, signature=runner.signature)
    return ModelCandidate(runner), _describe(ref, runner), replace(job, candidate=ref)


def _describe(ref: ModelRef, runner: Runner) -> SideResult:
    loaded = runner.loaded
    # An object was loaded before.
    executes_code = loaded.ref.executes_code and ref.kind is not SourceKind.LIVE
    return _side_result(ref, str(loaded.ref.kind), loaded.digest, asdict(runner.facts), executes_code=executes_code)


def _describe_recording(ref: ModelRef, recording: Recording) -> SideResult:
    executes_code = bool(recording.model.get("executes_code", False))
    return _side_result(ref, "recording", recording.model.get("digest"), recording.runtime, executes_code=executes_code)


def _side_result(
    ref: ModelRef, kind: str, digest: str | None, facts: Mapping[str, Any], *, executes_code: bool
) -> SideResult:
    precision = facts.get("precision_found")
    names = ("runtime", "version", "device", "provider", "tf32", "optimisation")
    return SideResult(
        name=ref.name,
        kind=kind,
        digest=digest,
        **{name: facts.get(name) for name in names},
        precision_found=None if precision is None else str(precision),
        executes_code=executes_code,
        notes=list(facts.get("notes", ())),
        provider_warnings=list(facts.get("provider_warnings", ())),
    )


def _result(
    job: ComparisonJob,
    result: GateResult,
    expected: ExpectedOutputs,
    sides: tuple[SideResult, SideResult],
) -> ComparisonResult:
    reference, candidate = sides
    measured = result.measurement
    checks = (
        _check_distinct(job, reference, candidate),
        *_check_calibration(job, measured.rows),
        *_check_provider(reference, candidate),
        *result.checks,
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
        strata={
            name: {value: stratum_result(measured, expected.profiles) for value, measured in values.items()}
            for name, values in result.strata.items()
        },
        checks=list(checks),
        gold=dict(result.gold),
        matches={name: with_finite(item) for name, item in result.matches.items()},
        outputs_left_out=list(result.left_out),
        outputs_ignored=dict(job.rules.ignored),
        notes=[*_notes(job, reference, candidate), *_note_on_int8(job, candidate, verdict)],
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
