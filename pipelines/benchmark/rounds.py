"""Run the rounds of a benchmark, in which the source and the variants take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError, ParitygateError
from paritygate.formats import FORMATS
from paritygate.models.recorded_source import digest_of_recorded
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.benchmark.result import BenchmarkPoint, Speedup, VariantBenchmark
from paritygate.pipelines.benchmark.statistics import cost_per_million, latency_summary, median_ms, speedup_of
from paritygate.pipelines.benchmark.worker import Loaded, RefusedError, TurnAnswer, Worker
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.spec.benchmark_plan import BenchmarkPlan

_MIN_ROUNDS = 2
# Batch size and concurrency.
Point = tuple[int, int]
# For the first estimate of the time left: untimed calls, and the wait for idle threads.
_TURN_FACTOR = 1.1
_SETTLE_S = 0.03


class BenchmarkSubject(Struct, kw_only=True):
    """The source or a variant, with its results so far.

    `recorded` is the recorded model that the source has to equal; None without a recording, and for a variant.
    `may_be_released` is false for the source, and for variants that did not pass.
    """

    name: str
    model: ModelRef
    artifact: Artifact | None = None
    recorded: Mapping[str, Any] | None = None
    may_be_released: bool = False
    size_bytes: int | None = None
    worker: Worker | None = None
    loaded: Loaded | None = None
    peak_memory_bytes: int | None = None
    latency_s: dict[tuple[int, int], float] = field(default_factory=dict)
    turns: dict[tuple[int, int], list[TurnAnswer]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def note(self, error: ParitygateError, where: str = "") -> None:
        """Record why something was not measured, and where."""
        text = f"{error} ({error.hint})" if error.hint else str(error)
        self.errors.append(f"{where}: {text}" if where else text)

    def fail(self, error: ParitygateError) -> None:
        """Give up, because a model that crashes or hangs when served has no speed."""
        self.note(error)
        self.turns = {}
        if isinstance(error, ArtifactIntegrityError):
            # Another file is there, with another size.
            self.size_bytes = None
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def kind_of(subject: BenchmarkSubject) -> SourceKind:
    """Return the kind of a model; for a `module:callable`, the kind found when it was recorded or copied."""
    kind = subject.model.kind
    if kind is SourceKind.CALLABLE and subject.recorded is not None:
        return SourceKind(subject.recorded["kind"])
    if kind is SourceKind.CALLABLE and subject.artifact is not None:
        # The copy of a source has its format.
        return SourceKind.TORCH if FORMATS[subject.artifact.variant.format].runtime == "torch" else kind
    return kind


def variant_of(subject: BenchmarkSubject, source: BenchmarkSubject, price_per_hour: float | None) -> VariantBenchmark:
    """Return the measurements of a subject, with its speed-up against the source and its cost."""
    loaded = subject.loaded
    benchmark = VariantBenchmark(
        name=subject.name,
        artifact=_digest(subject),
        size_bytes=subject.size_bytes,
        peak_memory_bytes=subject.peak_memory_bytes,
        points=tuple(_points(subject, source, price_per_hour)),
        error="; ".join(subject.errors),
    )
    if loaded is None:
        return benchmark
    return replace(
        benchmark,
        runtime=loaded.runtime,
        version=loaded.version,
        device=loaded.device,
        load_s=loaded.load_s,
        first_call_ms=loaded.first_call_ms,
        notes=tuple(_notes(subject, loaded)),
    )


def _digest(subject: BenchmarkSubject) -> str | None:
    if subject.artifact is not None:
        return subject.artifact.digest
    # Loading checks that it is the recorded one.
    is_checked = subject.recorded is not None and subject.loaded is not None
    return digest_of_recorded(subject.recorded) if is_checked and subject.recorded is not None else None


def _notes(subject: BenchmarkSubject, loaded: Loaded) -> Iterator[str]:
    yield from loaded.notes
    if subject.artifact is None and subject.model.kind is SourceKind.CALLABLE:
        yield "load time and peak memory are those of the module:callable, with whatever else it does to make the model"


def _points(
    subject: BenchmarkSubject, source: BenchmarkSubject, price_per_hour: float | None
) -> Iterator[BenchmarkPoint]:
    for point, turns in subject.turns.items():
        if not turns:
            continue
        batch_size, concurrency = point
        calls = sum(len(turn.latencies_ns) for turn in turns)
        wall_s = sum(turn.wall_s for turn in turns)
        rows_per_s = calls * batch_size / wall_s
        yield BenchmarkPoint(
            batch_size=batch_size,
            concurrency=concurrency,
            rounds=len(turns),
            calls=calls,
            latency_ms=latency_summary([turn.latencies_ns for turn in turns]),
            rows_per_s=rows_per_s,
            cpu_cores=sum(turn.cpu_s for turn in turns) / wall_s,
            speedup=None if subject is source else speedup_of_turns(source.turns.get(point, []), turns),
            cost_per_million=None if price_per_hour is None else cost_per_million(price_per_hour, rows_per_s),
            round_medians_ms=_medians(turns),
        )


def _medians(turns: Sequence[TurnAnswer]) -> tuple[float, ...]:
    return tuple(median_ms(turn.latencies_ns) for turn in turns)


def speedup_of_turns(source: Sequence[TurnAnswer], variant: Sequence[TurnAnswer]) -> Speedup | None:
    """Return the ratio of two speeds; None without two rounds of both."""
    if len(source) != len(variant) or len(source) < _MIN_ROUNDS:
        return None
    return speedup_of(_medians(source), _medians(variant))


def run_rounds(  # noqa: PLR0913 - what takes turns, in which order and by which clock
    subjects: Sequence[BenchmarkSubject],
    plan: BenchmarkPlan,
    cycles: Mapping[Point, int],
    *,
    seed: int,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run every subject's turns, in every round and at every point, in a random order.

    No round is added where speeds stay uncertain: they tie, and a tie needs no figures. `subjects` begin with the
    source, `cycles` are the calls of a cycle per point, and `clock` returns seconds.
    """
    order = np.random.default_rng(seed)
    begin = clock()
    round_s = _expected_seconds(subjects, plan, cycles)
    for number in range(plan.rounds):
        if number:
            round_s = (clock() - begin) / number
        left = f"about {max(1.0, round_s * (plan.rounds - number)):.0f} s left"
        progress(f"benchmark: round {number + 1} of {plan.rounds}, {left}", number, plan.rounds)
        for point, cycle in cycles.items():
            for index in order.permutation(len(subjects)):
                _take_turn(subjects[index], point, plan.seconds, start=number * cycle, cycle=cycle)


