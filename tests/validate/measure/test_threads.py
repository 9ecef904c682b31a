"""Work by several threads: results in order, and the first error."""

from __future__ import annotations

import threading

import pytest

from paritygate.validate.measure.blocks import by_threads


@pytest.mark.parametrize("processors", [1, 4])
def test_results_are_in_the_order_of_the_parts(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr("paritygate.machine.available_processors", lambda: processors)

    both = threading.Barrier(min(processors, 2), timeout=600)

    def late(part: int) -> tuple[int, int]:
        # The first part ends after the second one has begun, in another thread.
        if part < both.parties:
            both.wait()
        return part, threading.get_ident()

    found = by_threads(late, range(5), values=1)

    assert [part for part, _ in found] == list(range(5))
    assert (len({thread for _, thread in found}) == 1) == (processors == 1)


def test_parts_that_take_much_memory_are_done_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paritygate.machine.available_processors", lambda: 4)

    found = by_threads(lambda _: threading.get_ident(), range(5), values=1 << 24)

    assert set(found) == {threading.get_ident()}


@pytest.mark.parametrize("processors", [1, 4])
def test_the_first_error_is_raised(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr("paritygate.machine.available_processors", lambda: processors)

    def fails(part: int) -> int:
        if part:
            msg = f"part {part}"
            raise ValueError(msg)
        return part

    with pytest.raises(ValueError, match="part 1"):
        by_threads(fails, [0, 1, 2], values=1)


def test_no_parts_are_no_results() -> None:
    assert by_threads(str, [], values=1) == []
