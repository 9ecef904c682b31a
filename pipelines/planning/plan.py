"""Plan a run: the real stages run in a temporary folder, with a cache that does no job."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import ConversionError
from paritygate.files import make_marked_folder, temporary_folder
from paritygate.machine import device_name
from paritygate.pipelines.cache.cache import Cache, CacheRequest, cache_below
from paritygate.pipelines.cache.store import Entry
from paritygate.pipelines.process.child import ChildJob, Progress
from paritygate.pipelines.run.benchmark import take_over_benchmark
from paritygate.pipelines.run.comparisons import has_emulated_row
from paritygate.pipelines.run.record import GRAPH_VARIANT, record_stage
from paritygate.pipelines.run.relaxed_rules import check_asks_enough
from paritygate.pipelines.run.validate import validate_stage
from paritygate.pipelines.run.variant_maker import VariantMaker, bases_of
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.run_spec import RunOptions
from paritygate.pipelines.spec.benchmark_plan import is_benchmark_wanted, plan_of
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.precision import Variant
from paritygate.validate.reference.recorded_outputs import RECORD_FILE

TAKEN_OVER = "taken over"
JUDGED_ANEW = "judged anew"
DONE = "done"
UNKNOWN = "unknown"

_NOTHING_KNOWN = "no result like it is kept"
_OFF = "nothing is kept: the cache is off, inputs are hidden, or this system does not tell what a job reads"
_BENCHMARK = "the benchmark"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """The plan for one job.

    `would_be` is `taken over`, `judged anew` (its models run only if a row then fails), `done`, or `unknown` because it
    depends on a job before. `taken_from` is the run to reuse, and `made_at` its time in UTC. `why` is the first
    difference to earlier jobs, or the dependency.
    """

    job: str
    would_be: str
    taken_from: str = ""
    made_at: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The jobs of a run, in order."""

    model: str
    jobs: tuple[PlannedJob, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return {"model": self.model, "jobs": [to_data(job) for job in self.jobs]}


class _NotDoneError(ConversionError):
    """A job would have to run, but a plan runs nothing."""


@dataclass(kw_only=True, slots=True)
class _PlanningCache(Cache):
    """A cache that reuses results, but neither runs nor stores any."""

    planned: list[PlannedJob] = field(default_factory=list)

    def run_job(self, job: ChildJob, progress: Progress = lambda *_: None, **how: Any) -> Any:  # noqa: ANN401 - as `Cache`
        """Return a cached result, with the job's files in place; raise _NotDoneError if there is none."""
        if self.store is None:
            raise self._not_done(PlannedJob(job=job.what, would_be=DONE, why=_OFF))
        result = Cache.run_job(self, job, progress, **how)
        taken = self.done[-1]
        self.planned.append(
            PlannedJob(job=taken.job, would_be=TAKEN_OVER, taken_from=taken.taken_from, made_at=taken.made_at)
        )
        return result

    def _judge(self, wanted: CacheRequest, known: Entry, progress: Progress) -> Any:  # noqa: ANN401 - never returns
        del progress
        job = PlannedJob(
            job=wanted.job.what,
            would_be=JUDGED_ANEW,
            taken_from=known.made_in,
            made_at=known.made_at,
            why="other limits or rules judge the cached outputs; a row beyond its limit may run again",
        )
        raise self._not_done(job)

    def _do(self, wanted: CacheRequest, why: str, progress: Progress) -> Any:  # noqa: ANN401 - never returns
        del progress
        raise self._not_done(PlannedJob(job=wanted.job.what, would_be=DONE, why=why or _NOTHING_KNOWN))

    def _not_done(self, job: PlannedJob) -> _NotDoneError:
        self.planned.append(job)
        return _NotDoneError(job.would_be)

    def forget(self) -> None:
        """Keep all entries."""

    def is_made_anew(self, what: str) -> bool:
        """Return whether a job of this name would not be reused."""
        return any(job.job == what and job.would_be != TAKEN_OVER for job in self.planned)


def plan_run(resolved: ResolvedSpec, options: RunOptions, *, samples_path: str | None = None) -> Plan:
    """Return the plan of a run; nothing runs, and only a temporary folder is written.

    Options about a release are ignored. `samples_path` replaces the spec's own samples.

    Raises:
        ParitygateError: The run would not begin, or would end early: the source is missing, or it asks less than a
            failed run.
    """
    with temporary_folder("plan") as place:
        folder = make_marked_folder(place.resolve() / "run")
        store = None if resolved.hides_inputs(is_leaving=False) else cache_below(options.root, folder).store
        cache = _PlanningCache(run=folder, store=store)
        path = None if samples_path is None else str(Path(samples_path).resolve())
        beside = (options.root / "runs").resolve()
        run = RunFolder(folder=folder, resolved=resolved, samples_path=path, beside=beside, cache=cache)
        device_name(options.device)
        check_asks_enough(run)
        others = (*_conversions(run, cache, options), *_recording(run, cache, options), *_comparisons(run, options))
        jobs = (*cache.planned, *others)
        is_measured = options.is_benchmarking
        if is_benchmark_wanted(resolved, options.limits) if is_measured is None else is_measured:
            jobs = (*jobs, _benchmark(run, cache, options, is_known=all(job.would_be == TAKEN_OVER for job in jobs)))
        return Plan(model=resolved.name, jobs=jobs)


def _silent(*_: object) -> None:
    pass


def _conversion(run: RunFolder, name: str) -> str:
    return f"the conversion of {run.resolved.name} to {name}"


def _conversions(run: RunFolder, cache: _PlanningCache, options: RunOptions) -> list[PlannedJob]:
    """Plan the conversions, and return those that are not cached."""
    _ = run.resolved.source
    names = run.resolved.target_names
    maker = VariantMaker(run, names, time_limit_s=options.time_limit_s, progress=_silent)
    unknown = []
    for name in names:
        made, job = maker.make(name), _conversion(run, name)
        # The run would do the first conversion, and so know the fit in the next ones.
        maker.is_fit_known |= cache.is_made_anew(job)
        if not isinstance(made, FailedVariant) or cache.is_made_anew(job):
            continue
        base = next((each for each in bases_of(Variant.parse(name)) if cache.is_made_anew(_conversion(run, each))), "")
        if base:
            unknown.append(
                PlannedJob(job=job, would_be=UNKNOWN, why=f"{base}, which it is made from, would be made again")
            )
        else:
            unknown.append(PlannedJob(job=job, would_be=DONE, why=f"nothing is cached: {made.message}"))
    return unknown


def _recording(run: RunFolder, cache: _PlanningCache, options: RunOptions) -> list[PlannedJob]:
    if cache.is_made_anew(_conversion(run, GRAPH_VARIANT)):
        why = f"{GRAPH_VARIANT} would be made again"
        return [PlannedJob(job=f"the recording of {run.resolved.name}", would_be=UNKNOWN, why=why)]
    with contextlib.suppress(_NotDoneError):
        record_stage(run, time_limit_s=options.time_limit_s, progress=_silent, device=options.device)
    return []


def _comparisons(run: RunFolder, options: RunOptions) -> list[PlannedJob]:
    made, is_recorded = run.exported(), (run.reference / RECORD_FILE).is_file()
    if is_recorded:
        validate_stage(run, time_limit_s=options.time_limit_s, progress=_silent, device=options.device)
    why = "the compared variants would be made again"
    return [
        PlannedJob(job=f"the {what} of {variant} with {run.resolved.name}", would_be=UNKNOWN, why=why)
        for variant in run.resolved.variants
        if not is_recorded or str(variant) not in made
        for what in (
            "comparison",
            *(("emulated comparison",) if has_emulated_row(variant, run.resolved.rules(variant)) else ()),
        )
    ]


def _benchmark(run: RunFolder, cache: _PlanningCache, options: RunOptions, *, is_known: bool) -> PlannedJob:
    if options.is_benchmarking is not None:
        return PlannedJob(job=_BENCHMARK, would_be=DONE, why="requested by name")
    if not is_known:
        return PlannedJob(job=_BENCHMARK, would_be=UNKNOWN, why="the measured variants may be made again")
    if not take_over_benchmark(run, plan_of(run.resolved), options.device):
        return PlannedJob(job=_BENCHMARK, would_be=DONE, why="these were not measured so on this machine")
    taken = cache.done[-1]
    return PlannedJob(job=taken.job, would_be=TAKEN_OVER, taken_from=taken.taken_from, made_at=taken.made_at)
