"""Benchmark: how fast the source and every exported variant answer, on the same rows, in turns.

All models are loaded at once, one process each, and called in rounds: in every round, at every batch size and
concurrency, each has its turn, in an order that is drawn anew. What slows the machine for a while so slows all of
them, and the speed-up is taken from pairs of turns of the same round. Only one process works at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from paritygate.errors import ExitCode, InputFileError, ParitygateError
from paritygate.files import make_marked_folder, remove_marked_folder, write_json_atomically
from paritygate.machine import device_name, machine_facts
from paritygate.pipelines.benchmark.entrants import Entrant, entrants_of, kind_of, variant_of
from paritygate.pipelines.benchmark.load import cores, load_note, mark_load, others_cores
from paritygate.pipelines.benchmark.plan import BenchmarkPlan, plan_of
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult
from paritygate.pipelines.benchmark.worker import RefusedError, Worker, WorkerJob
from paritygate.pipelines.child import Progress
from paritygate.pipelines.workspace import RunFolder, required_variants

__all__ = ["benchmark_stage", "exit_code_of_benchmark"]

Point = tuple[int, int]

# Enough for a look at every input of most models, and bounded for slow ones.
_WARM_UP_ROUNDS = 4
_MIN_CYCLE = 3
# For the first estimate of what is left: calls that are not timed, and the wait for idle threads.
_TURN_FACTOR = 1.1
_SETTLE_S = 0.03


def benchmark_stage(
    run: RunFolder, plan: BenchmarkPlan, *, time_limit_s: float, progress: Progress, device: str = "cpu"
) -> BenchmarkResult:
    """Measure the source and every exported variant that could be loaded in validation, and write `benchmark.json`.

    A variant that cannot be measured has its error in the result; the others go on.

    Args:
        run: The run.
        plan: What to measure.
        time_limit_s: Seconds that may be spent on each of them altogether.
        progress: Told what is done.
        device: Where the models run.

    Raises:
        BackendError: The device is not there.
        StorageError: The disk is full.
    """
    begin = time.monotonic()
    # Raises if the device is not there.
    device_name(device)
    load = mark_load()
    entrants = entrants_of(run, device)
    with ExitStack() as stack:
        for entrant in entrants:
            if not entrant.errors:
                progress(f"benchmark: loading {entrant.name}", 0, 0)
                job = _job(entrant, run, plan, device=device, time_limit_s=time_limit_s)
                _load(entrant, job, stack)
        digest = _check_same_rows(entrants)
        cycles = _warm_up(entrants, plan, progress)
        _run_rounds(entrants, plan, cycles, seed=run.resolved.spec.seed, progress=progress)
        for entrant in entrants:
            if entrant.worker is not None:
                entrant.peak_memory_bytes = entrant.worker.peak_memory_bytes
    others = others_cores(load, mark_load())
    result = BenchmarkResult(
        batch_sizes=plan.batch_sizes,
        concurrency=plan.concurrency,
        variants=tuple(variant_of(entrant, entrants[0], plan.price_per_hour) for entrant in entrants),
        samples_digest=digest,
        price_per_hour=plan.price_per_hour,
        machine={**machine_facts(), "cores": cores(), "others_cores": others},
        seconds=time.monotonic() - begin,
        device=device,
        round_seconds=plan.seconds,
        seed=run.resolved.spec.seed,
        notes=(*load_note(others, cores()), *_point_note(run, plan)),
    )
    write_json_atomically(run.benchmark_file, result.to_json())
    return result


def _point_note(run: RunFolder, plan: BenchmarkPlan) -> tuple[str, ...]:
    """Return what is to be said where no variant can be chosen by these figures."""
    first = plan_of(run.resolved).points[0]
    if first in plan.points:
        return ()
    return (f"a release is chosen at {_point_words(first)}, the spec's first, and that was not measured",)


def exit_code_of_benchmark(run: RunFolder, result: BenchmarkResult) -> int:
    """Return 5 if nothing was measured of the source or of a required variant, else 0."""
    needed = (result.of(name) for name in (SOURCE, *required_variants(run, result.device)))
    is_measured = all(item is not None and item.points for item in needed)
    return int(ExitCode.PASS if is_measured else ExitCode.NOT_MEASURED)


def _job(entrant: Entrant, run: RunFolder, plan: BenchmarkPlan, *, device: str, time_limit_s: float) -> WorkerJob:
    return WorkerJob(
        side=entrant.side,
        kind=kind_of(entrant),
        samples=run.resolved.samples(run.samples_path),
        batch_sizes=plan.batch_sizes,
        device=device,
        folder=run.jobs(f"benchmark-{entrant.name}"),
        time_limit_s=time_limit_s,
        recorded=entrant.recorded,
    )


def _load(entrant: Entrant, job: WorkerJob, stack: ExitStack) -> None:
    remove_marked_folder(job.folder)
    make_marked_folder(job.folder)
    entrant.worker = Worker(job)
    stack.callback(entrant.worker.close)
    try:
        entrant.loaded = entrant.worker.loaded()
    except ParitygateError as err:
        entrant.fail(err)


def _check_same_rows(entrants: Sequence[Entrant]) -> str:
    """Return the digest of the rows; whoever was given others, as from samples drawn at random, is out."""
    digest = ""
    for entrant in entrants:
        if entrant.loaded is None or entrant.worker is None:
            continue
        digest = digest or entrant.loaded.samples_digest
        if entrant.loaded.samples_digest != digest:
            msg = "the samples gave it other rows than the ones before: they are not the same at every reading"
            entrant.fail(InputFileError(msg, hint="seed the sample function"))
    return digest


def _warm_up(entrants: Sequence[Entrant], plan: BenchmarkPlan, progress: Progress) -> dict[Point, int]:
    """Call every model at every point, and return how many calls a cycle has there.

    As many as the slowest one makes in a turn: one that is faster makes the same calls several times.
    """
    cycles: dict[Point, int] = {}
    for point in plan.points:
        progress(f"benchmark: warming up at {_point_words(point)}", 0, 0)
        for entrant in entrants:
            if entrant.worker is None:
                continue
            try:
                latency_s, calls = entrant.worker.warm_up(point, seconds=_WARM_UP_ROUNDS * plan.seconds)
            except RefusedError as err:
                entrant.note(err, _point_words(point))
                continue
            except ParitygateError as err:
                entrant.fail(err)
                continue
            entrant.turns[point] = []
            entrant.latency_s[point] = latency_s
            fitting = max(_MIN_CYCLE, min(calls, int(plan.seconds / latency_s)))
            cycles[point] = min(cycles.get(point, fitting), fitting)
    return cycles


def _point_words(point: Point) -> str:
    return f"batch size {point[0]}, concurrency {point[1]}"


def _run_rounds(
    entrants: Sequence[Entrant], plan: BenchmarkPlan, cycles: Mapping[Point, int], *, seed: int, progress: Progress
) -> None:
    order = np.random.default_rng(seed)
    begin = time.monotonic()
    round_s = _expected_seconds(entrants, plan, cycles)
    for number in range(plan.rounds):
        if number:
            round_s = (time.monotonic() - begin) / number
        left = f"about {max(1.0, round_s * (plan.rounds - number)):.0f} s left"
        progress(f"benchmark: round {number + 1} of {plan.rounds}, {left}", 0, 0)
        for point, cycle in cycles.items():
            for index in order.permutation(len(entrants)):
                _take_turn(entrants[index], point, plan, start=number * cycle, cycle=cycle)


def _expected_seconds(entrants: Sequence[Entrant], plan: BenchmarkPlan, cycles: Mapping[Point, int]) -> float:
    """Return about how long a round will take: whole cycles are timed, after some calls that are not."""
    return sum(
        max(plan.seconds, cycles[point] * entrant.latency_s[point]) * _TURN_FACTOR + _SETTLE_S
        for entrant in entrants
        for point in entrant.turns
    )


def _take_turn(entrant: Entrant, point: Point, plan: BenchmarkPlan, *, start: int, cycle: int) -> None:
    if entrant.worker is None or point not in entrant.turns:
        return
    try:
        turn = entrant.worker.take_turn(point, start=start, cycle=cycle, seconds=plan.seconds)
    except RefusedError as err:
        entrant.note(err, _point_words(point))
        del entrant.turns[point]
    except ParitygateError as err:
        entrant.fail(err)
    else:
        entrant.turns[point].append(turn)
