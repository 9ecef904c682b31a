"""The rounds of a benchmark: as many as were asked for, and more where a choice by speed would be a guess."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from paritygate.errors import ParitygateError
from paritygate.pipelines.benchmark.subjects import BenchmarkSubject, speedup_of_turns
from paritygate.pipelines.benchmark.worker import RefusedError
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.spec.benchmark_plan import BenchmarkPlan

__all__ = ["MOST_SECONDS", "Point", "point_words", "run_rounds", "uncertain"]

# Batch size and concurrency.
Point = tuple[int, int]

# Seconds of rounds that are added to those that were asked for.
MOST_SECONDS = 60.0
# A round is added only where a worker has time left for this many: what was not asked for uses up no time limit.
_ROUNDS_LEFT = 4
# For the first estimate of what is left: calls that are not timed, and the wait for idle threads.
_TURN_FACTOR = 1.1
_SETTLE_S = 0.03


def run_rounds(  # noqa: PLR0913 - what takes turns, where, in which order and by which clock
    subjects: Sequence[BenchmarkSubject],
    plan: BenchmarkPlan,
    cycles: Mapping[Point, int],
    *,
    chosen_at: Point,
    seed: int,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Let every subject take its turns, in every round and at every point, in an order drawn anew.

    After the rounds that were asked for, some are added at the point that variants are chosen at, while the interval of
    a ratio that the choice rests on spans a factor of 2, and no more than `MOST_SECONDS` were spent on added ones.

    Args:
        subjects: The source first.
        plan: What to measure.
        cycles: How many calls a cycle has, for each point that is measured.
        chosen_at: The point that a release is chosen at.
        seed: Seed of the order.
        progress: Told which round it is.
        clock: Returns seconds.
    """
    order = np.random.default_rng(seed)

    def take_turns(point: Point, number: int) -> None:
        for index in order.permutation(len(subjects)):
            _take_turn(subjects[index], point, plan, start=number * cycles[point], cycle=cycles[point])

    begin = clock()
    round_s = _expected_seconds(subjects, plan, cycles)
    for number in range(plan.rounds):
        if number:
            round_s = (clock() - begin) / number
        left = f"about {max(1.0, round_s * (plan.rounds - number)):.0f} s left"
        progress(f"benchmark: round {number + 1} of {plan.rounds}, {left}", 0, 0)
        for point in cycles:
            take_turns(point, number)
    number = plan.rounds
    added = clock()
    while (found := uncertain(subjects, chosen_at)) and clock() - added < MOST_SECONDS:
        if any(_has_little_left(subject, (clock() - begin) / number) for subject in subjects):
            break
        words = "; ".join(f"{one} against {other}" for one, other in found)
        progress(f"benchmark: round {number + 1}, added while the speed is uncertain: {words}", 0, 0)
        take_turns(chosen_at, number)
        number += 1


def uncertain(subjects: Sequence[BenchmarkSubject], point: Point) -> list[tuple[str, str]]:
    """Return the pairs, by name, whose speeds a choice rests on and that are uncertain by a factor of 2 or more.

    These are each variant that may be released against the fastest of them, and the fastest against the source.
    """
    source, *variants = subjects
    timed = [(turns, item) for item in variants if item.may_be_released and (turns := item.turns.get(point))]
    if not timed:
        return []
    best, fastest = min(timed, key=lambda pair: np.median([np.median(turn.latencies_ns) for turn in pair[0]]))
    others = [(turns, item) for turns, item in timed if item is not fastest]
    if source.turns.get(point):
        others.append((source.turns[point], source))
    found = []
    for turns, item in others:
        speedup = speedup_of_turns(best, turns)
        if speedup is not None and (speedup.is_too_wide if item is source else speedup.is_undecided):
            found.append((item.name, fastest.name))
    return found


def _has_little_left(subject: BenchmarkSubject, round_s: float) -> bool:
    return subject.worker is not None and subject.worker.left_s < _ROUNDS_LEFT * round_s


def point_words(point: Point) -> str:
    """Return a point in words."""
    return f"batch size {point[0]}, concurrency {point[1]}"


def _expected_seconds(subjects: Sequence[BenchmarkSubject], plan: BenchmarkPlan, cycles: Mapping[Point, int]) -> float:
    """Return about how long a round will take: whole cycles are timed, after some calls that are not."""
    return sum(
        max(plan.seconds, cycles[point] * subject.latency_s[point]) * _TURN_FACTOR + _SETTLE_S
        for subject in subjects
        for point in subject.turns
    )


def _take_turn(subject: BenchmarkSubject, point: Point, plan: BenchmarkPlan, *, start: int, cycle: int) -> None:
    if subject.worker is None or point not in subject.turns:
        return
    try:
        turn = subject.worker.take_turn(point, start=start, cycle=cycle, seconds=plan.seconds)
    except RefusedError as err:
        subject.note(err, point_words(point))
        del subject.turns[point]
    except ParitygateError as err:
        subject.fail(err)
    else:
        subject.turns[point].append(turn)
