"""What probes cost: how often the reference is asked, and what is left out where that would be too much."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.signature import Dim
from paritygate.validate.probes.probe_budget import Allowance, SamplesCost, rows_asked_again
from paritygate.validate.probes.skip_reasons import DropKind

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import Asked, ProbeDesk

    from paritygate.validate.runners.runner import Runner

_RANDOM = np.random.default_rng(5)
_PLAIN = "(float[B, 3] x) => (float[B, 3] y) { y = Tanh(x) }"
_LOOKUP = "(int64[B, S] x) => (float[B, 4] y) { r = Gather(t, x) y = ReduceMean<axes = [1], keepdims = 0>(r) }"
# Adds 4e-4, four limits, to every row where the batch is odd.
_NOISY = """(float[B, 3] x) => (float[B, 3] y) {
  plain = Tanh(x) shape = Shape<start=0, end=1>(x) rest = Mod(shape, two) some = Cast<to=1>(rest)
  more = Mul(some, noise) y = Add(plain, more)
}"""


class _Counting:
    """Counts how often a runner is asked, and for how many rows."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def watch(self, runner: Runner) -> None:
        own = runner.run

        def run(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            self.rows.append(len(inputs["x"]))
            return own(inputs)

        runner.run = run  # type: ignore[method-assign,assignment]  # what is counted is every call of it


def _samples(batches: int = 8) -> list[dict[str, NDArray[Any]]]:
    return [{"x": _RANDOM.uniform(-1, 1, size=(4, 3)).astype(np.float32)} for _ in range(batches)]


def _asked_for_probes(desk: ProbeDesk, model: str, weights: dict[str, Any], name: str) -> tuple[Asked, list[int]]:
    """Return a reference with one probe, and the rows of each call that was made for it."""
    samples, with_probes, without = _samples(), _Counting(), _Counting()
    made = desk.model(model, weights)
    desk.ask(made, samples, names=[], change=without.watch)
    asked = desk.ask(made, samples, names=[name], change=with_probes.watch)
    assert with_probes.rows[: len(without.rows)] == without.rows
    return asked, with_probes.rows[len(without.rows) :]


@pytest.mark.parametrize(("name", "times"), [("sensitivity", 2), ("values", 3)])
def test_a_reference_that_keeps_its_answers_is_asked_for_each_row_no_more_often_than_that(
    desk: ProbeDesk, name: str, times: int
) -> None:
    model = "(float[B, 3] x) => (float[B, 3] y) { z = Tanh(x) y = Mul(z, z) }"
    asked, rows = _asked_for_probes(desk, model, {}, name)

    (probe,) = asked.probes.probes
    assert probe.batches
    # A row alone is asked for beside itself.
    alone = sum(batch.rows == 1 for batch in probe.batches)
    not_finite = [item for item in probe.dropped if item.kind is DropKind.NOT_ANSWERED]
    assert not any(item.kind is not DropKind.NOT_ANSWERED for item in probe.dropped)
    asked_once = probe.asked_rows - probe.rows
    assert bool(asked_once) is bool(not_finite)
    most = times * probe.rows + alone + asked_once
    # Rows that are the same, such as all zeros, are asked alone once.
    assert 0.95 * most <= sum(rows) <= most


def test_a_row_alone_is_asked_once_however_many_batches_it_is_in(desk: ProbeDesk) -> None:
    asked, rows = _asked_for_probes(desk, _PLAIN, {}, "batches")

    (probe,) = asked.probes.probes
    sizes = [batch.rows for batch in probe.batches]
    # As they are, without the first four of each batch, and a single row beside itself.
    expected = Counter(sizes) + Counter(size - 4 for size in sizes if size > 4) + Counter({2: sizes.count(1)})
    assert len(sizes) > 20
    assert Counter({size: count for size, count in Counter(rows).items() if size > 1}) == +Counter(
        {size: count for size, count in expected.items() if size > 1}
    )
    # Those of one row, the rests of five, and each row that is ever among the first four.
    alone = rows.count(1) - sizes.count(1) - sizes.count(5)
    assert 4 <= alone <= 12


def test_a_reference_that_answers_otherwise_in_other_company_is_asked_what_that_hangs_on(desk: ProbeDesk) -> None:
    weights = {"two": np.array([2]), "noise": np.float32(4e-4)}
    asked, rows = _asked_for_probes(desk, _NOISY, weights, "sensitivity")

    (probe,) = asked.probes.probes
    assert [len(batch.noise["y"]) for batch in probe.batches] == [6]
    # In the batch twice, among other rows twice, once all at once and once to see what differs; rows alone are known.
    assert Counter(rows) == {6: 2, 1: 4, 2: 2}


def test_what_the_reference_has_to_refuse_is_asked_once_for_all_ids_that_hang_on_it(desk: ProbeDesk) -> None:
    table = _RANDOM.normal(size=(100, 4)).astype(np.float32)
    refused: list[int] = []

    def watch(runner: Runner) -> None:
        own = runner.run

        def run(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            refused.append(int(inputs["x"].max()))
            return own(inputs)

        runner.run = run  # type: ignore[method-assign,assignment]  # what is counted is every call of it

    samples = [{"x": _RANDOM.integers(0, 20, size=(4, 6))} for _ in range(8)]
    desk.ask(desk.model(_LOOKUP, {"t": table}), samples, names=["ids"], change=watch)

    assert refused.count(np.iinfo(np.int64).max) == 1


def _allowance(seconds: float, *, now: float, rows: int = 32) -> Allowance:
    """Return what is allowed beside rows that took so many seconds, all of it begun at 0 and asked at `now`."""
    clock = iter([0.0])
    return Allowance(SamplesCost(rows=rows, values=3 * rows, seconds=seconds), clock=lambda: next(clock, now))


def test_of_a_slow_reference_probes_cost_three_times_the_samples_and_each_asks_something(desk: ProbeDesk) -> None:
    counting, without, samples = _Counting(), _Counting(), _samples(16)
    made = desk.model(_PLAIN, {})
    desk.ask(made, samples, names=[], change=without.watch)
    allowance = _allowance(6400.0, now=1e9, rows=64)
    asked = desk.ask(made, samples, allowance=allowance, change=counting.watch)

    assert sum(counting.rows) - sum(without.rows) <= 3 * 64
    probes = {probe.name: probe for probe in asked.probes.probes}
    assert all(probes[name].batches for name in ("batches", "values", "sensitivity"))
    left_out = {name: probe.dropped_counts.get(DropKind.NO_TIME_LEFT, 0) for name, probe in probes.items()}
    assert left_out["values"] > 0
    assert left_out["batches"] > 0
    assert left_out["sensitivity"] == 0


def test_of_a_slow_reference_the_same_is_asked_whatever_the_clock_says(desk: ProbeDesk) -> None:
    made, samples = desk.model(_PLAIN, {}), _samples()
    found = [
        [batch.about for probe in desk.ask(made, samples, allowance=allowance).probes.probes for batch in probe.batches]
        for allowance in (_allowance(3200.0, now=1e9), _allowance(6400.0, now=2e9))
    ]

    assert found[0] == found[1]


def test_of_a_fast_reference_everything_is_asked(desk: ProbeDesk) -> None:
    made, samples = desk.model(_PLAIN, {}), _samples()

    allowed = desk.ask(made, samples, allowance=_allowance(1e-3, now=0.1))
    whole = desk.ask(made, samples)

    assert [probe.batches for probe in allowed.probes.probes] == [probe.batches for probe in whole.probes.probes]


def test_one_batch_takes_neither_the_seconds_nor_the_rows_of_other_probes() -> None:
    # 32 rows in 3.2 s: besides them 17.8 s may be spent, and 96 rows whatever the clock says.
    clock = iter([0.0])
    allowance = Allowance(SamplesCost(rows=32, values=96, seconds=3.2), clock=lambda: next(clock, 0.0))

    def rows(count: int) -> dict[str, NDArray[np.float32]]:
        return {"x": np.zeros((count, 3), np.float32)}

    allowance.begin(4)
    # 15 s of 17.8 s, a quarter of which is for this probe.
    assert not allowance.takes(rows(148), times=1, calls=2)
    # More than its 24 rows, and within its seconds.
    assert allowance.takes(rows(40), times=1, calls=2)
    allowance.begin(3)
    clock = iter([1e9])
    assert allowance.takes(rows(22), times=1, calls=2)


def test_long_rows_are_asked_one_by_one_where_three_would_cost_too_much(desk: ProbeDesk) -> None:
    model = desk.model(_LOOKUP, {"t": _RANDOM.normal(size=(100, 4)).astype(np.float32)})
    samples = [{"x": _RANDOM.integers(0, 100, size=(4, 6))} for _ in range(32)]
    dims = {"B": Dim(min=1, opt=4, max=16), "S": Dim(min=1, opt=6, max=200)}

    def rows_of_longest(allowance: Allowance | None) -> list[int]:
        asked = desk.ask(model, samples, dims=dims, names=["shapes"], allowance=allowance)
        (probe,) = asked.probes.probes
        return [batch.rows for batch in probe.batches if batch.about == "S of 200"]

    # Three rows of it, asked twice, are as many values as 200 rows of the samples, and each of those took ten seconds.
    rows, values = 128, 6 * 128
    cost = SamplesCost(rows=rows, values=values, seconds=10.0 * rows)
    slow = Allowance(replace(cost, rows=70, values=420), clock=iter([0.0, *[1e9] * 1000]).__next__)
    assert rows_of_longest(slow) == [1]
    assert rows_of_longest(Allowance(cost, clock=lambda: 0.0)) == [3]
    assert rows_of_longest(None) == [3]


def test_a_row_counts_as_what_it_took_so_far_where_that_is_more() -> None:
    now = 0.0
    allowance = Allowance(SamplesCost(rows=32, values=96, seconds=0.032), clock=lambda: now)
    row = {"x": np.zeros((98, 3), np.float32)}

    allowance.begin(1)
    assert allowance.takes(row, times=1, calls=2)
    # An answer took a millisecond, and what was made of it 30 times as long: two seconds are left for three.
    now = 3.1
    assert not allowance.takes(row, times=1, calls=2)


def test_what_one_probe_leaves_is_for_the_next() -> None:
    allowance = _allowance(3200.0, now=1e9)
    row = {"x": np.zeros((1, 3), np.float32)}

    allowance.begin(2)
    first = sum(allowance.takes(row, times=2, calls=1) for _ in range(100))
    allowance.begin(1)
    second = sum(allowance.takes(row, times=2, calls=1) for _ in range(100))

    # Three times 32 rows, three of them a batch with its call: half of it first, then the rest.
    assert (first, second) == (16, 16)


def test_a_batch_is_asked_where_the_seconds_last_for_it() -> None:
    def is_asked(now: float) -> bool:
        allowance = _allowance(32.0, now=now)
        allowance.begin(1)
        # 300 rows take 300 s, and four times 32 s and 5 s are allowed.
        return allowance.takes({"x": np.zeros((100, 3), np.float32)}, times=1, calls=10)

    assert not is_asked(133.0 - 109)
    assert is_asked(133.0 - 111)


@pytest.mark.parametrize(("seconds", "rows"), [(100.0, 100), (1.0, 300), (0.01, 30000)])
def test_a_candidate_is_asked_again_for_as_many_rows_as_samples_or_as_three_seconds_allow(
    seconds: float, rows: int
) -> None:
    assert rows_asked_again(SamplesCost(rows=100, values=0, seconds=seconds)) == rows
