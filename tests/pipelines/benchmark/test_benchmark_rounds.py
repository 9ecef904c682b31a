"""The rounds of a benchmark, on times of our own: how many there are, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from paritygate.errors import BackendError
from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.pipelines.benchmark.rounds import BenchmarkSubject, Point, run_rounds, uncertain
from paritygate.pipelines.benchmark.worker import RefusedError, TurnAnswer, Worker
from paritygate.pipelines.compare.models import recorded_model
from paritygate.pipelines.run.benchmark import _uncertain_note
from paritygate.pipelines.spec.benchmark_plan import BenchmarkPlan

_AT: Point = (8, 1)
_PLAN = BenchmarkPlan(batch_sizes=(8, 1), concurrency=(1,), rounds=3, seconds=0.1, price_per_hour=None)


class _Clock:
    """Goes on by what a turn takes."""

    def __init__(self, turn_s: float) -> None:
        self.now = 1000.0
        self._turn_s = turn_s

    def __call__(self) -> float:
        return self.now

    def tick(self) -> None:
        self.now += self._turn_s


class _Timed:
    """A worker whose latencies are recorded: one number a round, in milliseconds, the last one again and again."""

    def __init__(self, medians_ms: Sequence[float], clock: _Clock, left_s: float = 3600.0) -> None:
        self.medians_ms = list(medians_ms)
        self.clock = clock
        self.left_s = left_s
        self.asked: list[tuple[Point, int]] = []

    def take_turn(self, point: Point, *, start: int, cycle: int, seconds: float) -> TurnAnswer:
        assert cycle == 5
        number = len([at for at, _ in self.asked if at == point])
        assert seconds == _PLAN.seconds
        self.asked.append((point, start))
        self.clock.tick()
        self.left_s -= 1
        median = self.medians_ms[min(number, len(self.medians_ms) - 1)]
        return TurnAnswer(latencies_ns=np.full(5, int(median * 1e6), dtype=np.int64), wall_s=0.1, cpu_s=0.1)


def _entrant(name: str, worker: object, *, may_be_released: bool = True) -> BenchmarkSubject:
    return BenchmarkSubject(
        name=name,
        model=recorded_model(Path("nothing"), name=name),
        worker=cast("Worker", worker),
        may_be_released=may_be_released and name != SOURCE,
        latency_s=dict.fromkeys(_PLAN.points, 0.001),
        turns={point: [] for point in _PLAN.points},
    )


def _run(subjects: Sequence[BenchmarkSubject], clock: Callable[[], float]) -> list[str]:
    """Run the rounds and return what was said of them."""
    said: list[str] = []
    run_rounds(
        subjects, _PLAN, dict.fromkeys(_PLAN.points, 5), seed=0,
        progress=lambda text, *_: said.append(text), clock=clock,
    )  # fmt: skip
    return said


def _rounds(subject: BenchmarkSubject, point: Point = _AT) -> int:
    return len(subject.turns[point])


# Rounds that say nothing.
_WILD = (1.0, 50.0, 0.02)


def test_there_are_as_many_rounds_as_were_asked_for_and_each_says_how_long_the_rest_takes() -> None:
    clock = _Clock(0.5)
    subjects = [_entrant(name, _Timed([at], clock)) for name, at in ((SOURCE, 6.0), ("one", 3.0), ("two", 4.0))]

    said = _run(subjects, clock)

    assert [_rounds(item, point) for item in subjects for point in _PLAN.points] == [3] * 6
    assert len(said) == 3
    assert said[0].startswith("benchmark: round 1 of 3, about ")
    assert said[1] == "benchmark: round 2 of 3, about 6 s left"
    # Rows go on where they were, in every round.
    assert [start for at, start in cast("_Timed", subjects[1].worker).asked if at == _AT] == [0, 5, 10]


@pytest.mark.parametrize("wild", [SOURCE, "one", "two"])
def test_no_round_is_added_where_the_speed_is_uncertain_and_a_note_says_against_which(wild: str) -> None:
    clock = _Clock(0.01)
    subjects = [
        _entrant(name, _Timed(_WILD if name == wild else [at], clock))
        for name, at in ((SOURCE, 6.0), ("one", 3.0), ("two", 4.0))
    ]

    _run(subjects, clock)

    assert [_rounds(item) for item in subjects] == [3, 3, 3]
    assert any(wild in pair for pair in uncertain(subjects, _AT))
    (note,) = _uncertain_note(subjects, _AT)
    assert wild in note


@pytest.mark.parametrize("is_wild", [True, False])
def test_the_speed_of_what_did_not_pass_leaves_nothing_uncertain(*, is_wild: bool) -> None:
    clock = _Clock(0.01)
    subjects = [
        _entrant(SOURCE, _Timed([6.0], clock)),
        _entrant("failed", _Timed(_WILD if is_wild else [0.1], clock), may_be_released=False),
        _entrant("one", _Timed([3.0], clock)),
    ]

    _run(subjects, clock)

    assert uncertain(subjects, _AT) == []
    assert _uncertain_note(subjects, _AT) == ()


@pytest.mark.parametrize("error", [RefusedError("not today"), BackendError("it crashed")])
def test_the_rounds_go_on_without_a_variant_that_is_gone_on_the_way(error: BackendError) -> None:
    clock = _Clock(0.01)
    worker = _Timed([3.0], clock)
    timed = worker.take_turn

    def fail_later(point: Point, *, start: int, cycle: int, seconds: float) -> TurnAnswer:
        if start >= 10:
            raise error
        return timed(point, start=start, cycle=cycle, seconds=seconds)

    worker.take_turn = fail_later  # type: ignore[method-assign]
    worker.close = lambda: None  # type: ignore[attr-defined]
    subjects = [
        _entrant(SOURCE, _Timed([6.0], clock)), _entrant("one", _Timed([3.0], clock)), _entrant("two", worker),
    ]  # fmt: skip

    _run(subjects, clock)

    assert [_rounds(item) for item in subjects[:2]] == [3, 3]
    assert _AT not in subjects[2].turns
    assert subjects[2].errors
