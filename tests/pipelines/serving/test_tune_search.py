"""The search finds what measuring everything would find, by a part of the measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from paritygate.pipelines.serving.triton.settings import Settings, settings_of, with_settings
from paritygate.pipelines.tuning.search import Point, Search, Space

_SPACE = Space(max_batch_size=[1, 2, 4, 8, 16], instances=[1, 2, 4], queue_delay_us=[0, 100, 1000], most_callers=64)
_LADDER = [1, 2, 4, 8, 16, 32, 64]


def server_of(cores: int, call_ms: float, row_ms: float) -> Callable[[Settings, int], tuple[float, float]]:
    """Return a made-up server: rows a second and latency by settings and callers, of calls with a fixed cost."""

    def answer(settings: Settings, callers: int) -> tuple[float, float]:
        running = min(settings.instances, callers)
        rows = max(1.0, min(settings.max_batch_size, callers / running))
        slower = max(1.0, running / cores)
        ms = (call_ms + rows * row_ms) * slower + (settings.queue_delay_us or 0) / 1000
        rate = min(callers, running * rows) / ms * 1000
        return rate, callers / rate * 1000

    return answer


def point_of(
    answer: Callable[[Settings, int], tuple[float, float]], settings: Settings, callers: int, limit_ms: float
) -> Point:
    """Return the measurement of a made-up server."""
    rate, latency = answer(settings, callers)
    return Point(
        settings=settings,
        callers=callers,
        requests=100,
        seconds=1.0,
        rows_per_s=rate,
        mean_ms=latency,
        p50_ms=latency,
        limit_ms=latency,
        is_within=latency <= limit_ms,
    )


@pytest.mark.parametrize("limit_ms", [3.0, 8.0, 20.0, 100.0])
@pytest.mark.parametrize(("cores", "call_ms", "row_ms"), [(1, 2.0, 0.1), (2, 1.0, 0.5), (4, 0.2, 1.0), (2, 4.0, 0.05)])
def test_it_finds_nearly_the_best_by_a_fifth_of_all_measurements(
    limit_ms: float, cores: int, call_ms: float, row_ms: float
) -> None:
    answer = server_of(cores, call_ms, row_ms)

    def measure(settings: Settings, callers: int) -> Point:
        return point_of(answer, settings, callers, limit_ms)

    search = Search(space=_SPACE, measure=measure)
    best = search.run(Settings(max_batch_size=16, instances=1, queue_delay_us=100))
    every = [measure(settings, callers) for settings in _SPACE.settings for callers in _LADDER]
    most = max((point.rows_per_s for point in every if point.is_within), default=None)

    assert len(every) == 315
    assert len(search.points) <= 315 / 5
    assert len({(point.settings, point.callers) for point in search.points}) == len(search.points)
    if most is None:
        assert best is None
    else:
        assert best is not None
        assert best.is_within
        assert best.rows_per_s >= 0.8 * most


def test_callers_between_powers_of_two_are_tried() -> None:
    # 12 callers are within the limit and 16 are not: 8 get two thirds of what the server can answer.
    def measure(settings: Settings, callers: int) -> Point:
        return replace(point_of(lambda *_: (100.0 * callers, 1.0), settings, callers, 2.0), is_within=callers <= 12)

    search = Search(space=replace(_SPACE, max_batch_size=[8], instances=[1], queue_delay_us=[]), measure=measure)
    best = search.run(Settings(max_batch_size=8, instances=1))

    assert best is not None
    assert best.callers == 12


def test_settings_that_the_server_does_not_load_are_passed_over() -> None:
    answer = server_of(2, 1.0, 0.5)
    refused: set[int] = set()

    def measure(settings: Settings, callers: int) -> Point | None:
        if settings.instances > 1:
            refused.add(settings.instances)
            return None
        return point_of(answer, settings, callers, math.inf)

    search = Search(space=_SPACE, measure=measure)
    best = search.run(Settings(max_batch_size=4, instances=1, queue_delay_us=100))

    assert best is not None
    assert best.settings.instances == 1
    assert refused == {2}


def test_other_settings_leave_out_what_they_have_no_room_for() -> None:
    config: Mapping[str, Any] = {
        "name": "m",
        "max_batch_size": 16,
        "instance_group": [{"name": "m_0", "kind": "KIND_CPU", "count": 1}],
        "dynamic_batching": {"preferred_batch_size": [4, 16], "max_queue_delay_microseconds": "100", "x": 1},
        "model_warmup": [{"name": "a", "batch_size": 1}, {"name": "b", "batch_size": 4}],
    }
    settings = Settings(max_batch_size=2, instances=3, queue_delay_us=0)

    found = with_settings(config, settings)

    assert settings_of(config) == Settings(max_batch_size=16, instances=1, queue_delay_us=100)
    assert settings_of(found) == settings
    assert found["dynamic_batching"] == {"x": 1, "max_queue_delay_microseconds": 0}
    assert [item["name"] for item in found["model_warmup"]] == ["a"]
    assert found["instance_group"] == [{"name": "m_0", "kind": "KIND_CPU", "count": 3}]
    assert config["max_batch_size"] == 16
    same = with_settings(config, Settings(max_batch_size=16, instances=1, queue_delay_us=5))
    assert same["dynamic_batching"]["preferred_batch_size"] == [4, 16]
    # A server whose largest batch was 1 says that 1 is preferred: beside another, it would merge nothing.
    alone = {"max_batch_size": 1, "dynamic_batching": {"preferred_batch_size": [1]}}
    more = with_settings(alone, Settings(max_batch_size=8, instances=1, queue_delay_us=0))
    assert "preferred_batch_size" not in more["dynamic_batching"]
    assert "dynamic_batching" not in with_settings(config, Settings(max_batch_size=2, instances=1))
