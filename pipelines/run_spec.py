"""Do a whole run of one spec: export, record, validate, benchmark, report, promote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.codec import to_data
from paritygate.errors import ExitCode, ParitygateError, UsageError
from paritygate.machine import device_name
from paritygate.pipelines.cache.cache import JobDone
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release.afterwards import Afterwards
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository_of_run import promote_command, repository_of
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.report.write import write_reports
from paritygate.pipelines.run.export import export_stage
from paritygate.pipelines.run.record import record_stage
from paritygate.pipelines.run.relaxed_rules import check_asks_enough
from paritygate.pipelines.run.stopped import noting_why_it_stops
from paritygate.pipelines.run.validate import validate_stage
from paritygate.pipelines.run.workspace import (
    DEFAULT_ROOT,
    LEFT_OUT,
    FailedVariant,
    RunFolder,
    required_variants,
    targets_left_out,
    worst_code,
)
from paritygate.pipelines.spec.benchmark_plan import check_price, is_benchmark_wanted, is_speed_needed, plan_of
from paritygate.pipelines.spec.loading import load_spec_to_run
from paritygate.pipelines.spec.names import check_alias
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.pipelines.spec.target_choice import with_probes, with_targets
from paritygate.roots import Root

if TYPE_CHECKING:
    from paritygate.pipelines.release.after_command import AfterCommand
    from paritygate.pipelines.release.repository.release import StoredRelease
    from paritygate.pipelines.release.signing.keys import SigningKey
    from paritygate.pipelines.release.views.view_updates import ViewUpdate

_NOT_MEASURED = "not measured"


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of a run."""

    time_limit_s: float  # of each conversion, recording or comparison
    device: str = "cpu"
    is_benchmarking: bool | None = None  # None: where the spec or a choice by speed needs it
    is_promoting: bool = True
    is_diagnosing: bool = True  # ONNX variants that fail
    repository: Root | None = None  # None: the spec's `promote.to`
    alias: str | None = None  # to move; None: the spec's
    root: Path = DEFAULT_ROOT  # replaces `artifacts/` in the spec's `promote.to`
    limits: Mapping[str, float] = field(default_factory=dict)  # beside those of the spec, or in their place
    signer: SigningKey | None = None  # signs the release


class RunOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

    run: RunFolder
    results: Mapping[str, ComparisonResult]  # of each exported variant
    failures: Mapping[str, FailedVariant]
    release: StoredRelease | None
    repository: Root | None  # of the release, made or not; None where nobody asked for one
    not_released: str  # why there is no release
    exit_code: int  # the worst of the required variants
    reports: tuple[Path, ...]
    would_release: str = ""  # and why, had nothing failed
    rolled_back: Mapping[str, Any] | None = None  # the rollback that forbids the release
    advice: tuple[str, ...] = ()  # on that, one line each
    views: tuple[ViewUpdate, ...] = ()  # those that follow the alias, where it was moved
    after: AfterCommand | None = None  # how the command of `promote.after` ended, where it was run
    jobs: tuple[JobDone, ...] = ()  # reused or done; empty without a cache
    left_out: tuple[str, ...] = ()  # what could not be written after the release, which stays; one line each

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of every target, in the order of the spec; `not measured` where there is none."""
        by_name = {name: failure.verdict for name, failure in self.failures.items()}
        by_name.update({name: result.verdict for name, result in self.results.items()})
        return {name: by_name.get(name, _NOT_MEASURED) for name in self.run.resolved.target_names}

    @property
    def emulated(self) -> dict[str, ComparisonResult]:
        """The emulated row of each variant that has one."""
        evidence = self.run.evidence()
        entries = () if evidence is None else evidence.emulated
        return {entry.variant: entry.result for entry in entries if entry.result is not None}

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.folder

    @property
    def version(self) -> int | None:
        """The released version; None without a release."""
        return None if self.release is None else self.release.version

    def report(self) -> ReportData:
        """Return the data of its report; may raise InputFileError."""
        return collect_report(self.run, release=None if self.release is None else to_data(self.release))

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON data."""
        return {
            "model": self.run.resolved.name,
            "run": str(self.run.folder),
            "exit_code": self.exit_code,
            "required": list(required_variants(self.run)),
            "targets_left_out": list(targets_left_out(self.run)),
            "variants": {
                name: to_data(self.results[name]) if name in self.results else None
                for name in self.run.resolved.target_names
            },
            "emulated": {name: to_data(result) for name, result in self.emulated.items()},
            "benchmark": to_data(benchmark) if (benchmark := self.run.benchmark()) is not None else None,
            "failures": {name: to_data(failure) for name, failure in self.failures.items()},
            "release": to_data(self.release) if self.release is not None else None,
            "not_released": self.not_released,
            "would_release": self.would_release,
            "rolled_back": self.rolled_back,
            "views": [view.to_json() for view in self.views],
            "after": None if self.after is None else to_data(self.after),
            "reports": [str(path) for path in self.reports],
            "jobs": [to_data(job) for job in self.jobs],
            "left_out": list(self.left_out),
        }


