"""What models are called with in a benchmark, and how the calls are timed: the same rows for all, in whole cycles."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.errors import BackendError, ZeroRowsError
from paritygate.pipelines.benchmark.calls import Instance, Turn, time_calls, warm_up
from paritygate.pipelines.benchmark.inputs import calls_of, take_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner


def _batch(*shape: int, first: int = 0) -> Batch:
    values = np.arange(first, first + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return Batch(inputs={"x": values}, ids=[str(row) for row in range(shape[0])])


def _read(*batches: Batch) -> Callable[[], Iterator[Batch]]:
    return lambda: iter(batches)


def _arrays(calls: list[Mapping[str, NDArray[np.generic]]]) -> list[NDArray[np.generic]]:
    return [call["x"] for call in calls]


def test_64_rows_are_taken_or_as_many_as_a_batch_needs() -> None:
    read = _read(*[_batch(10, 2, first=20 * number) for number in range(20)])

    assert [block.rows for block in take_rows(read, at_least=8).blocks] == [64]
    assert [block.rows for block in take_rows(read, at_least=100).blocks] == [100]


def test_large_rows_are_fewer() -> None:
    large = Batch(inputs={"x": np.zeros((4, 1 << 21), dtype=np.float32)}, ids=["a", "b", "c", "d"])

    assert [block.rows for block in take_rows(_read(large, large, large), at_least=1).blocks] == [4]
    assert [block.rows for block in take_rows(_read(large, large, large), at_least=5).blocks] == [8]


def test_rows_of_other_shapes_stay_among_themselves() -> None:
    pool = take_rows(_read(_batch(3, 2), _batch(3, 2), _batch(5, 4), _batch(0, 4)), at_least=1)

    assert [block.inputs["x"].shape for block in pool.blocks] == [(6, 2), (5, 4)]


def test_calls_hold_every_row_and_take_some_again_where_a_block_ends() -> None:
    block = {"x": np.arange(5, dtype=np.float32)[:, None]}

    calls = _arrays(calls_of([block], 2))

    assert [call.ravel().tolist() for call in calls] == [[0, 1], [2, 3], [4, 0]]


def test_a_block_smaller_than_a_batch_is_repeated() -> None:
    (call,) = _arrays(calls_of([{"x": np.arange(3, dtype=np.float32)[:, None]}], 8))

    assert call.ravel().tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_the_digest_is_that_of_the_rows() -> None:
    one = take_rows(_read(_batch(6, 2)), at_least=1)

    assert take_rows(_read(_batch(3, 2), _batch(3, 2, first=6)), at_least=1).digest == one.digest
    assert take_rows(_read(_batch(6, 2, first=1)), at_least=1).digest != one.digest


def test_without_rows_there_is_nothing_to_call_with() -> None:
    with pytest.raises(ZeroRowsError):
        take_rows(_read(_batch(0, 2)), at_least=1)


@pytest.fixture(autouse=True)
def _frozen_as_before() -> Iterator[None]:
    """Leave frameworks out of Python's search for garbage again: a turn that was timed brings all back into it."""
    yield
    gc.freeze()


class _Counting:
    """Answers nothing and keeps what it was called with, and by which thread."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.threads: set[int] = set()

    def run(self, inputs: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.generic]]:
        self.seen.append(float(inputs["x"][0]))
        self.threads.add(threading.get_ident())
        return {}


def _instances(number: int) -> tuple[list[Instance], list[_Counting]]:
    runners = [_Counting() for _ in range(number)]
    as_runners: list[Runner] = list(runners)  # type: ignore[arg-type]  # only `run` is called
    return [Instance(runner, []) for runner in as_runners], runners


CALLS = [{"x": np.full(1, number, dtype=np.float32)} for number in range(5)]


def test_every_input_of_the_cycle_is_timed_equally_often_however_fast_a_model_is() -> None:
    instances, (runner,) = _instances(1)

    times = time_calls(instances, Turn(calls=CALLS, start=4, cycle=3, seconds=0.01))

    timed = runner.seen[-len(times.latencies_ns) :]
    assert {timed.count(value) for value in (4.0, 0.0, 1.0)} == {len(timed) / 3}
    assert sum(times.latencies_ns) / 1e9 <= times.wall_s
    # What was called before the clock ran is not among the latencies.
    assert len(runner.seen) > len(timed)


def test_instances_side_by_side_have_a_thread_each_and_the_same_inputs() -> None:
    instances, runners = _instances(3)

    times = time_calls(instances, Turn(calls=CALLS, start=0, cycle=3, seconds=0.01))

    assert len({thread for runner in runners for thread in runner.threads}) == 3
    assert [len(runner.threads) for runner in runners] == [1, 1, 1]
    assert len(times.latencies_ns) >= 9
    assert all(set(runner.seen) == {0.0, 1.0, 2.0} for runner in runners)


def test_an_instance_that_fails_ends_the_turn_of_all_with_its_reason() -> None:
    instances, runners = _instances(2)

    def refuse(inputs: object) -> dict[str, NDArray[np.generic]]:
        del inputs
        msg = "not today"
        raise BackendError(msg)

    runners[1].run = refuse  # type: ignore[method-assign]

    with pytest.raises(BackendError, match="not today"):
        time_calls(instances, Turn(calls=CALLS, start=0, cycle=3, seconds=0.01))


def test_warming_up_calls_with_every_input_and_three_times_at_least() -> None:
    instances, (runner,) = _instances(1)

    warm_up(instances, CALLS, seconds=60.0)
    assert runner.seen == [0.0, 1.0, 2.0, 3.0, 4.0]
    warm_up(instances, CALLS[:1], seconds=1e-9)
    assert runner.seen[5:] == [0.0, 0.0, 0.0]
