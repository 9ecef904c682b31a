"""The run folder, through which the stages of a run exchange files."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.backends import backend_state
from paritygate.codec import from_data, to_data
from paritygate.errors import ExitCode, InputFileError, NotAvailableError, NotRunHereError, ParitygateError
from paritygate.files import (
    MARKER,
    corrupt_errors,
    make_marked_folder,
    read_json,
    storage_errors,
    write_json_atomically,
)
from paritygate.formats import why_not_run
from paritygate.pipelines.cache.cache import Cache, cache_below
from paritygate.pipelines.compare.result import NOT_AVAILABLE, NOT_RUN_HERE
from paritygate.pipelines.process.child import DoJob, do_job
from paritygate.pipelines.run.evidence import Evidence, read_evidence
from paritygate.pipelines.run.in_use import RunLock
from paritygate.pipelines.spec.schema import LeftOutTargets, ResolvedSpec, Spec
from paritygate.pipelines.spec.target_choice import needed_backends
from paritygate.precision import Variant

if TYPE_CHECKING:
    from paritygate.pipelines.benchmark.result import BenchmarkResult

DEFAULT_ROOT = Path("artifacts")
SCRATCH = "scratch"
# The benchmark, as the cache names it.
BENCHMARK = "the benchmark"
# The verdict of a required variant that `--target` left out.
LEFT_OUT = "left out by --target"
# The folder that names the pack of a run, and the key for what was measured here since.
UNPACKED = "unpacked"
_SPEC_FILE = "spec.json"
_SCHEMA = 2
_FAILURES_FILE = "export-failures.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedVariant:
    """A variant that could not be made.

    Its verdict is `error`, `not run here` where the machine lacks the GPU, or `not available for this model` where the
    target lacks what the model needs.
    """

    variant: str
    message: str
    hint: str
    exit_code: int
    operators: tuple[tuple[str, ...], ...] = ()
    verdict: str = "error"
    command: str = ""

    @classmethod
    def from_error(cls, variant: str, error: ParitygateError) -> FailedVariant:
        """Return the failure of an error."""
        rows = tuple(getattr(error, "rows", ()))
        return cls(
            variant=variant,
            message=str(error),
            hint=error.hint,
            command=error.command,
            exit_code=int(error.exit_code),
            operators=tuple(tuple(row) for row in rows),
            verdict=_verdict_of(error),
        )


def _verdict_of(error: ParitygateError) -> str:
    if isinstance(error, NotRunHereError):
        return NOT_RUN_HERE
    return NOT_AVAILABLE if isinstance(error, NotAvailableError) else "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFolder:
    """One run on disk."""

    folder: Path  # `<root>/runs/<model>/<run-id>`
    resolved: ResolvedSpec
    samples_path: str | None  # from the command line
    beside: Path | None = None  # the folder of all runs below its root; None where it was copied to another place
    is_scratch: bool = False  # new findings go to a separate folder; evidence, results and reports stay
    is_without_benchmark: bool = False  # its benchmark is ignored
    cache: Cache | None = None  # None where nothing is reused
    hold: RunLock | None = field(default=None, repr=False, compare=False)

    @property
    def run_id(self) -> str:
        """The last part of the folder's name."""
        return self.folder.name

    @property
    def reference(self) -> Path:
        """The folder of the recorded reference."""
        return self.folder / "reference"

    @property
    def findings(self) -> Path:
        """The folder of evidence, results, reports, and their jobs."""
        return self.folder / SCRATCH if self.is_scratch else self.folder

    @property
    def evidence_file(self) -> Path:
        """The path of the evidence."""
        return self.findings / "evidence.json"

    @property
    def benchmark_file(self) -> Path:
        """The path of the benchmark."""
        return self.folder / "benchmark.json"

    def failed_batches(self, name: str) -> Path:
        """Return the folder for probe batches that a variant fails."""
        return self.findings / "probes" / name

    def jobs(self, name: str) -> Path:
        """Return the folder for a job's request, result and log."""
        return self.findings / "jobs" / name

    @property
    def do(self) -> DoJob:
        """The function that does the run's jobs."""
        return do_job if self.cache is None else self.cache.run_job

    def variant_folder(self, variant: str) -> Path:
        """Return the folder of a variant's artifact."""
        return self.folder / variant

    def base_folder(self, variant: str) -> Path:
        """Return the folder of an artifact that is not a target, only the base of targets."""
        return self.folder / "bases" / variant

    def artifact(self, variant: str) -> Artifact:
        """Return a variant's artifact, its files checked.

        Raises:
            InputFileError: It was not exported.
            ArtifactIntegrityError: Its files were changed.
        """
        return Artifact.load(self.variant_folder(variant))

    def exported(self) -> tuple[str, ...]:
        """Return the variants that have an artifact, in the spec's order."""
        return tuple(name for name in self.resolved.target_names if (self.folder / name / ARTIFACT_FILE).is_file())

    def artifacts(self) -> dict[str, Artifact]:
        """Return the record of each exported variant, in the spec's order; their files are not checked."""
        return {name: Artifact.read_record(self.variant_folder(name)) for name in self.exported()}

    def save_failures(self, failures: Mapping[str, FailedVariant]) -> None:
        """Write down which variants could not be made."""
        write_json_atomically(self.folder / _FAILURES_FILE, {name: to_data(item) for name, item in failures.items()})

    def failures(self) -> dict[str, FailedVariant]:
        """Return which variants could not be made, or raise an `InputFileError` if their record is corrupt."""
        path = self.folder / _FAILURES_FILE
        if not path.is_file():
            return {}
        with corrupt_errors(path, hint="start a new run", command="convert-and-validate run SPEC"):
            return from_data(dict[str, FailedVariant], read_json(path))

    def benchmark(self) -> BenchmarkResult | None:
        """Return the benchmark of the run, None if none was made; an `InputFileError` if it is corrupt."""
        if self.is_without_benchmark or not self.benchmark_file.is_file():
            return None
        from paritygate.pipelines.benchmark.result import BenchmarkResult

        again = f"convert-and-validate benchmark --run {shlex.quote(str(self.folder))}"
        with corrupt_errors(self.benchmark_file, command=again):
            data = read_json(self.benchmark_file)
            if isinstance(data, dict):
                data.pop(UNPACKED, None)
            return BenchmarkResult.read(data)

    def unpacked_mark(self) -> str | None:
        """Return the mark of evidence made here since the run was unpacked; an `InputFileError` if it is corrupt."""
        folder = self.folder / UNPACKED
        if not folder.exists():
            return None
        with corrupt_errors(folder, OSError, hint="unpack the run again"):
            mark = read_json(folder / "mark.json")["mark"]
            if isinstance(mark, str) and mark:
                return mark
            msg = f"mark is {mark!r}, not text"
            raise ValueError(msg)

    def made_here(self) -> dict[str, str]:
        """Return the field of evidence that marks it as made here; empty where the run was not unpacked."""
        mark = self.unpacked_mark()
        return {} if mark is None else {UNPACKED: mark}

    def evidence(self) -> Evidence | None:
        """Return the evidence of the run, None before validation; an `InputFileError` if it is corrupt."""
        return read_evidence(self.evidence_file) if self.evidence_file.is_file() else None


