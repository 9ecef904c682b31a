"""Drive a benchmark's worker from the parent: a child process that has a model loaded and calls it on demand."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.codec import from_data, to_data
from paritygate.errors import BackendError, ParitygateError
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.process.child import (
    ChildJob,
    check_memory,
    garbage_error,
    receive,
    result_of_child,
    start_child,
    stop_child,
    wait_for_end,
)
from paritygate.pipelines.process.child_result import NOT_OURS, reading_result
from paritygate.validate.samples.source import SampleSource

_EXIT_S = 5.0


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
        requests, self._requests = os.pipe()
        answers, theirs = os.pipe()
        self._answers = FileIO(answers, "rb")
        self._pending = b""
        self.left_s = job.time_limit_s
        self._stage = "loading the model"
        self.peak_memory_bytes: int | None = None
        try:
            self.child = start_child(_child_job(job, requests=requests, answers=theirs), inherited=(requests, theirs))
        except BaseException:
            self._close_pipes()
            raise
        finally:
            os.close(requests)
            os.close(theirs)

    def close(self) -> None:
        """End the process."""
        self._close_pipes()
        stop_child(self.child)

    def _close_pipes(self) -> None:
        self._answers.close()
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def loaded(self) -> Loaded:
        """Wait until the model is loaded."""
        data = self._receive()
        # A small model loads between two checks of memory; a too large one must not be timed first.
        check_memory(self.child, self.child.memory.excess_now(), self._stage)
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
        self._stage = f"calling it with batch size {batch_size}, concurrency {concurrency}"
        line = json.dumps({**request, "batch_size": batch_size, "concurrency": concurrency}) + "\n"
        try:
            os.write(self._requests, line.encode())
        except BrokenPipeError:
            raise self._death() from None
        data = self._receive()
        if "error" in data:
            raise RefusedError(str(data["error"]), hint=str(data.get("hint", "")), command=str(data.get("command", "")))
        return data

    def _receive(self) -> dict[str, Any]:
        begin = time.monotonic()
        line = self._line(begin + self.left_s)
        self.left_s -= time.monotonic() - begin
        try:
            data = dict(json.loads(line))
        except NOT_OURS:
            raise garbage_error(self.child, line) from None
        self.peak_memory_bytes = data.pop("peak_memory_bytes", self.peak_memory_bytes)
        return data

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._pending:
            try:
                part = receive(self.child, self._answers.fileno(), deadline, self._stage)
            except TimeoutError:
                stop_child(self.child)
                job = self.child.job
                msg = f"{job.what} took more than {job.time_limit_s:g} s altogether and was stopped {self._when}"
                raise BackendError(msg, hint="give it more time with --time-limit SECONDS, or measure less") from None
            if not part:
                raise self._death()
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    @property
    def _when(self) -> str:
        return f"while {self._stage}"

    def _death(self) -> ParitygateError:
        """Return why the process is gone."""
        with contextlib.suppress(TimeoutError):
            wait_for_end(self.child, time.monotonic() + _EXIT_S, self._stage)
        stop_child(self.child)
        try:
            result_of_child(self.child, self._stage)
        except ParitygateError as err:
            return err
        msg = f"{self.child.job.what} ended {self._when}, before it was stopped"
        return BackendError(msg, hint=f"read the log: {self.child.job.log}")


def _child_job(job: WorkerJob, *, requests: int, answers: int) -> ChildJob:
    return ChildJob(
        name="benchmark",
        args={
            "model": to_data(job.model),
            "kind": str(job.kind),
            "samples": to_data(job.samples),
            "batch_sizes": list(job.batch_sizes),
            "device": job.device,
            "recorded": None if job.recorded is None else dict(job.recorded),
            "requests": requests,
            "answers": answers,
        },
        folder=job.folder,
        what=f"the benchmark of {job.model.name}",
        time_limit_s=job.time_limit_s,
        crash_error=BackendError,
    )
