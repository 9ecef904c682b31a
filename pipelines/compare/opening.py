"""Open both sides of a comparison: models, recordings and files of outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from paritygate.batch import Batch
from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.files import digest_of_file
from paritygate.models.example import Example, example_of
from paritygate.models.loading import load_model, naming_signatures
from paritygate.models.named_call import default_output_names, is_default_output_name
from paritygate.models.recorded_source import check_is_recorded
from paritygate.models.source import OBJECTS, ModelRef, SourceKind
from paritygate.pipelines.compare.independent_batch_dims import with_rows_apart
from paritygate.pipelines.compare.infer_dims import signature_in_batch
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.output_cache import OutputCache
from paritygate.pipelines.compare.probes import recorded_probes, request_of
from paritygate.pipelines.compare.progress_file import PartialResultFile
from paritygate.pipelines.compare.result import SideResult
from paritygate.pipelines.process.child import Progress
from paritygate.signature import Signature
from paritygate.text import meant
from paritygate.validate.gate.candidate import Candidate, ModelCandidate, RecordedCandidate
from paritygate.validate.gate.rule_checks import check_asked
from paritygate.validate.measure.profile import with_activation_floors
from paritygate.validate.measure.valid_positions import ValidWhere, valid_positions
from paritygate.validate.probes.recording import PROBES_FILE, PROBES_FOLDER, ProbesRecording
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recorded import (
    ExpectedOutputs,
    RecordedOutputs,
    expected_from_file,
    expected_from_recording,
    open_recording_reader,
)
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.samples import is_table

_KEEP_ORDER = {SourceKind.ONNX, SourceKind.OPENVINO}  # their outputs are in the order of the exported model


def why_apart(job: ComparisonJob, reference: frozenset[str] | None, candidate: frozenset[str] | None) -> str:
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
        msg = f"--takes is for sides that each take inputs that the other lacks, but {words}"
        raise UsageError(msg, hint="leave --takes out")
    return f"{words}: inputs generated for one cannot be sent to the other"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedReference:
    """The reference: its outputs, its description, its outputs for probes, and its seconds for the samples."""

    expected: ExpectedOutputs
    signature: Signature | None
    side: SideResult
    probes: ProbesRecording | None
    seconds: float | None = None
    is_served: bool = False  # by a server, or a stage of it
    # Of a Keras model: the names of outputs by their order, by their own names.
    second_names: Mapping[str, str] = field(default_factory=dict)


def open_reference(
    job: ComparisonJob, folder: Path, read: Callable[[], Iterator[Batch]], report: Progress, partial: PartialResultFile
) -> OpenedReference:
    """Return the reference: as recorded, or recorded now in a folder of this name below `folder`."""
    ref = job.reference
    if ref.is_recorded:
        _check_no_roles(job)
        report("reading the reference", 0, 0)
        if (ref.path / RECORD_FILE).is_file():
            recording = Recording.load(ref.path)
            _check_probes(recording)
            described = _describe_recording(ref, recording)
            partial.add_reference(described)
            return OpenedReference(
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

            expected = replace(expected, profiles=with_activation_floors(expected.profiles, floors_of_graph(graph)))
        described = SideResult(name=ref.name, kind="recorded outputs", digest=expected.digest)
        partial.add_reference(described)
        return OpenedReference(expected=expected, signature=None, side=described, probes=None)
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
    return OpenedReference(
        expected=expected_from_recording(recording),
        signature=runner.signature,
        side=described,
        seconds=time.monotonic() - started,
        is_served=runner.loaded.is_served,
        probes=prober.record(recording, place / PROBES_FOLDER, report) if is_probed else None,
        second_names=runner.second_names,
    )


def _check_no_roles(job: ComparisonJob) -> None:
    if job.roles:
        msg = f"the role of {next(iter(job.roles))!r} is declared, but the reference was recorded before it"
        raise UsageError(msg, hint="compare with the model itself, or write roles into a spec and record with it")


def _check_roles(job: ComparisonJob, signature: Signature) -> None:
    inputs = [spec.name for spec in signature.inputs]
    for name in job.roles:
        if name not in inputs:
            msg = f"the role is for {name!r}, which is not an input (inputs: {', '.join(inputs)})"
            raise UsageError(msg, hint=f"name an input of the reference{meant(name, inputs)}")


def reference_again(
    job: ComparisonJob, opened: OpenedReference, read: Callable[[], Iterator[Batch]], models: OutputCache
) -> Runner | None:
    """Return the reference, loaded again; None where only its outputs are here, or every call loads another one.

    Another machine may have neither the source nor its framework: raises as `open_model`, and CacheMissError.
    """
    ref = job.source if job.reference.is_recorded else job.reference
    if ref is None:
        return None
    ref = _reference_by_order(job, ref)
    runner = models.opened("reference", ref, lambda: _open_model(job, ref, read))
    if job.reference.is_recorded and (job.reference.path / RECORD_FILE).is_file():
        check_is_recorded(runner.loaded, Recording.load(job.reference.path).model)
        lacks = opened.expected.profiles.keys() - {spec.name for spec in runner.signature.outputs}
        if lacks:
            msg = f"the source has no output {min(lacks)!r}, which the reference was recorded with"
            raise UsageError(msg, hint="compare without --source")
        return runner
    return runner if opened.side.digest in {None, runner.loaded.digest} else None


def _reference_by_order(job: ComparisonJob, ref: ModelRef) -> ModelRef:
    return _asked_by_order(ref, (*job.rules.outputs_named(), *job.candidate.rename.values()))


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


def open_candidate(
    job: ComparisonJob,
    reference: OpenedReference,
    read: Callable[[], Iterator[Batch]],
    report: Progress,
    models: OutputCache,
) -> tuple[Candidate, SideResult, ComparisonJob]:
    """Return the candidate, its description, and the job with the names to compare its outputs by."""
    ref = job.candidate
    if ref.is_recorded:
        if (ref.path / RECORD_FILE).is_file():
            if ref.rename:
                msg = f"--map renames {', '.join(ref.rename)}, but {ref.name} was recorded under the names served"
                raise UsageError(msg, hint="leave --map out, or record the outputs again under other names")
            recording = Recording.load(ref.path)
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
    again = again or _names_by_order(runner, reference.expected.output_names)
    if again:
        # One model names its outputs by layers or names of its own, and the other by their order.
        named = replace(ref, rename={**ref.rename, **again})
        runner = models.opened("candidate-by-order", named, lambda: opened(named))
        ref = named
    if example is not None:
        # A fresh process must get the same signature.
        ref = replace(ref, signature=runner.signature)
    return ModelCandidate(runner), _describe(ref, runner), replace(job, candidate=ref)


def check_limits_are_used(job: ComparisonJob, reference: OpenedReference, candidate: Candidate) -> None:
    """Raise a `UsageError` for limits on requests if neither side sends any."""
    is_served = reference.is_served or (isinstance(candidate, ModelCandidate) and candidate.loaded.is_served)
    if not is_served and any(model.endpoint_limits for model in (job.reference, job.candidate)):
        from paritygate.pipelines.compare.models import limits_without_server

        raise limits_without_server()


def _names_by_order(runner: Runner, expected: Collection[str]) -> dict[str, str]:
    """Return the names by order of outputs with names of their own, where the reference has as many unnamed ones."""
    names, defaults = [spec.name for spec in runner.signature.outputs], default_output_names(len(expected))
    ref = runner.loaded.ref
    # Other formats may sort their outputs by name, and who renames one output may have chosen all.
    if ref.kind not in _KEEP_ORDER or ref.rename or len(names) != len(defaults) or {*expected} != {*defaults}:
        return {}
    return {} if any(map(is_default_output_name, names)) else dict(zip(names, defaults, strict=True))


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