def new_run(
    resolved: ResolvedSpec, *, root: Path, samples_path: str | None = None, is_cached: bool = False
) -> RunFolder:
    """Return a new run folder below `root`; `samples_path` replaces the spec's own samples.

    Raises:
        UsageError: The environment has a bad setting of the cache.
        StorageError: The folder cannot be written.
    """
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    folder = root / "runs" / resolved.name / f"{stamp}-{secrets.token_hex(2)}"
    make_marked_folder(folder)
    hold = RunLock(folder)
    path = None if samples_path is None else str(Path(samples_path).resolve())
    data = {
        "schema": _SCHEMA,
        "spec": resolved.spec.model_dump(mode="json", by_alias=True),
        "folder": str(resolved.folder),
        "origin": resolved.origin,
        "samples_path": path,
        "left_out": to_data(resolved.left_out),
    }
    write_json_atomically(folder / _SPEC_FILE, data)
    place = folder.resolve()
    # Hidden inputs must not be copied to a second place.
    is_kept = is_cached and not resolved.hides_inputs(is_leaving=False)
    cache = cache_below(root, place) if is_kept else None
    return RunFolder(
        folder=place, resolved=resolved, samples_path=path, beside=place.parent.parent, cache=cache, hold=hold
    )


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder is one of a run, intact or not: it has the marker and a spec."""
    return (folder / _SPEC_FILE).is_file() and (folder / MARKER).is_file()


def open_run(folder: Path, *, is_held: bool = True) -> RunFolder:
    """Return the run in `folder`, and show others that it is open if `is_held`.

    Raises:
        InputFileError: There is none, its spec is corrupt, or another version of paritygate wrote it.
    """
    path = folder / _SPEC_FILE
    if not is_run_folder(folder):
        msg = f"{folder} is not a run folder"
        hint = "give the folder that export or run printed, a run's id, or latest; see them: convert-and-validate runs"
        raise InputFileError(msg, hint=hint)
    # Locked before it is read, so that nobody removes it meanwhile.
    hold = RunLock(folder) if is_held else None
    with storage_errors(path):
        try:
            data = read_json(path)
            spec = data["spec"]
            check_schema_of_run(str(folder), data)
            for name, kind in (("samples_path", str | None), ("origin", str)):
                if not isinstance(data[name], kind):
                    msg = f"{name} is {data[name]!r}, not text"
                    raise ValueError(msg)  # noqa: TRY301, TRY004 - as what is missing is
            resolved = ResolvedSpec(
                spec=Spec.model_validate(spec),
                folder=Path(data["folder"]),
                origin=data["origin"],
                left_out=from_data(LeftOutTargets, data.get("left_out", {})),
            )
        except (KeyError, TypeError, ValueError) as err:
            msg = f"{path} is corrupt: {str(err).splitlines()[0]}"
            raise InputFileError(msg, hint="start a new run", command="convert-and-validate run SPEC") from err
    place = folder.resolve()
    # Ignore the neighbours of a run that was unpacked or copied to another place.
    is_among_runs = place.parent.name == resolved.name and place.parent.parent.name == "runs"
    return RunFolder(
        folder=place,
        resolved=resolved,
        samples_path=data["samples_path"],
        beside=place.parent.parent if is_among_runs else None,
        hold=hold,
    )


def check_schema_of_run(where: str, data: Mapping[str, Any]) -> None:
    """Raise an `InputFileError` if another version wrote the run with this `spec.json`."""
    schema = data.get("schema")
    if schema != _SCHEMA:
        version = f"another version of paritygate (schema {schema!r}, supported: {_SCHEMA})"
        msg = f"{where} holds a run of {version}, which this version cannot continue"
        raise InputFileError(msg, hint="start a new run", command="convert-and-validate run SPEC")


def required_variants(run: RunFolder, device: str | None = None) -> tuple[str, ...]:
    """Return the variants that decide the run's outcome: the declared ones, else those whose backends are installed.

    A variant that does not run on this machine or device, or is not available for this model, is not required unless
    declared. Where none is left, all are required: a run without measurements has not passed.

    Args:
        run: The run.
        device: `cpu` or `cuda`; None for that of the evidence, else `cpu`.
    """
    spec = run.resolved.spec
    if spec.required is not None:
        return tuple(spec.required)
    return _runnable(run, run.resolved.variants, device) or run.resolved.target_names


def targets_left_out(run: RunFolder, device: str | None = None) -> tuple[str, ...]:
    """Return the variants that `--target` left out and a release waits for: required ones, and others that run here."""
    left_out = run.resolved.left_out
    return left_out.required + _runnable(run, map(Variant.parse, left_out.others), device)


def _runnable(run: RunFolder, variants: Iterable[Variant], device: str | None) -> tuple[str, ...]:
    """Return the variants whose backends are installed and that run on the device, as far as is known."""
    evidence = _readable_evidence(run)
    where = device or ("cpu" if evidence is None else evidence.device.partition(":")[0])
    excused = {NOT_AVAILABLE, NOT_RUN_HERE}
    not_required = {name for name, failure in run.failures().items() if failure.verdict in excused}
    if evidence is not None:
        not_required |= {entry.variant for entry in evidence.variants if entry.verdict in excused}
    return tuple(
        str(variant)
        for variant in variants
        if all(backend_state(name).is_available for name in needed_backends(variant, run.resolved.spec))
        and why_not_run(variant, where) is None
        and str(variant) not in not_required
    )


def _readable_evidence(run: RunFolder) -> Evidence | None:
    try:
        return run.evidence()
    except InputFileError:
        # Callers that need the evidence report that it is corrupt.
        return None


def worst_code(codes: list[int]) -> int:
    """Return the worst of several exit codes, by 5 > 4 > 2 > 1 > 3 > 0."""
    order = [
        ExitCode.NOT_MEASURED,
        ExitCode.NOT_BUILT,
        ExitCode.USAGE,
        ExitCode.PARITY_FAILED,
        ExitCode.INCONCLUSIVE,
        ExitCode.PASS,
    ]
    return int(min(codes, key=lambda code: order.index(ExitCode(code)), default=ExitCode.PASS))