def spec_to_run(
    spec: str | Spec | Mapping[str, Any],
    *,
    samples_path: str | None,
    targets: Sequence[str],
    probes: Sequence[str] | None,
) -> ResolvedSpec:
    """Return the spec of a run, limited to the wanted targets and probes.

    `spec` is a path, the name of a packaged spec, or a spec made in Python. Empty `targets` are all. `probes` may be
    empty; None takes the spec's.

    Raises:
        InputFileError: There is no such spec, or a file that it names does not exist.
        UsageError: The spec is wrong, or has no such target.
    """
    return with_probes(with_targets(load_spec_to_run(spec, samples_path=samples_path), targets), probes)


def check_options(resolved: ResolvedSpec, options: RunOptions) -> None:
    """Check that the options fit the spec.

    Raises:
        UsageError: The release is chosen by an unknown price or an unmeasured speed, or the alias is malformed.
    """
    if options.alias is not None:
        check_alias(options.alias)
    if not options.is_promoting:
        return
    check_price(resolved, options.limits)
    if options.is_benchmarking is False and is_speed_needed(resolved, options.limits):
        msg = f"spec {resolved.origin}: its release is chosen by speed, which --no-benchmark does not measure"
        raise UsageError(msg, hint="add --no-promote, or leave --no-benchmark out")


def exit_code_of_run(
    run: RunFolder,
    results: Mapping[str, ComparisonResult],
    failures: Mapping[str, FailedVariant],
    *,
    device: str | None = None,
) -> int:
    """Return the worst exit code of the required variants on the device; see `required_variants`."""
    codes = []
    for name in required_variants(run, device):
        if name in results:
            codes.append(results[name].exit_code)
        elif name in failures:
            codes.append(failures[name].exit_code)
        else:
            codes.append(int(ExitCode.NOT_MEASURED))
    return worst_code(codes)


def _unmet(
    run: RunFolder, results: Mapping[str, ComparisonResult], failures: Mapping[str, FailedVariant], device: str
) -> dict[str, str]:
    """Return the verdicts of required variants that did not pass, and those that `--target` left out."""
    verdicts = {name: outcome.verdict for name, outcome in failures.items()}
    verdicts.update({name: outcome.verdict for name, outcome in results.items()})
    required = {name: verdicts.get(name, _NOT_MEASURED) for name in required_variants(run, device)}
    unmet = {name: verdict for name, verdict in required.items() if verdict != "pass"}
    return unmet | dict.fromkeys(targets_left_out(run, device), LEFT_OUT)


def run_spec(
    run: RunFolder, options: RunOptions, progress: Progress, before_release: Callable[[RunOutcome], None] | None = None
) -> RunOutcome:
    """Do everything that the run's spec asks for. A request that is refused before any work leaves no run folder.

    `before_release` gets the expected outcome before the release, and an error from it prevents the release.

    Raises:
        ParitygateError: An error of all variants: the source, the samples, the reference, the disk.
    """
    after = Afterwards()
    try:
        with noting_why_it_stops(run):
            outcome = _run(run, options, progress, after, before_release)
    except BaseException:
        _close_cache(run)
        raise
    after.do("write the digests of the cache", lambda: _close_cache(run), otherwise=None)
    return replace(outcome, left_out=tuple(after.left_out))


def _close_cache(run: RunFolder) -> None:
    if run.cache is not None:
        run.cache.close()


