"""Measure a comparison in shards by many workers, and merge the parts into its result."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.errors import LostWorkerError
from paritygate.files import temporary_folder
from paritygate.machine import THREADS, threads_allowed
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.shards.merged import merge_parts
from paritygate.pipelines.compare.shards.shard import Shard, check_can_be_cut, request_of, shards_job
from paritygate.pipelines.process.child_memory import given_memory_limit, memory_limit
from paritygate.pipelines.process.serving_child import ServingChild
from paritygate.pipelines.scale.engine import Engine
from paritygate.pipelines.scale.workers import SoftEnd, call_all, replacement
from paritygate.validate.reference.batch_range import nth_range
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult
    from paritygate.pipelines.process.child import Progress

# The first shard also has the probes, and a worker may be slow, so each gets several.
_SHARDS_A_WORKER = 4
# OpenMP is that of PyTorch.
_THREADS = (THREADS, "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


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
    with temporary_folder("parts") as folder, engine.started(files_of(job), say) as workers:
        threads = threads_allowed() or workers.processors
        say(f"{of} shards, {workers.place}, threads of each: {threads}")
        files = [folder / f"part-{number}.json" for number in range(1, of + 1)]
        parts = itertools.count(1)
        lost: list[LostWorkerError] = []

        def done(at: int, part: Future[bytes]) -> None:
            files[at].write_bytes(part.result())
            progress("measuring shards", next(parts), of)

        def replaced(err: LostWorkerError) -> None:
            lost.append(err)
            say(replacement(err))

        args = to_data(job), of, time_limit_s, given_memory_limit(), {name: str(threads) for name in _THREADS}
        start = functools.partial(workers.start, ShardWorker, *args)
        call_all([[at] for at in range(1, of + 1)], engine.workers, start, done, replaced)
        result = merge_parts(files)[1]
    notes = [f"workers that ended early: {len(lost)}; others measured their shards again"] if lost else []
    return replace(result, notes=[*result.notes, *notes])


class ShardWorker:
    """Measures shards in a child process, which keeps the models open."""

    def __init__(
        self, job: Mapping[str, Any], of: int, time_limit_s: float, memory: int | None, environment: Mapping[str, str]
    ) -> None:
        self._job, self._environment = from_data(ComparisonJob, job), environment
        self._of, self._time_limit_s, self._memory = of, time_limit_s, memory
        self._open = contextlib.ExitStack()
        self._child: ServingChild | None = None
        self._end = SoftEnd()

    def call(self, number: int) -> bytes:
        """Measure a shard, and return the file of its part."""
        with memory_limit(self._memory), temporary_folder("part") as folder:
            if self._child is None:
                place = self._open.enter_context(temporary_folder("shard"))
                job = shards_job(self._job, place, time_limit_s=self._time_limit_s)
                self._child = ServingChild(replace(job, environment=self._environment))
                self._open.callback(self._child.close)
            out = folder / "part.json"
            self._child.ask(request_of(Shard(number=number, of=self._of), out), self._time_limit_s)
            return out.read_bytes()

    def stop(self) -> None:
        """End the process."""
        if self._child is not None:
            self._end(self._child.child.process)

    def close(self) -> None:
        """End the process and remove its folder."""
        self._open.close()
