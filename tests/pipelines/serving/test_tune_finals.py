"""What decides is the median of measurements in turn: one hiccup of the machine changes no figure much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.request import TuneRequest
from paritygate.pipelines.tuning.search import Point, Space
from paritygate.pipelines.tuning.session import Session
from paritygate.pipelines.tuning.trial import SettingsTrial
from paritygate.validate.samples.source import SampleSource

_BEFORE = Settings(max_batch_size=8, instances=1)
_BEST = Settings(max_batch_size=8, instances=4)


def point_of(settings: Settings, rows_per_s: float, *, is_within: bool = True) -> Point:
    return Point(
        settings=settings,
        callers=8,
        requests=100,
        seconds=1.0,
        rows_per_s=rows_per_s,
        mean_ms=1.0,
        p50_ms=1.0,
        limit_ms=1.0,
        is_within=is_within,
    )


def finals_of(measured: Mapping[Settings, Sequence[Point]]) -> tuple[Point | None, Point | None]:
    """Return what the finals come to where each settings is measured so in turn."""
    points: dict[Settings, Iterator[Point]] = {settings: iter(each) for settings, each in measured.items()}

    class Measured(SettingsTrial):
        def _measure(self, settings: Settings, callers: int, seconds: float | None = None) -> Point | None:
            del callers, seconds
            return next(points[settings])

    request = TuneRequest(
        repository=Path("repository"),
        model="m",
        which="prod",
        root=Path("models"),
        url="http://127.0.0.1:8000",
        samples=SampleSource(text="x.npz", folder=Path()),
        limit_s=1.0,
    )
    space = Space(max_batch_size=[8], instances=[1, 4])
    trial = Measured(request=request, space=space, session=cast("Session", None), watch=lambda _: None)
    return trial._finals(point_of(_BEST, 170.0), point_of(_BEFORE, 100.0))


def rates(settings: Settings, *found: float) -> list[Point]:
    return [point_of(settings, rate) for rate in found]


@pytest.mark.parametrize("hiccup", [0, 1, 2])
def test_one_hiccup_of_what_was_there_makes_no_larger_factor(hiccup: int) -> None:
    before = [20.0 if at == hiccup else 100.0 for at in range(3)]

    best, baseline = finals_of({_BEST: rates(_BEST, 160.0, 165.0, 155.0), _BEFORE: rates(_BEFORE, *before)})

    assert best is not None
    assert baseline is not None
    assert (best.settings, best.rows_per_s / baseline.rows_per_s) == (_BEST, 1.6)


def test_one_lucky_run_is_not_the_best() -> None:
    best, _ = finals_of({_BEST: rates(_BEST, 300.0, 101.0, 99.0), _BEFORE: rates(_BEFORE, 100.0, 100.0, 100.0)})

    assert best is not None
    assert best.settings == _BEFORE


@pytest.mark.parametrize(("misses", "is_kept"), [(1, True), (2, False)])
def test_the_limit_is_kept_where_most_measurements_keep_it(*, misses: int, is_kept: bool) -> None:
    measured: list[Any] = [point_of(_BEST, 160.0, is_within=at >= misses) for at in range(3)]

    best, _ = finals_of({_BEST: measured, _BEFORE: rates(_BEFORE, 100.0, 100.0, 100.0)})

    assert best is not None
    assert (best.settings == _BEST) is is_kept
