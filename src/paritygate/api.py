"""The Python API: comparing two models, running a spec, reading a repository.

It stands above all other parts, and `paritygate` shows its names. The commands call the same functions.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import paritygate.errors
from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError, ExitCode, ParitygateError, UsageError
from paritygate.models.json_mapping import JsonMapping, json_mapping_of, read_json_mapping
from paritygate.models.loading import kind_of_live, live_objects
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.compare.arguments import comparison_of
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.job import compare as compare_job
from paritygate.pipelines.compare.models import check_mapping_is_used
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.planning.plan import Plan, plan_run
from paritygate.pipelines.release.compared import model_or_release
from paritygate.pipelines.release.released_model import ReleasedModel
from paritygate.pipelines.release.repository.commands import DEFAULT_REPOSITORY
from paritygate.pipelines.release.repository.inspect import (
    ModelSummary,
    ReleaseDetails,
    Verification,
    list_models,
    show,
    verify_release,
)
from paritygate.pipelines.report.terminal.comparison import comparison_text
from paritygate.pipelines.report.why import why
from paritygate.pipelines.rules.gate_rules import check_choice, gate_rules_of, values_of_python
from paritygate.pipelines.rules.pairs import by_name
from paritygate.pipelines.run.workspace import DEFAULT_ROOT, new_run
from paritygate.pipelines.run_spec import RunOptions, RunOutcome, check_options, run_spec, spec_to_run
from paritygate.pipelines.spec.limits import parse_constraints
from paritygate.pipelines.spec.roles import parse_roles
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.text import first_line_of, meant, nearest_first
from paritygate.validate.gate.bounds import COVERED_ROWS
from paritygate.validate.probes.catalogue import probes_named
from paritygate.validate.samples.in_memory import store_samples
from paritygate.validate.samples.source import DEFAULT_BATCH_SIZE, SampleSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    Samples = str | os.PathLike[str] | Arrays | Iterable[Batch | Arrays]

__all__ = [
    "Batch",
    "Comparison",
    "Outcome",
    "ParityError",
    "ParitygateError",
    "Plan",
    "Release",
    "ReleasedModel",
    "Repository",
    "Spec",
    "compare",
    "plan",
    "run",
]

_IN_PYTHON = "given in Python"
_TIME_LIMIT_S = 3600.0
# The stage in words, what was done and out of how much, 0 where that is not known.
_Progress = Callable[[str, int, int], None]


class ParityError(AssertionError):
    """Parity was not shown: the first line is the verdict with its reason, then comes what the terminal shows.

    Attributes:
        result: What was found.
    """

    def __init__(self, result: Comparison | Outcome) -> None:
        super().__init__(f"{_first_sentence(result)}\n{result}")
        self.result = result


def _first_sentence(result: Comparison | Outcome) -> str:
    """Return the verdict and its first reason: test reports and logs cut a message after its first line."""
    if isinstance(result, Comparison):
        return f"{_why(result, result.verdict)} ({result.candidate.name} against {result.reference.name})"
    bad = {name: verdict for name, verdict in result.verdicts.items() if verdict != "pass"}
    said = []
    for name, verdict in bad.items():
        failure, compared = result.failures.get(name), result.results.get(name)
        words = f"{verdict}: {first_line_of(failure.message)}" if failure is not None and compared is None else verdict
        said.append(f"{name}: {words if compared is None else _why(compared, verdict)}")
    return f"{'; '.join(said) or f'exit code {result.exit_code}'} ({result.run.resolved.name})"


def _why(result: ComparisonResult, verdict: str) -> str:
    reason = why(result)
    return f"{verdict}: {reason}" if reason else verdict


class Comparison(ComparisonResult):
    """One candidate against one reference: verdict, exit code, and what was measured, by the names of outputs.

    `str` of it is what the command `compare --verbose` prints.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Comparison of {self.candidate.name} with {self.reference.name}: {self.verdict}, {self.rows} rows>"

    def __str__(self) -> str:
        return comparison_text(self)

    def assert_passed(self) -> None:
        """Do nothing if the verdict is `pass`.

        Raises:
            ParityError: It is anything else: `fail`, `inconclusive`, `error` or `not run here`.
        """
        # pytest shows the line that called this, and our words.
        __tracebackhide__ = True
        if self.verdict != "pass":
            raise ParityError(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as the JSON data that the command writes."""
        return to_data(self)


class Outcome(RunOutcome):
    """What came of a run: exit code, verdicts, the comparison of every variant, the run folder, the release."""

    __slots__ = ()
    results: Mapping[str, Comparison]

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{name} {verdict}" for name, verdict in self.verdicts.items())
        return f"<Outcome of {self.run.resolved.name}: exit code {self.exit_code}; {verdicts}>"

    def __str__(self) -> str:
        lines = [f"{self.run.resolved.name}: exit code {self.exit_code}"]
        for name, verdict in self.verdicts.items():
            failure, result = self.failures.get(name), self.results.get(name)
            lines.append(f"{name}: {verdict}" + (f": {failure.message}" if failure and result is None else ""))
            if result is not None and verdict != "pass":
                lines.append(comparison_text(result))
        lines.append(f"not released: {self.not_released}" if self.release is None else f"released: {self.version}")
        return "\n".join((*lines, f"run: {self.folder}"))

    def assert_passed(self) -> None:
        """Do nothing if the run ended in exit code 0, as it does where everything required passed.

        Raises:
            ParityError: It ended in another.
        """
        __tracebackhide__ = True
        if self.exit_code != ExitCode.PASS:
            raise ParityError(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON data: an entry of `runs` of what the command writes."""
        return self.to_json()


_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def _of_known_arguments(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Let a function say in one of our errors which of its arguments may be meant by a name that is none."""
    parameters = inspect.signature(function).parameters
    known = [item.name for item in parameters.values() if item.kind is item.KEYWORD_ONLY]

    @functools.wraps(function)
    def checked(*args: _Arguments.args, **given: _Arguments.kwargs) -> _Returned:
        unknown = next((name for name in given if name not in parameters), None)
        if unknown is not None:
            allowed = ", ".join(nearest_first(unknown, known))
            is_tolerance = "tol" in unknown and "tolerance" in known
            hint = f"give one of these{meant(unknown, known)}"
            hint = "limits are given as tolerance={'max_abs_diff': 1e-3}" if is_tolerance else hint
            msg = f"{function.__name__} has no argument {unknown!r} (allowed: {allowed})"
            raise UsageError(msg, hint=hint)
        return function(*args, **given)

    return checked


@_of_known_arguments
def compare(  # noqa: PLR0913 - one argument an option of the command
    reference: object,
    candidate: object,
    *,
    samples: Samples,
    precision: str = "fp32",
    decisions: Mapping[str, str] | None = None,
    constant_decisions: Mapping[str, str] | None = None,
    tolerance: Mapping[str, Any] | None = None,
    repeat: int = 1,
    rename: Mapping[str, str] | None = None,
    signatures: Mapping[str, str] | None = None,
    takes: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
    argmax_of: Mapping[str, str] | None = None,
    gold: Sequence[str] = (),
    matches: Sequence[str] = (),
    ignore: Mapping[str, str] | None = None,
    axes: Mapping[str, int] | None = None,
    min_cosine_similarity: Mapping[str, float] | None = None,
    valid_where: Mapping[str, str] | None = None,
    roles: Mapping[str, str | Mapping[str, Any]] | None = None,
    non_finite: str = "refuse",
    min_rows: int = COVERED_ROWS,
    batch_size: int = DEFAULT_BATCH_SIZE,
    pad: Mapping[str, float] | None = None,
    seed: int = 0,
    emulate: bool = False,
    probes: Sequence[str] | None = None,
    edge: str = "warn",
    failures: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    provider: str | None = None,
    endpoint: Mapping[str, float] | None = None,
    endpoint_json: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    repository: str | os.PathLike[str] = DEFAULT_REPOSITORY,
    time_limit: float = _TIME_LIMIT_S,
    progress: _Progress | None = None,
) -> Comparison:
    """Hold a candidate against a reference on the same samples, as the command `compare` does.

    Either side is a path (a model, or outputs recorded before), a release (`MODEL@ALIAS`), the address of a model on a
    server, `module:callable`, or an object: a `torch.nn.Module`, a Keras model, or a function that takes a dict of
    arrays by name and returns one. An object is run in this process, where no limit holds and a crash ends Python, and
    `ran_in` of the result says so; everything else in a child process. A module is put into evaluation mode meanwhile.

    Args:
        reference: What is right.
        candidate: What is judged.
        samples: A path, `module:callable`, a mapping of arrays with one row a sample, or an iterable of batches, each a
            `Batch` or such a mapping.
        precision: Precision of the candidate, which selects the default tolerances.
        decisions: How an output becomes an answer, by output: `argmax`, `threshold=3`, `top_k=5`, `multilabel=0.5`.
        constant_decisions: Why a decision may be the same in all rows, by output.
        tolerance: Limits in place of the defaults, such as `{"max_abs_diff": 1e-3}`, or of one output,
            `{"scores:max_abs_diff": 1e-3}`, where a list has a number for each column.
        repeat: How often the samples are run in one session.
        rename: By the candidate's name of an input or output, that of the reference.
        signatures: Which signature of a SavedModel is meant, by `reference` and `candidate`; `serving_default` if it is
            not named.
        takes: What of the samples a side takes, by `reference` and `candidate`, with commas between names, where the
            other takes other columns of the same rows: `{"candidate": "text"}`. Then no probes are asked.
        outputs: The outputs to compare; all of them if none is named.
        argmax_of: By an output of labels, that of the scores which it is the argmax of.
        gold: Metrics against gold, written as for `--gold`.
        matches: Outputs that are lists of detections, written as for `--match`.
        ignore: Why an output is not compared, by output.
        axes: The channel axis of an output, by output.
        min_cosine_similarity: The least cosine similarity of the two answers to any row, by output.
        valid_where: The input that says which positions of an output count, those where it is set, by output.
        roles: What an input is, by input, as for `--role`: `mask`, or `{"role": "mask", "empty": False}`.
        non_finite: What NaN and infinity in the reference mean: `refuse`, or `match`.
        min_rows: Fewer rows are inconclusive.
        batch_size: Rows a batch, where the samples do not say.
        pad: What lists of JSON lines are filled up with, by input.
        seed: Seed of all choices.
        emulate: Whether to round every value of the candidate (ONNX) to the precision.
        probes: The probes to ask, none of them for `none` or `()`; all if None.
        edge: What a difference in made-up rows that are unlike every sample comes to: `fail`, `warn` or `off`.
        failures: A folder for the batches that the candidate fails.
        device: `cpu` or `cuda`.
        provider: What of ONNX Runtime runs the candidate: `cpu`, `cuda` or `tensorrt`.
        endpoint: How a server may be asked, such as `{"requests_per_second": 50}`; also `requests`, `timeout_s`
            and `max_answer_mb`.
        endpoint_json: Which field of a server's JSON is which input and output, as a file or its data.
        repository: Where a release is looked up.
        time_limit: Seconds after which a child process is stopped.
        progress: Called with the stage in words, the rows done, and of how many (0 where that is not known).

    Raises:
        ParitygateError: An argument, a file or the samples are wrong, which is exit code 2 of the command. What cannot
            be measured for another reason is a result with the verdict `error`.
    """
    values = values_of_python(locals())
    here, objects = Path.cwd(), dict[str, object]()
    place = os.fspath(samples) if isinstance(samples, (str, os.PathLike)) else None
    fill = by_name("pad", pad, {"input": 0.0}, of=float)
    source = SampleSource(text=place or "", folder=here, batch_size=batch_size, pad=fill)
    mapping = _json_mapping(endpoint_json)
    parse = functools.partial(model_or_release, folder=here, repository=Path(repository), endpoint_json=mapping)
    models = _model(reference, {}, objects, parse), _model(candidate, values["rename"], objects, parse)
    check_mapping_is_used(models, mapping)
    job = comparison_of(
        ComparisonJob(
            reference=models[0],
            candidate=models[1],
            samples=source,
            rules=gate_rules_of(values),
            roles=parse_roles(values["roles"]),
            is_emulated=emulate,
            failures=None if failures is None else Path(failures),
            device=device,
        ),
        signatures=values["signatures"],
        takes=values["takes"],
        endpoint=by_name("endpoint", endpoint, {"requests_per_second": 50.0}, of=float),
        provider=provider,
    )
    _check_devices(objects, device)
    with contextlib.ExitStack() as stack:
        if place is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paritygate-samples-")))
            job = replace(job, samples=store_samples(samples, folder, source))
        if objects or place is None:
            job = replace(job, again="")
        if objects:
            stack.enter_context(live_objects(objects))
        result = compare_job(job, time_limit_s=time_limit, progress=progress or _silent)
    if place is None:
        result = _without_folder(result, job.samples)
    _raise_usage(result)
    return _as(Comparison, result)


@_of_known_arguments
def run(  # noqa: PLR0913 - one argument an option of the command
    spec: str | os.PathLike[str] | Spec | Mapping[str, Any],
    *,
    targets: Sequence[str] = (),
    samples: str | os.PathLike[str] | None = None,
    probes: Sequence[str] | None = None,
    benchmark: bool | None = None,
    promote: bool = True,
    repository: str | os.PathLike[str] | None = None,
    alias: str | None = None,
    cache: bool = True,
    constraints: Mapping[str, float] | None = None,
    root: str | os.PathLike[str] = DEFAULT_ROOT,
    device: str = "cpu",
    time_limit: float = _TIME_LIMIT_S,
    progress: _Progress | None = None,
) -> Outcome:
    """Do what a spec asks for, as the command `run` does: export, record, validate, benchmark, report, promote.

    Args:
        spec: A path, the name of a packaged spec, a `Spec`, or a mapping that is one; paths in the latter two are
            relative to the current directory.
        targets: The targets to make; all of them if none is named.
        samples: In place of the spec's own.
        probes: The probes to ask, none of them for `none` or `()`; those of the spec if None.
        benchmark: Whether to measure speed; where the spec asks for it, or for a choice that needs it, if None.
        promote: Whether to release what passed.
        repository: Where to, in place of the spec's.
        alias: The alias to move, in place of the spec's.
        cache: Whether to take over what an earlier run did with the same, and nothing that was read has changed since.
        constraints: Limits on speed and size beside the spec's, such as `{"latency_p95_ms": 20}`.
        root: The folder of runs and repository.
        device: `cpu` or `cuda`.
        time_limit: Seconds that each conversion, recording or comparison may take.
        progress: As of `compare`.

    Raises:
        ParitygateError: Something that concerns all variants: the spec, the source, the samples, the reference.
    """
    check_choice("device", device, ("cpu", "cuda"))
    options = RunOptions(
        time_limit_s=time_limit,
        device=device,
        is_benchmarking=benchmark,
        is_promoting=promote,
        repository=None if repository is None else Path(repository),
        alias=alias,
        root=Path(root),
        limits=_limits(constraints),
    )
    samples_path = None if samples is None else os.fspath(samples)
    resolved = _to_run(spec, samples_path, targets, probes)
    check_options(resolved, options)
    found = run_spec(
        new_run(resolved, root=options.root, samples_path=samples_path, is_cached=cache), options, progress or _silent
    )
    results = {name: _as(Comparison, result) for name, result in found.results.items()}
    return _as(Outcome, replace(found, results=results))


@_of_known_arguments
def plan(  # noqa: PLR0913 - one argument an option of the command
    spec: str | os.PathLike[str] | Spec | Mapping[str, Any],
    *,
    targets: Sequence[str] = (),
    samples: str | os.PathLike[str] | None = None,
    probes: Sequence[str] | None = None,
    benchmark: bool | None = None,
    constraints: Mapping[str, float] | None = None,
    root: str | os.PathLike[str] = DEFAULT_ROOT,
    device: str = "cpu",
    time_limit: float = _TIME_LIMIT_S,
) -> Plan:
    """Return what `run` with the same arguments would take over, and what it would do; nothing is done.

    Args:
        spec: As of `run`.
        targets: As of `run`.
        samples: As of `run`.
        probes: As of `run`.
        benchmark: As of `run`.
        constraints: As of `run`.
        root: As of `run`.
        device: As of `run`.
        time_limit: As of `run`.

    Raises:
        ParitygateError: The run would not begin, or would end early.
    """
    check_choice("device", device, ("cpu", "cuda"))
    options = RunOptions(
        time_limit_s=time_limit,
        device=device,
        is_benchmarking=benchmark,
        root=Path(root),
        limits=_limits(constraints),
    )
    samples_path = None if samples is None else os.fspath(samples)
    return plan_run(_to_run(spec, samples_path, targets, probes), options, samples_path=samples_path)


def _limits(constraints: Mapping[str, float] | None) -> Mapping[str, float]:
    return parse_constraints(f"{name}={value!r}" for name, value in (constraints or {}).items())


def _to_run(
    spec: str | os.PathLike[str] | Spec | Mapping[str, Any],
    samples_path: str | None,
    targets: Sequence[str],
    probes: Sequence[str] | None,
) -> ResolvedSpec:
    return spec_to_run(
        os.fspath(spec) if isinstance(spec, os.PathLike) else spec,
        samples_path=samples_path,
        targets=_texts(targets),
        probes=probes_named(probes),
    )


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of releases on disk.

    Attributes:
        root: Its folder.
    """

    root: str | os.PathLike[str] = DEFAULT_REPOSITORY

    def models(self) -> tuple[ModelSummary, ...]:
        """Return the models with their versions and aliases, sorted by name.

        Raises:
            InputFileError: There is no such folder.
        """
        return list_models(Path(self.root))

    def release(self, model: str, which: int | str | None = None) -> Release:
        """Return a release.

        Args:
            model: The model's name.
            which: A version, or an alias; the highest version if None.

        Raises:
            UsageError: There is no such model or release; the message names those that are there.
            InputFileError: There is no such repository.
            ArtifactIntegrityError: Its manifest or evidence is not what was released.
        """
        return Release(root=Path(self.root), details=show(Path(self.root), model, which))


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One release of a repository.

    Attributes:
        root: The repository.
        details: All that is known of it: manifest, numbers, history.
    """

    root: Path
    details: ReleaseDetails

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.details.model

    @property
    def version(self) -> int:
        """Its number."""
        return self.details.version

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases that point to it."""
        return self.details.aliases

    @property
    def variants(self) -> tuple[str, ...]:
        """Its variants, the preferred one first."""
        return tuple(entry["name"] for entry in self.details.manifest["variants"])

    def path(self, variant: str | None = None) -> Path:
        """Return the file or folder that the runtime of a variant opens; of the preferred one if None.

        Whether its bytes are those that were released is for `verify` to say.

        Raises:
            UsageError: The release has no such variant; the message names those that it has.
        """
        name = self._named(variant)
        main = {entry["name"]: entry["main"] for entry in self.details.manifest["variants"]}[name]
        return self.details.folder / name / str(main)

    def load(self, variant: str | None = None, *, device: str = "cpu") -> ReleasedModel:
        """Return a variant in its runtime, ready to answer, after every file of the release was verified.

        Args:
            variant: Which variant; the preferred one if None.
            device: Where it runs: `cpu`, or `cuda`.

        Raises:
            UsageError: The release has no such variant; the message names those that it has.
            ArtifactIntegrityError: A file was changed, removed or added.
            MissingBackendError: Its runtime is not installed.
            BackendError: The runtime refused it.
        """
        name = self._named(variant)
        self.verify()
        return ReleasedModel(self.model, self.version, self.details.folder / name, device=device)

    def _named(self, variant: str | None) -> str:
        name = self.variants[0] if variant is None else variant
        if name not in self.variants:
            msg = f"{self.model} version {self.version} has no variant {name!r} (variants: {', '.join(self.variants)})"
            raise UsageError(msg, hint="name one of these, or none for the first")
        return name

    def verify(self) -> Verification:
        """Read every file of the release, and return that all are what was released.

        Raises:
            ArtifactIntegrityError: A file was changed, removed or added.
        """
        found = verify_release(self.root, self.model, self.version)
        if not found.is_intact:
            msg = f"{self.model} version {self.version} is not what was released: {found.difference}"
            raise ArtifactIntegrityError(msg, hint="restore the release from a backup, or promote the model again")
        return found


def _json_mapping(given: str | os.PathLike[str] | Mapping[str, Any] | None) -> JsonMapping | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else json_mapping_of(given)
    return read_json_mapping(Path(given))


def _model(
    given: object, rename: Mapping[str, str], objects: dict[str, object], parse: Callable[..., ModelRef]
) -> ModelRef:
    """Return a model to compare; what is an object is put into `objects`, by the text that stands for it."""
    if isinstance(given, (str, os.PathLike)):
        return parse(os.fspath(given), rename=rename)
    kind = kind_of_live(given)
    # The same object twice is the same model twice.
    text = next((text for text, known in objects.items() if known is given), f"object {len(objects)}")
    objects[text] = given
    named = given if kind is SourceKind.FUNCTION and hasattr(given, "__qualname__") else type(given)
    name = getattr(named, "__qualname__", type(given).__name__)
    return ModelRef(text=text, folder=Path.cwd(), kind=SourceKind.LIVE, name=name, rename=rename)


def _check_devices(objects: Mapping[str, Any], device: str) -> None:
    """Check that no module has to be moved: it is the caller's, and an optimizer may hold its parameters.

    Raises:
        UsageError: One is on another device than the comparison runs on.
    """
    for model in objects.values():
        if kind_of_live(model) is SourceKind.TORCH:
            from paritygate.models.torch.module import device_of

            found = device_of(model).type
            if found != device:
                msg = f"the module {type(model).__name__} is on device {found!r}, and the comparison runs on {device!r}"
                raise UsageError(msg, hint=f"move it first: module.to({device!r}); or give device={found!r}")


def _without_folder(result: ComparisonResult, source: SampleSource) -> ComparisonResult:
    """Return the result without the temporary files that the samples were written to."""
    error = result.error
    if error is not None:
        message = error.message
        for text in filter(None, (repr(source.text), source.text, source.path)):
            message = message.replace(text, _IN_PYTHON)
        error = replace(error, message=message)
    return replace(result, samples=_IN_PYTHON, error=error)


def _raise_usage(result: ComparisonResult) -> None:
    error = result.error
    if error is not None and result.exit_code == ExitCode.USAGE:
        kind = getattr(paritygate.errors, error.kind, UsageError)
        raise kind(error.message, hint=error.hint)


_Result = TypeVar("_Result", Comparison, Outcome)


def _as(kind: type[_Result], found: ComparisonResult | RunOutcome) -> _Result:
    return kind(**{item.name: getattr(found, item.name) for item in fields(found)})


def _texts(given: Sequence[str]) -> tuple[str, ...]:
    # A text is a sequence of texts as well, and never meant as one.
    return (given,) if isinstance(given, str) else tuple(given)


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total