def uncertain(subjects: Sequence[BenchmarkSubject], point: Point) -> list[tuple[str, str]]:
    """Return pairs of names, releasable or source against the fastest, whose speeds are uncertain by a factor of 2."""
    source, *variants = subjects
    timed = [(turns, item) for item in variants if item.may_be_released and (turns := item.turns.get(point))]
    if not timed:
        return []
    best, fastest = min(timed, key=lambda pair: np.median([np.median(turn.latencies_ns) for turn in pair[0]]))
    others = [(turns, item) for turns, item in timed if item is not fastest]
    if source.turns.get(point):
        others.append((source.turns[point], source))
    pairs = []
    for turns, item in others:
        speedup = speedup_of_turns(best, turns)
        if speedup is not None and (speedup.is_too_wide if item is source else speedup.is_undecided):
            pairs.append((item.name, fastest.name))
    return pairs


def point_words(point: Point) -> str:
    """Return a point as text."""
    return f"batch size {point[0]}, concurrency {point[1]}"


def _expected_seconds(subjects: Sequence[BenchmarkSubject], plan: BenchmarkPlan, cycles: Mapping[Point, int]) -> float:
    """Return the expected seconds of a round: whole cycles, after some untimed calls."""
    return sum(
        max(plan.seconds, cycles[point] * subject.latency_s[point]) * _TURN_FACTOR + _SETTLE_S
        for subject in subjects
        for point in subject.turns
    )


def _take_turn(subject: BenchmarkSubject, point: Point, seconds: float, *, start: int, cycle: int) -> None:
    if subject.worker is None or point not in subject.turns:
        return
    try:
        turn = subject.worker.take_turn(point, start=start, cycle=cycle, seconds=seconds)
    except RefusedError as err:
        subject.note(err, point_words(point))
        del subject.turns[point]
    except ParitygateError as err:
        subject.fail(err)
    else:
        subject.turns[point].append(turn)
