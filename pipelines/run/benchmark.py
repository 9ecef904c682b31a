"""Measure how fast the source and every exported variant answer, on the same rows, in rounds.

All models are loaded at once, one process each. In every round, each model has its turn at every batch size and
concurrency, in a new random order, and one process works at a time. So whatever slows the machine slows all models,
and the speed-up comes from pairs of turns of the same round.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.errors import ExitCode, InputFileError, ParitygateError
from paritygate.files import make_marked_folder, remove_marked_folder, write_json_atomically
from paritygate.machine import available_processors, device_name, machine_facts
from paritygate.models.recorded_source import size_of_source
from paritygate.pipelines.benchmark.load import load_note, mark_load, others_cores
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult
from paritygate.pipelines.benchmark.rounds import (
    BenchmarkSubject,
    Point,
    kind_of,
    point_words,
    run_rounds,
    uncertain,
    variant_of,
)
from paritygate.pipelines.benchmark.trust import contradictions
from paritygate.pipelines.benchmark.worker import RefusedError, Worker, WorkerJob
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.run.workspace import BENCHMARK, RunFolder, required_variants
from paritygate.pipelines.spec.benchmark_plan import BenchmarkPlan, plan_of
from paritygate.precision import Variant
from paritygate.text import counted
from paritygate.validate.measure.check import Verdict
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording

# Enough to try every input of most models, with a bound for slow ones.
_WARM_UP_ROUNDS = 4
_MIN_CYCLE = 3
# The name of its entry in the cache.


def subjects_of(run: RunFolder, device: str = "cpu") -> list[BenchmarkSubject]:
    """Return the source, then the variants in the spec's order; a variant that cannot run has its error already."""
    resolved = run.resolved
    source = replace(resolved.source, name=SOURCE)
    recorded = Recording.load(run.reference).model if (run.reference / RECORD_FILE).is_file() else None
    subjects = [BenchmarkSubject(name=SOURCE, model=source, recorded=recorded, size_bytes=size_of_source(source))]
    evidence = run.evidence()
    for name in run.exported():
        artifact = Artifact.read_record(run.variant_folder(name))
        provider = resolved.provider(artifact.variant, device)
        subject = BenchmarkSubject(name=name, model=artifact_model(artifact, provider=provider), artifact=artifact)
        subjects.append(subject)
        entry = None if evidence is None else evidence.entry(name)
        result = None if entry is None else entry.result
        subject.may_be_released = result is None or result.verdict == Verdict.PASS
        if result is not None and not result.is_measured:
            subject.errors.append(f"validation could not measure it: {result.why_not_measured}")
            continue
        try:
            # The digest of the files that run is the one in the result.
            artifact.verify()
        except ParitygateError as err:
            subject.fail(err)
            continue
        subject.size_bytes = artifact.size_bytes
    return subjects


def take_over_benchmark(run: RunFolder, plan: BenchmarkPlan, device: str = "cpu") -> bool:
    """Reuse the benchmark of an earlier run with a note in it, and return whether there was one.

    It has the same files of all variants, source, samples, plan, machine and installed packages.
    """
    inputs = None if run.cache is None else _asked(run, plan, device)
    if run.cache is None or inputs is None:
        return False
    earlier = run.cache.found(BENCHMARK, inputs)
    if earlier is None:
        return False
    data, done = earlier
    result = BenchmarkResult.read(data)
    note = f"measured on this machine at {done.made_at}, in run {done.taken_from}: --benchmark measures again"
    result = replace(result, notes=(*result.notes, note))
    write_json_atomically(run.benchmark_file, {**to_data(result), **run.made_here()})
    return True


def _asked(run: RunFolder, plan: BenchmarkPlan, device: str) -> dict[str, Any] | None:
    """Return all inputs of the figures besides the files that the run's jobs read; None where one is unknown."""
    evidence = run.evidence()
    if evidence is None or not (run.reference / RECORD_FILE).is_file():
        return None
    recording = Recording.load(run.reference)
    return {
        "variants": {
            entry.variant: [entry.artifact, entry.verdict, run.resolved.provider(Variant.parse(entry.variant), device)]
            for entry in evidence.variants
        },
        "source": recording.model.get("digest"),
        "samples": recording.samples_digest,
        "plan": to_data(plan),
        "chosen_at": list(plan_of(run.resolved).points[0]),
        "seed": run.resolved.spec.seed,
        "device": device,
    }


