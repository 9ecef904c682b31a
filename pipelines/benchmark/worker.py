"""Drive a benchmark's worker from the parent: a child process that has a model loaded and calls it on demand."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.codec import from_data, to_data
from paritygate.errors import BackendError
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.process.child import ChildJob, check_memory
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.process.serving_child import ServingChild
from paritygate.validate.samples.source import SampleSource


class RefusedError(BackendError):
    """The model refused a call; its worker goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerJob:
    """The job of a worker.

    `kind` is imported before loading is timed. The time limit covers everything. `recorded` is the recorded model that
    the loaded one has to equal, or None; see `Recording.model`.
    """

    model: ModelRef
    kind: SourceKind
    samples: SampleSource
    batch_sizes: tuple[int, ...]
    device: str
    folder: Path
    time_limit_s: float
    recorded: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A worker's report on the loaded model; see `VariantBenchmark`."""

    runtime: str
    version: str
    device: str
    load_s: float
    first_call_ms: float | None
    samples_digest: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnAnswer:
    """A worker's times of one turn; see `TurnTimes`."""

    latencies_ns: NDArray[np.int64]
    wall_s: float
    cpu_s: float


class Worker:
    """A worker, to be closed in any case; `left_s` is the rest of its time limit.

    Any method may raise the error of loading, or `BackendError` after a crash or timeout. Only after `RefusedError` is
    the worker still usable.
    """

    def __init__(self, job: WorkerJob) -> None:
        self.left_s = job.time_limit_s
        self.peak_memory_bytes: int | None = None
        self._serving = ServingChild(_child_job(job))
        self.child = self._serving.child
        self._serving.events.stage = "loading the model"

    def close(self) -> None:
        """End the process."""
        self._serving.close()

    def loaded(self) -> Loaded:
        """Wait until the model is loaded."""
        data = self._timed(self._serving.reply)
        # A small model loads between two checks of memory; a too large one must not be timed first.
        check_memory(self.child, self.child.memory.excess_now(), self._serving.events.stage)
        with reading_result(self.child.job):
            return from_data(Loaded, data)

    def warm_up(self, point: tuple[int, int], *, seconds: float) -> tuple[float, int]:
        """Run each input once, as far as seconds go; return the median latency in seconds and the number of inputs."""
        data = self._ask(point, {"do": "warm up", "seconds": seconds})
        with reading_result(self.child.job):
            return float(data["latency_s"]), int(data["calls"])

    def take_turn(self, point: tuple[int, int], *, start: int, cycle: int, seconds: float) -> TurnAnswer:
        """Time the calls of one turn; see `Turn`."""
        data = self._ask(point, {"do": "turn", "start": start, "cycle": cycle, "seconds": seconds})
        with reading_result(self.child.job):
            return TurnAnswer(
                latencies_ns=np.asarray(data["latencies_ns"], dtype=np.int64),
                wall_s=float(data["wall_s"]),
                cpu_s=float(data["cpu_s"]),
            )

    def _ask(self, point: tuple[int, int], request: Mapping[str, Any]) -> dict[str, Any]:
        batch_size, concurrency = point
        self._serving.events.stage = f"calling it with batch size {batch_size}, concurrency {concurrency}"
        data = self._timed(
            functools.partial(self._serving.ask, {**request, "batch_size": batch_size, "concurrency": concurrency})
        )
        if "error" in data:
            raise RefusedError(str(data["error"]), hint=str(data.get("hint", "")), command=str(data.get("command", "")))
        return data

    def _timed(self, reply: Callable[[float], dict[str, Any]]) -> dict[str, Any]:
        """Return a reply, which takes some of the time limit."""
        begin = time.monotonic()
        data = reply(self.left_s)
        self.left_s -= time.monotonic() - begin
        self.peak_memory_bytes = data.pop("peak_memory_bytes", self.peak_memory_bytes)
        return data


def _child_job(job: WorkerJob) -> ChildJob:
    return ChildJob(
        name="benchmark",
        args={
            "model": to_data(job.model),
            "kind": str(job.kind),
            "samples": to_data(job.samples),
            "batch_sizes": list(job.batch_sizes),
            "device": job.device,
            "recorded": None if job.recorded is None else dict(job.recorded),
        },
        folder=job.folder,
        what=f"the benchmark of {job.model.name}",
        time_limit_s=job.time_limit_s,
    )
