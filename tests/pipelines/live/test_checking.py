"""What is remembered of answers that were compared."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Hashable
from types import SimpleNamespace

import numpy as np
import pytest

from paritygate.pipelines.live.checking import AnswerCheck
from paritygate.pipelines.live.judge import Difference
from paritygate.pipelines.live.server import _Outputs
from paritygate.validate.runners.endpoint.open_inference import Answer

_SIZE = 1 << 18


def _over_http(number: int) -> Hashable:
    return Answer(length=10, content=number.to_bytes(_SIZE, "big"))


def _read(number: int) -> Hashable:
    return _Outputs(arrays={"y": np.full((1, _SIZE), number, np.uint8)})


def _texts(number: int) -> Hashable:
    return _Outputs(arrays={"y": np.asarray([b"a" * number], object)})


@pytest.mark.parametrize("make", [_over_http, _read, _texts])
def test_right_answers_are_known_again_without_holding_them(make: Callable[[int], Hashable]) -> None:
    compared: list[int] = []

    def difference(which: int, _: Hashable) -> Difference:
        compared.append(which)
        return Difference()

    check = AnswerCheck(SimpleNamespace(read=lambda answer: answer), SimpleNamespace(difference=difference))  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        for which in (0, 0, 1):
            for number in range(32):
                check.difference(which, make(number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Each once for each request.
    assert compared == [0] * 32 + [1] * 32
    assert held < 2 * _SIZE