def benchmark_stage(
    run: RunFolder, plan: BenchmarkPlan, *, time_limit_s: float, progress: Progress, device: str = "cpu"
) -> BenchmarkResult:
    """Measure the source and every exported variant that validation could load, and write `benchmark.json`.

    A variant that cannot be measured has its error in the result, and the others go on. `time_limit_s` is the total
    of one model.

    Raises:
        BackendError: The device is missing.
        StorageError: The disk is full.
    """
    begin = time.monotonic()
    # Raises if the device is missing.
    device_name(device)
    load = mark_load()
    subjects = subjects_of(run, device)
    with ExitStack() as stack, stage(progress, "measuring the speed") as did:
        for subject in subjects:
            if not subject.errors:
                progress(f"benchmark: loading {subject.name}", 0, 0)
                job = WorkerJob(
                    model=subject.model,
                    kind=kind_of(subject),
                    samples=run.resolved.samples(run.samples_path),
                    batch_sizes=plan.batch_sizes,
                    device=device,
                    folder=run.jobs(f"benchmark-{subject.name}"),
                    time_limit_s=time_limit_s,
                    recorded=subject.recorded,
                )
                _load(subject, job, stack)
        digest = _check_same_rows(subjects)
        cycles = _warm_up(subjects, plan, progress)
        run_rounds(subjects, plan, cycles, seed=run.resolved.spec.seed, progress=progress)
        for subject in subjects:
            if subject.worker is not None:
                subject.peak_memory_bytes = subject.worker.peak_memory_bytes
        measured = sum(subject.worker is not None for subject in subjects[1:])
        did(f"measured the speed of {measured} of {counted(len(subjects) - 1, 'variant')}")
    others = others_cores(load, mark_load())
    doubts = _uncertain_note(subjects, plan_of(run.resolved).points[0])
    result = BenchmarkResult(
        batch_sizes=plan.batch_sizes,
        concurrency=plan.concurrency,
        variants=tuple(variant_of(subject, subjects[0], plan.price_per_hour) for subject in subjects),
        samples_digest=digest,
        price_per_hour=plan.price_per_hour,
        machine={**machine_facts(), "cores": available_processors(), "others_cores": others},
        seconds=time.monotonic() - begin,
        device=device,
        round_seconds=plan.seconds,
        seed=run.resolved.spec.seed,
        notes=(*_point_note(run, plan), *load_note(others, available_processors()), *doubts),
    )
    distrust = _contradiction_note(result)
    result = replace(result, notes=(*result.notes, *distrust))
    write_json_atomically(run.benchmark_file, {**to_data(result), **run.made_here()})
    # Neither doubtful figures nor failures are for other runs. Those of a busy machine have a note.
    if not (doubts or distrust or any(subject.may_be_released and subject.errors for subject in subjects)):
        inputs = _asked(run, plan, device)
        if run.cache is not None and inputs is not None:
            run.cache.keep(BENCHMARK, inputs, to_data(result))
    return result


def _point_note(run: RunFolder, plan: BenchmarkPlan) -> tuple[str, ...]:
    """Return a note where these figures cannot choose a variant."""
    first = plan_of(run.resolved).points[0]
    if first in plan.points:
        return ()
    return (f"a release is chosen at {point_words(first)}, the spec's first, and that was not measured",)


def _uncertain_note(subjects: Sequence[BenchmarkSubject], point: Point) -> tuple[str, ...]:
    """Return a note on variants with uncertain speed: a choice by speed treats them as tied."""
    pairs = uncertain(subjects, point)
    if not pairs:
        return ()
    rounds = max(len(subject.turns.get(point, ())) for subject in subjects)
    words = "; ".join(f"{one} against {other}" for one, other in pairs)
    return (f"after {rounds} rounds the speed is still uncertain by a factor of 2 or more: {words}",)


def _contradiction_note(result: BenchmarkResult) -> tuple[str, ...]:
    """Return a note on variants whose medians and throughput disagree, maybe because of other work on the machine."""
    messages = [
        f"{item.variant} is {item.by_median:.3g} times by p50 and {item.by_throughput:.3g} times by rows/s at "
        f"{point_words(item.point)}"
        for item in contradictions(result)
    ]
    if not messages:
        return ()
    why = "do not trust either while other work runs on the machine; measure again on an idle one"
    return (f"medians and throughput disagree: {'; '.join(messages)}: {why}",)


def exit_code_of_benchmark(run: RunFolder, result: BenchmarkResult) -> int:
    """Return 5 if there are no figures of the source or of a required variant, else 0."""
    needed = (result.of(name) for name in (SOURCE, *required_variants(run, result.device)))
    is_measured = all(item is not None and item.points for item in needed)
    return int(ExitCode.PASS if is_measured else ExitCode.NOT_MEASURED)


def _load(subject: BenchmarkSubject, job: WorkerJob, stack: ExitStack) -> None:
    remove_marked_folder(job.folder)
    make_marked_folder(job.folder)
    subject.worker = Worker(job)
    stack.callback(subject.worker.close)
    try:
        subject.loaded = subject.worker.loaded()
    except ParitygateError as err:
        subject.fail(err)


def _check_same_rows(subjects: Sequence[BenchmarkSubject]) -> str:
    """Return the digest of the rows, and fail the subjects that got other rows, as from unseeded samples."""
    digest = ""
    for subject in subjects:
        if subject.loaded is None or subject.worker is None:
            continue
        digest = digest or subject.loaded.samples_digest
        if subject.loaded.samples_digest != digest:
            msg = "the samples gave different rows than before, so they change from reading to reading"
            subject.fail(InputFileError(msg, hint="seed the sample function"))
    return digest


def _warm_up(subjects: Sequence[BenchmarkSubject], plan: BenchmarkPlan, progress: Progress) -> dict[Point, int]:
    """Call every model at every point, and return how many calls a cycle has there.

    The slowest model makes that many calls in a turn. A faster one repeats them.
    """
    cycles: dict[Point, int] = {}
    for point in plan.points:
        progress(f"benchmark: warming up at {point_words(point)}", 0, 0)
        for subject in subjects:
            if subject.worker is None:
                continue
            try:
                latency_s, calls = subject.worker.warm_up(point, seconds=_WARM_UP_ROUNDS * plan.seconds)
            except RefusedError as err:
                subject.note(err, point_words(point))
                continue
            except ParitygateError as err:
                subject.fail(err)
                continue
            subject.turns[point] = []
            subject.latency_s[point] = latency_s
            fitting = max(_MIN_CYCLE, min(calls, int(plan.seconds / latency_s)))
            cycles[point] = min(cycles.get(point, fitting), fitting)
    return cycles