def _run(
    run: RunFolder,
    options: RunOptions,
    progress: Progress,
    after: Afterwards,
    before_release: Callable[[RunOutcome], None] | None,
) -> RunOutcome:
    # Report a missing GPU before everything is converted.
    device_name(options.device)
    check_asks_enough(run)
    failures = export_stage(run, time_limit_s=options.time_limit_s, progress=progress)
    record_stage(run, time_limit_s=options.time_limit_s, progress=progress, device=options.device)
    results = validate_stage(
        run,
        time_limit_s=options.time_limit_s,
        progress=progress,
        device=options.device,
        is_diagnosing=options.is_diagnosing,
    )
    code = exit_code_of_run(run, results, failures, device=options.device)
    _benchmark(run, options, progress)
    repository = options.repository or repository_of(run, options.root)
    unmet = _unmet(run, results, failures, options.device)

    outcome = RunOutcome(
        run=run,
        results=results,
        failures=failures,
        release=None,
        repository=repository,
        not_released="",
        exit_code=code,
        reports=(),
        jobs=() if run.cache is None else tuple(run.cache.done),
    )
    commit: Commit[StoredRelease] = Commit()
    if before_release is not None:
        commit.prepare = lambda release: before_release(replace(outcome, release=release))
    promoted = _promote(outcome, options, unmet, after, commit)
    release = promoted.release
    release_data = None if release is None else to_data(release)
    # The release has its report already: if this one cannot be written, only the run folder lacks it.
    reports: tuple[Path, ...] = ()
    reports = after.do(
        "write the report of the run", lambda: write_reports(run, release=release_data), otherwise=reports
    )
    views: tuple[ViewUpdate, ...] = ()
    if release is not None:
        from paritygate.pipelines.release.after_command import run_after_command
        from paritygate.pipelines.release.views.view_updates import update_views

        model, aliases = release.model, release.aliases
        views = after.do("write views", lambda: update_views(repository, model, *aliases), otherwise=())
        called = after.do("run promote.after", lambda: run_after_command(run, repository, release), otherwise=None)
        if called is not None:
            promoted = replace(promoted, after=called, exit_code=worst_code([promoted.exit_code, called.code]))
    return replace(promoted, reports=reports, views=views)


def _benchmark(run: RunFolder, options: RunOptions, progress: Progress) -> None:
    is_wanted = options.is_benchmarking
    if is_wanted is None:
        is_wanted = is_benchmark_wanted(run.resolved, options.limits)
    if is_wanted:
        from paritygate.pipelines.run.benchmark import benchmark_stage, take_over_benchmark

        plan = plan_of(run.resolved)
        # An explicit request measures, because figures may have changed since.
        if options.is_benchmarking is None and take_over_benchmark(run, plan, options.device):
            return
        benchmark_stage(run, plan, time_limit_s=options.time_limit_s, progress=progress, device=options.device)


def _promote(
    outcome: RunOutcome, options: RunOptions, unmet: Mapping[str, str], after: Afterwards, commit: Commit[StoredRelease]
) -> RunOutcome:
    """Release the best passing variant, unless a required one did not pass: then the exit code is not 0."""
    if not options.is_promoting:
        return replace(outcome, not_released="not asked for")
    from paritygate.pipelines.choice.choose import choose_stage
    from paritygate.pipelines.release.promote import failed_run, promote_stage

    run = outcome.run
    repository = options.repository or repository_of(run, options.root)
    alias = options.alias or run.resolved.spec.promote.alias
    try:
        choice = choose_stage(run, limits=options.limits)
        if unmet:
            raise failed_run(run, repository, unmet, choice, alias)
        release = after.record(
            commit,
            lambda: promote_stage(
                run,
                repository=repository,
                alias=alias,
                limits=options.limits,
                signer=options.signer,
                choice=choice,
                commit=commit,
            ),
        )
        return replace(outcome, release=release)
    except ParitygateError as err:
        return _without_release(outcome, repository, err, unmet)


def _without_release(
    outcome: RunOutcome, repository: Root, err: ParitygateError, unmet: Mapping[str, str]
) -> RunOutcome:
    """Return the outcome with the reason why there is no release, and what a later release needs."""
    from paritygate.pipelines.release.promote import FailedRunError, NothingToRelease, is_only_part
    from paritygate.pipelines.release.repository.rolled_back import RolledBackError

    if is_only_part(unmet):
        # What was run passed, but the release that was asked for lacks the rest.
        outcome = replace(outcome, exit_code=int(ExitCode.NOT_MEASURED))
    if isinstance(err, FailedRunError):
        advice = tuple(filter(None, (err.note and f"note: {err.note}", f"hint: {err.hint}")))
        return replace(outcome, not_released=str(err), would_release=err.would_release, advice=advice)
    if isinstance(err, RolledBackError):
        outcome = replace(outcome, rolled_back=err.rollback, exit_code=int(err.exit_code))
        return replace(outcome, not_released=str(err), advice=(f"hint: {err.hint}",))
    if unmet:
        return replace(outcome, not_released=f"required and not passed: {', '.join(unmet)}; besides, {err}")
    if isinstance(err, NothingToRelease):
        return replace(outcome, not_released=str(err))
    again = f"hint: {err.hint}; then: {promote_command(outcome.run, repository)}"
    code = worst_code([outcome.exit_code, int(err.exit_code)])
    return replace(outcome, not_released=f"error: {err}", advice=(again,), exit_code=code)
