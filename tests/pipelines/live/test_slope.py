"""The growth of a series: leaks are found, and recorded servers without a leak are not accused."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paritygate.pipelines.live.endurance import memory_trend, trend_after_warm_up
from paritygate.pipelines.live.endurance_result import DEFAULT_GROWTH
from paritygate.pipelines.live.processes import MEBIBYTE, Look
from paritygate.pipelines.live.slope import Trend, trend_of

# Memory of real servers under load for 92 s: KiB at tenths of a second, read from /proc twice a second.
_RECORDED = Path(__file__).with_name("clean_memory.json")
_LEAK = 5.0


@functools.cache
def recorded() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_RECORDED.read_text(encoding="utf-8"))
    return data


def names() -> list[str]:
    return sorted(recorded())


def trend_of_server(name: str, *, leak: float = 0.0) -> Trend:
    """Return the trend of a recorded server, with a leak of so many MiB a minute added."""
    at = np.asarray(recorded()[name]["tenths"]) / 10
    memory = np.asarray(recorded()[name]["kib"]) / 1024 + leak * at / 60
    trend = trend_after_warm_up(at.tolist(), memory.tolist())
    assert trend is not None
    return trend


def test_there_are_enough_recorded_servers_of_several_kinds() -> None:
    assert len(names()) >= 20
    assert len({item["server"] for item in recorded().values()}) >= 8


@pytest.mark.parametrize("name", names())
def test_a_recorded_server_without_a_leak_is_not_accused(name: str) -> None:
    assert not trend_of_server(name).exceeds(DEFAULT_GROWTH)


@pytest.mark.parametrize("name", names())
def test_a_leak_in_a_recorded_server_is_found_or_called_unclear(name: str) -> None:
    trend = trend_of_server(name, leak=_LEAK)

    assert trend.exceeds(DEFAULT_GROWTH) or trend.is_unclear(DEFAULT_GROWTH)


def test_a_leak_of_5_mib_a_minute_is_found_in_nearly_all_recorded_servers() -> None:
    found = [trend_of_server(name, leak=_LEAK).exceeds(DEFAULT_GROWTH) for name in names()]

    assert sum(found) >= 0.9 * len(found)


@pytest.mark.parametrize("slope", [-3.0, 0.0, 0.5, 8.0])
def test_the_interval_holds_the_slope_of_a_noisy_line(slope: float) -> None:
    times = np.arange(0, 120, 0.5)
    held = 0
    for seed in range(50):
        noise = np.random.default_rng(seed).standard_normal(times.size)
        trend = trend_of(times.tolist(), (100 + slope * times / 60 + noise).tolist())
        assert trend is not None
        held += trend.low <= slope <= trend.high

    assert held >= 48


def test_a_line_has_its_own_slope_in_every_figure() -> None:
    times = [float(at) for at in range(120)]

    trend = trend_of(times, [100 + 2 * at / 60 for at in times])

    assert trend is not None
    assert [trend.per_minute, trend.low, trend.high, trend.late_per_minute] == pytest.approx([2, 2, 2, 2])
    assert (trend.exceeds(1.9), trend.exceeds(2.1), trend.points) == (True, False, 120)


def test_one_jump_is_no_leak() -> None:
    times = [at / 2 for at in range(240)]

    assert not [
        at
        for at in range(1, 240)
        if (trend := trend_of(times, [100.0 + 20 * (each >= at) for each in range(240)])) and trend.exceeds(1.0)
    ]


def test_growth_that_ends_is_no_leak() -> None:
    times = [at / 2 for at in range(240)]

    trend = trend_of(times, [100 + min(at, 60.0) / 4 for at in times])

    assert trend is not None
    assert trend.low > 1
    assert not trend.exceeds(1)
    assert trend.is_unclear(1)


def test_a_leak_in_a_few_large_steps_does_not_pass() -> None:
    times = [at / 2 for at in range(240)]

    trend = trend_of(times, [100 + 10.0 * (at // 45) for at in times])

    assert trend is not None
    assert trend.exceeds(1) or trend.is_unclear(1)


@pytest.mark.parametrize("count", [0, 1, 15])
def test_a_short_series_has_no_trend(count: int) -> None:
    assert trend_of([float(at) for at in range(count)], [1.0] * count) is None


def test_what_is_left_of_a_server_that_died_is_not_its_memory() -> None:
    looks = [Look(at=at / 2, memory=(84 if at < 100 else 42) * MEBIBYTE, cpu_s=0.0) for at in range(200)]

    alive = memory_trend(looks, begin=0.0, end=49.9)

    assert alive is not None
    assert (alive.first, alive.last) == (84, 84)
    dead = memory_trend(looks, begin=0.0, end=100.0)
    assert dead is not None
    assert dead.last == 42
