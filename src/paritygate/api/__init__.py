"""Compare two models, run a spec and read a repository in Python.

`paritygate` exports these names, and no other part imports them. The commands call the same functions.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec.structs import replace

import paritygate.errors
from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.errors import ExitCode, ParitygateError, UsageError
from paritygate.files import temporary_folder
from paritygate.models.json_mapping import JsonMapping, json_mapping_of, read_json_mapping
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.compare.arguments import comparison_of
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.job import compare as compare_job
from paritygate.pipelines.compare.models import check_mapping_is_used
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release import DEFAULT_REPOSITORY
from paritygate.pipelines.release.compared import model_or_release
from paritygate.pipelines.report.terminal.comparison import comparison_text
from paritygate.pipelines.report.why import why
from paritygate.pipelines.rules.gate_rules import gate_rules_of, values_of_python
from paritygate.pipelines.rules.pairs import by_name, columns_by_name, dtypes
from paritygate.pipelines.spec.roles import parse_roles
from paritygate.text import first_line_of, meant, nearest_first
from paritygate.validate.measure.bounds import COVERED_ROWS
from paritygate.validate.samples.source import DEFAULT_BATCH_SIZE, SampleSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.api.releases import Release, ReleasedModel, Repository
    from paritygate.api.runs import Outcome, Plan, Spec, plan, run
    from paritygate.pipelines.run_spec import RunOutcome

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

# The modules of names that a comparison does not need, imported at their first use.
_ELSEWHERE = {
    **dict.fromkeys(("Outcome", "Plan", "Spec", "plan", "run"), "paritygate.api.runs"),
    **dict.fromkeys(("Release", "ReleasedModel", "Repository"), "paritygate.api.releases"),
}
_IN_PYTHON = "given in Python"
TIME_LIMIT_S = 3600.0


def __getattr__(name: str) -> object:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


class ParityError(AssertionError):
    """Parity was not shown: the first line is the verdict with its reason, the rest is the terminal's output.

    `result` is the comparison or run.
    """

    def __init__(self, result: Comparison | Outcome) -> None:
        super().__init__(f"{_first_sentence(result)}\n{result}")
        self.result = result


def _first_sentence(result: Comparison | Outcome) -> str:
    """Return the verdict and its first reason, because test reports and logs cut a message after its first line."""
    if isinstance(result, Comparison):
        return f"{_why(result, result.verdict)} ({result.candidate.name} against {result.reference.name})"
    bad = {name: verdict for name, verdict in result.verdicts.items() if verdict != "pass"}
    reasons = []
    for name, verdict in bad.items():
        failure, compared = result.failures.get(name), result.results.get(name)
        words = f"{verdict}: {first_line_of(failure.message)}" if failure is not None and compared is None else verdict
        reasons.append(f"{name}: {words if compared is None else _why(compared, verdict)}")
    return f"{'; '.join(reasons) or f'exit code {result.exit_code}'} ({result.run.resolved.name})"


def _why(result: ComparisonResult, verdict: str) -> str:
    reason = why(result)
    return f"{verdict}: {reason}" if reason else verdict


class Comparison(ComparisonResult, frozen=True):
    """One candidate against one reference: verdict, exit code, and the measurements by outputs.

    `str` of it is the output of `compare --verbose`.
    """

    def __repr__(self) -> str:
        return f"<Comparison of {self.candidate.name} with {self.reference.name}: {self.verdict}, {self.rows} rows>"

    def __str__(self) -> str:
        return comparison_text(self)

    def assert_passed(self) -> None:
        """Raise ParityError unless the verdict is `pass`: `fail`, `inconclusive`, `error` or `not run here`."""
        # pytest shows the calling line, and our message.
        __tracebackhide__ = True
        if self.verdict != "pass":
            raise ParityError(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as the JSON data that the command writes."""
        return to_data(self)


