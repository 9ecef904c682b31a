"""Measure a comparison in shards by many workers, and merge the parts into its result."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.codec import from_data, to_data
from paritygate.files import temporary_folder
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.shards.merged import merge_parts
from paritygate.pipelines.compare.shards.shard import Shard, check_can_be_cut, measure_shard
from paritygate.pipelines.process.child_memory import given_memory_limit, memory_limit
from paritygate.pipelines.scale.engine import Engine
from paritygate.pipelines.scale.workers import call_all
from paritygate.validate.reference.batch_range import nth_range
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult
    from paritygate.pipelines.process.child import Progress

# The first shard also has the probes, so each worker gets several; each costs a start of a process.
_SHARDS_A_WORKER = 4


def files_of(job: ComparisonJob) -> list[Path]:
    """Return the files and folders that each worker needs."""
    samples = job.samples.folder / job.samples.text
    sources = () if job.source is None else (job.source.path,)
    return [path for path in (job.reference.path, job.candidate.path, samples, *sources) if path.exists()]


def compare_by_workers(
    job: ComparisonJob, engine: Engine, *, time_limit_s: float, progress: Progress, say: Callable[[str], None]
) -> ComparisonResult:
    """Return the result of a comparison whose shards several workers measure.

    `say` gets what the workers need, and where they are.

    Raises:
        UsageError: The comparison cannot be measured in parts.
        ParitygateError: A shard could not be measured.
    """
    check_can_be_cut(job, "--workers")
    batches = nth_range(Recording.load(job.reference.path), 1, 1).batches
    of = min(batches, _SHARDS_A_WORKER * engine.workers)
    with temporary_folder("parts") as folder, engine.started(files_of(job), say, are_threads_limited=True) as workers:
        say(f"{of} shards, {workers.place}")
        files = [folder / f"part-{number}.json" for number in range(1, of + 1)]
        parts = itertools.count(1)

        def done(at: int, part: Future[bytes]) -> None:
            files[at].write_bytes(part.result())
            progress("measuring shards", next(parts), of)

        more = of, time_limit_s, given_memory_limit()
        calls = [functools.partial(workers.call, measure_part, to_data(job), at, *more) for at in range(1, of + 1)]
        call_all(calls, engine.workers, done=done, stop=workers.stop)
        return merge_parts(files)


def measure_part(job: Mapping[str, Any], number: int, of: int, time_limit_s: float, memory: int | None) -> bytes:
    """Measure a shard, and return the file of its part; raises as `measure_shard`."""
    with temporary_folder("part") as folder, memory_limit(memory):
        out = folder / "part.json"
        shard = Shard(number=number, of=of)
        measure_shard(from_data(ComparisonJob, job), shard, out, time_limit_s=time_limit_s)
        return out.read_bytes()
