"""The rounds of a benchmark, on times of our own: how many there are, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from paritygate.errors import BackendError
from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.pipelines.benchmark.rounds import MOST_SECONDS, BenchmarkSubject, Point, run_rounds, uncertain
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
        # Rounds that are added are short, so that there are many of them.
        assert seconds == pytest.approx(0.1 if number < _PLAN.rounds else 0.02)
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


def _run(subjects: Sequence[BenchmarkSubject], clock: Callable[[], float], *, chosen_at: Point = _AT) -> list[str]:
    """Run the rounds and return what was said of them."""
    said: list[str] = []
    run_rounds(
        subjects, _PLAN, dict.fromkeys(_PLAN.points, 5), chosen_at=chosen_at, seed=0,
        progress=lambda text, *_: said.append(text), clock=clock,
    )  # fmt: skip
    return said


def _rounds(subject: BenchmarkSubject, point: Point = _AT) -> int:
    return len(subject.turns[point])


# The first rounds say nothing, the later ones agree.
_SETTLING = (1.0, 50.0, 0.02, *[3.0] * 100)


def test_where_the_rounds_tell_the_variants_apart_none_is_added() -> None:
    clock = _Clock(0.5)
    subjects = [_entrant(name, _Timed([at], clock)) for name, at in ((SOURCE, 6.0), ("one", 3.0), ("two", 4.0))]

    said = _run(subjects, clock)

    assert [_rounds(item) for item in subjects] == [3, 3, 3]
    assert len(said) == 3
    assert said[0].startswith("benchmark: round 1 of 3, about ")
    assert said[1] == "benchmark: round 2 of 3, about 6 s left"


def test_rounds_are_added_until_the_variants_are_told_apart_only_where_the_choice_is_made() -> None:
    clock = _Clock(0.01)
    subjects = [
        _entrant(SOURCE, _Timed([6.0], clock)),
        _entrant("one", _Timed([3.0], clock)),
        _entrant("two", _Timed(_SETTLING, clock)),
    ]

    said = _run(subjects, clock)

    added = _rounds(subjects[0]) - 3
    assert added > 0
    assert [_rounds(item) for item in subjects] == [3 + added] * 3
    assert [_rounds(item, (1, 1)) for item in subjects] == [3] * 3
    assert uncertain(subjects, _AT) == []
    assert len(said) == 3 + added
    # Which of the two has the lower median changes on the way.
    assert said[3] in {
        f"benchmark: round 4, added while the speed is uncertain: {words}"
        for words in ("one against two; source against two", "two against one")
    }
    # Rows go on where they were, as in every round.
    assert [start for at, start in cast("_Timed", subjects[1].worker).asked if at == _AT] == [
        5 * number for number in range(3 + added)
    ]


def test_a_speed_up_over_the_source_that_says_nothing_is_worth_rounds_too() -> None:
    clock = _Clock(0.01)
    subjects = [_entrant(SOURCE, _Timed(_SETTLING, clock)), _entrant("one", _Timed([3.0], clock))]

    said = _run(subjects, clock)

    assert said[3] == "benchmark: round 4, added while the speed is uncertain: source against one"
    assert uncertain(subjects, _AT) == []


def test_no_round_is_added_after_60_seconds_of_added_ones_and_a_note_says_that_it_is_still_uncertain() -> None:
    clock = _Clock(2.0)
    wild = [0.3 if number % 2 else 30.0 for number in range(1000)]
    subjects = [_entrant(name, _Timed([at], clock)) for name, at in ((SOURCE, 6.0), ("one", 3.0))]
    subjects.append(_entrant("two", _Timed(wild, clock)))
    begin = clock.now

    _run(subjects, clock)

    # Three rounds of two points and three turns take 36 s, each one that is added 6 s.
    assert [_rounds(item) for item in subjects] == [13, 13, 13]
    assert clock.now - begin == 36 + MOST_SECONDS
    assert MOST_SECONDS == 60.0
    (note,) = _uncertain_note(subjects, _AT)
    assert note == "after 13 rounds the speed is still uncertain by a factor of 2 or more: two against one"


@pytest.mark.parametrize("is_wild", [True, False])
def test_what_did_not_pass_is_worth_no_rounds(*, is_wild: bool) -> None:
    clock = _Clock(0.01)
    other = _SETTLING if is_wild else [0.1]
    subjects = [
        _entrant(SOURCE, _Timed([6.0], clock)),
        _entrant("failed", _Timed(other, clock), may_be_released=False),
        _entrant("one", _Timed([3.0], clock)),
    ]

    _run(subjects, clock)

    assert [_rounds(item) for item in subjects] == [3, 3, 3]


def test_where_no_release_is_chosen_at_a_point_that_is_measured_none_is_added() -> None:
    clock = _Clock(0.01)
    subjects = [_entrant(SOURCE, _Timed([6.0], clock)), _entrant("one", _Timed(_SETTLING, clock))]

    _run(subjects, clock, chosen_at=(64, 1))

    assert [_rounds(item) for item in subjects] == [3, 3]


def test_rounds_that_were_not_asked_for_do_not_use_up_the_time_limit_of_a_worker() -> None:
    clock = _Clock(1.0)
    subjects = [_entrant(SOURCE, _Timed([6.0], clock)), _entrant("one", _Timed(_SETTLING, clock, left_s=12.0))]

    _run(subjects, clock)

    # Six turns are asked for and leave 6 s of 12; a round took 4 s.
    assert [_rounds(item) for item in subjects] == [3, 3]


@pytest.mark.parametrize("error", [RefusedError("not today"), BackendError("it crashed")])
def test_a_variant_that_is_gone_on_the_way_ends_the_rounds_that_were_added_for_it(error: BackendError) -> None:
    clock = _Clock(0.01)
    worker = _Timed([1.0, 50.0, 0.02], clock)
    timed = worker.take_turn

    def fail_later(point: Point, *, start: int, cycle: int, seconds: float) -> TurnAnswer:
        if start >= 15:
            raise error
        return timed(point, start=start, cycle=cycle, seconds=seconds)

    worker.take_turn = fail_later  # type: ignore[method-assign]
    worker.close = lambda: None  # type: ignore[attr-defined]
    subjects = [
        _entrant(SOURCE, _Timed([6.0], clock)), _entrant("one", _Timed([3.0], clock)), _entrant("two", worker),
    ]  # fmt: skip

    _run(subjects, clock)

    assert [_rounds(item) for item in subjects[:2]] == [4, 4]
    assert _AT not in subjects[2].turns
    assert subjects[2].errors