_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def of_known_arguments(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Let a function reject an unknown argument with the nearest known ones."""
    parameters = inspect.signature(function).parameters
    names = [item.name for item in parameters.values() if item.kind is item.KEYWORD_ONLY]

    @functools.wraps(function)
    def checked(*args: _Arguments.args, **given: _Arguments.kwargs) -> _Returned:
        unknown = next((name for name in given if name not in parameters), None)
        if unknown is not None:
            allowed = ", ".join(nearest_first(unknown, names))
            is_tolerance = "tol" in unknown and "tolerance" in names
            hint = f"give one of these{meant(unknown, names)}"
            hint = "limits are given as tolerance={'max_abs_diff': 1e-3}" if is_tolerance else hint
            raise UsageError(f"{function.__name__} has no argument {unknown!r} (allowed: {allowed})", hint=hint)
        return function(*args, **given)

    return checked


@of_known_arguments
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
    min_sqnr: Mapping[str, float] | None = None,
    valid_where: Mapping[str, str] | None = None,
    roles: Mapping[str, str | Mapping[str, Any]] | None = None,
    non_finite: str = "refuse",
    min_rows: int = COVERED_ROWS,
    batch_size: int = DEFAULT_BATCH_SIZE,
    columns: Mapping[str, Sequence[str]] | None = None,
    cast: Mapping[str, str] | None = None,
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
    time_limit: float = TIME_LIMIT_S,
    progress: Progress | None = None,
) -> Comparison:
    """Compare a candidate with a reference on the same samples, as the command `compare` does.

    Either side is a path (a model or recorded outputs), a release (`MODEL@ALIAS`), the address of a model on a server,
    `module:callable`, or an object. An object is a `torch.nn.Module`, a Keras model, or a function from a dict of
    arrays by name to such a dict. It runs in this process, as `ran_in` of the result shows: no limit applies, and a
    crash ends Python. Everything else runs in a child process. A module is in evaluation mode meanwhile.

    - `reference`, `candidate`: the correct model, and the one that is judged.
    - `samples`: a path, `module:callable`, a mapping of arrays with one row a sample, or an iterable of batches, each a
      `Batch` or such a mapping.
    - `precision`: that of the candidate, which selects the default tolerances.
    - `decisions`: how an output becomes a decision, by output: `argmax`, `threshold=3`, `top_k=5`, `multilabel=0.5`.
    - `constant_decisions`: why a decision may be the same in all rows, by output.
    - `tolerance`: limits in place of the defaults: `{"max_abs_diff": 1e-3}`, or `{"scores:max_abs_diff": 1e-3}` for one
      output, where a list has a number for each column.
    - `repeat`: how often the samples run in one session.
    - `rename`: the reference's name of an input or output by the candidate's.
    - `signatures`: the signature of a SavedModel by `reference` and `candidate`; default `serving_default`.
    - `takes`: the inputs of a side, comma-separated, where the other side takes other columns of the same rows:
      `{"candidate": "text"}`. Then no probes run.
    - `outputs`: the outputs to compare; none means all.
    - `argmax_of`: by an output of labels, the output of the scores whose argmax it is.
    - `gold`, `matches`: metrics against gold and lists of detections, as for `--gold` and `--match`.
    - `ignore`: why an output is not compared, by output.
    - `axes`: the channel axis, by output.
    - `min_cosine_similarity`: the least cosine similarity of the two outputs for any row, by output.
    - `min_sqnr`: the least signal-to-quantization-noise ratio in dB, by output.
    - `valid_where`: the input that is set where positions of an output count, by output.
    - `roles`: the role of an input, as for `--role`: `mask`, or `{"role": "mask", "empty": False}`.
    - `non_finite`: `refuse` or `match` NaN and infinity in the reference.
    - `min_rows`: fewer rows are inconclusive.
    - `batch_size`: rows a batch, where the samples do not declare it.
    - `columns`: the columns of a table that form an input, in its order.
    - `cast`: the dtype that an input's values are cast to, such as `float32`.
    - `pad`: the value that pads lists of JSON lines, by input.
    - `seed`: the seed of all choices.
    - `emulate`: round every value of the candidate (ONNX) to the precision.
    - `probes`: the probes to run; None means all, `none` or `()` none.
    - `edge`: the effect of an out-of-sample finding: `fail`, `warn` or `off`.
    - `failures`: a folder for the batches that the candidate fails.
    - `device`: `cpu` or `cuda`.
    - `provider`: ONNX Runtime's provider for the candidate: `cpu`, `cuda` or `tensorrt`.
    - `endpoint`: limits on a server: `requests`, `requests_per_second`, `timeout_s`, `max_answer_mb`, `trials`.
    - `endpoint_json`: the fields of a server's JSON for inputs and outputs, as a file or its data.
    - `repository`: where releases are.
    - `time_limit`: seconds after which a child process is stopped.
    - `progress`: called with the stage, the rows done, and their total (0 if unknown).

    Raises:
        ParitygateError: An argument, file or sample is wrong (exit code 2). Other failures are a result with the
            verdict `error`.
    """
    values = values_of_python(locals())
    here, objects = Path.cwd(), dict[str, object]()
    place = os.fspath(samples) if isinstance(samples, (str, os.PathLike)) else None
    source = SampleSource(
        text=place or "",
        folder=here,
        batch_size=batch_size,
        pad=by_name("pad", pad, {"input": 0.0}, of=float),
        columns=columns_by_name(columns),
        cast=dtypes(by_name("cast", cast, {"input": "float32"})),
    )
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
            from paritygate.validate.samples.in_memory import store_samples

            folder = stack.enter_context(temporary_folder("samples"))
            job = replace(job, samples=store_samples(samples, folder, source))
        if objects or place is None:
            job = replace(job, again="")
        if objects:
            from paritygate.models.loading import live_objects

            stack.enter_context(live_objects(objects))
        result = compare_job(job, time_limit_s=time_limit, progress=progress or silent)
    if place is None:
        result = _without_folder(result, job.samples)
    _raise_usage(result)
    return as_public(Comparison, result)


def _json_mapping(given: str | os.PathLike[str] | Mapping[str, Any] | None) -> JsonMapping | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else json_mapping_of(given)
    return read_json_mapping(Path(given))


def _model(
    given: object, rename: Mapping[str, str], objects: dict[str, object], parse: Callable[..., ModelRef]
) -> ModelRef:
    """Return a model to compare; objects are added to `objects` under the text that represents them."""
    if isinstance(given, (str, os.PathLike)):
        return parse(os.fspath(given), rename=rename)
    from paritygate.models.loading import kind_of_live

    kind = kind_of_live(given)
    # The same object twice is one model.
    text = next((text for text, model in objects.items() if model is given), f"object {len(objects)}")
    objects[text] = given
    named = given if kind is SourceKind.FUNCTION and hasattr(given, "__qualname__") else type(given)
    name = getattr(named, "__qualname__", type(given).__name__)
    return ModelRef(text=text, folder=Path.cwd(), kind=SourceKind.LIVE, name=name, rename=rename)


def _check_devices(objects: Mapping[str, Any], device: str) -> None:
    """Raise UsageError for a module on another device, because moving it would break an optimizer of the caller's."""
    if not objects:
        return
    from paritygate.models.loading import kind_of_live

    for model in objects.values():
        if kind_of_live(model) is SourceKind.TORCH:
            from paritygate.models.torch.module import device_of

            own = device_of(model).type
            if own != device:
                msg = f"the module {type(model).__name__} is on device {own!r}, but the comparison runs on {device!r}"
                raise UsageError(msg, hint=f"move it first: module.to({device!r}); or give device={own!r}")


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
        raise kind(error.message, **error.next_step)


_Result = TypeVar("_Result", "Comparison", "Outcome")


def as_public(kind: type[_Result], found: ComparisonResult | RunOutcome) -> _Result:
    """Return a result as the API's class with the same fields."""
    return kind(**{name: getattr(found, name) for name in found.__struct_fields__})


def texts(given: Sequence[str]) -> tuple[str, ...]:
    """Return texts, where a single one may be given alone."""
    # A text is itself a sequence of texts, which nobody means.
    return (given,) if isinstance(given, str) else tuple(given)


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""
    del stage, done, total
