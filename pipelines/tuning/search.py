"""Search the settings with most rows a second within a limit on latency, by few measurements.

One setting at a time is changed, as long as that helps, and nothing is measured twice. Two bounds save measurements:
twice the callers get at most twice the answers, and fewer callers never get more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.pipelines.live.metrics.triton_page import MachineUse
from paritygate.pipelines.serving.triton.settings import Settings

# A throughput has to be higher by so much to count, because less is noise. A latency alone counts from a tenth less
# on.
_GAIN = 1.03
_FASTER = 0.9
_START = 4
_ROUNDS = 3
# How often the range between the best callers and the next power of two is halved.
_HALVES = 2


class Point(Struct, frozen=True, kw_only=True):
    """One measurement."""

    settings: Settings
    loop: str = "closed"  # or open
    callers: int  # sending at once, or the most of an open loop
    rate: float | None = None  # requests a second of an open loop
    requests: int  # answered
    unsent: int = 0  # because the server was too far behind
    seconds: float
    rows_per_s: float
    mean_ms: float | None  # latency; None if a request was never sent
    p50_ms: float | None  # latency; None if that one was never sent
    limit_ms: float | None  # latency at the limit's percentile, likewise
    rows_per_call: float | None = None  # of the model in the server, if it reports it
    queue_ms: float | None = None  # a request's mean wait in the server, if it reports it
    compute_ms: float | None = None  # a request's mean computation, likewise
    cache_hits: int = 0  # requests answered without running the model
    use: MachineUse | None = None  # of the server's machine at the end
    client_share: float = 0.0  # of one processor
    is_within: bool  # the limit


class Space(Struct, frozen=True, kw_only=True):
    """The searched values of each setting, ascending; a single value is fixed."""

    max_batch_size: Sequence[int]  # rows a call
    instances: Sequence[int]  # calls at once
    queue_delay_us: Sequence[int] = ()  # empty if the server merges no requests
    most_callers: int = 64  # at once

    @property
    def settings(self) -> Iterable[Settings]:
        """All combinations."""
        for rows, instances, delay in itertools.product(
            self.max_batch_size, self.instances, self.queue_delay_us or (None,)
        ):
            yield Settings(max_batch_size=rows, instances=instances, queue_delay_us=delay)

    def axes(self) -> Mapping[str, Sequence[int]]:
        """Return the settings to change, those with the largest effect first."""
        names = ("max_batch_size", "instances", "queue_delay_us")
        return {name: getattr(self, name) for name in names if len(getattr(self, name)) > 1}


class Search(Struct, kw_only=True):
    """A search, and its results so far."""

    space: Space
    measure: Callable[[Settings, int], Point | None]  # settings with callers; None if not loaded
    best: Point | None = None  # within the limit
    points: list[Point] = field(default_factory=list)  # all, in their order
    _tried: set[Settings] = field(default_factory=set)

    def run(self, start: Settings) -> Point | None:
        """Return the best measurement within the limit, beginning with the server's own settings."""
        self._try(start)
        where = start
        for _ in range(_ROUNDS):
            before = self.best
            for name, values in self.space.axes().items():
                if name == "queue_delay_us" and where.max_batch_size <= 1:
                    # There is nobody to wait for.
                    continue
                where = self._move(name, sorted({*values, getattr(where, name)}), where)
            if self.best is before:
                break
        self._refine()
        return self.best

    def _refine(self) -> None:
        """Halve the range from the best callers to twice as many, because only powers of two were tried."""
        if self.best is None:
            return
        low, high = self.best.callers, min(2 * self.best.callers, self.space.most_callers + 1)
        for _ in range(_HALVES):
            callers = (low + high) // 2
            if callers in {low, high} or self._has(self.best.settings, callers):
                return
            point = self._measure(self.best.settings, callers)
            if point is not None and point.is_within and point.rows_per_s > self.best.rows_per_s * _GAIN:
                self.best, low = point, callers
            else:
                high = callers

    def _has(self, settings: Settings, callers: int) -> bool:
        return any((point.settings, point.callers) == (settings, callers) for point in self.points)

    def best_of(self, settings: Settings) -> Point | None:
        """Return the best measurement of some settings within the limit."""
        points_within = [point for point in self.points if point.settings == settings and point.is_within]
        return max(points_within, key=lambda point: point.rows_per_s, default=None)

    def _move(self, name: str, values: Sequence[int], where: Settings) -> Settings:
        """Change one setting up or else down, as long as that helps, and return the last settings."""
        at = values.index(getattr(where, name))
        for step in (1, -1):
            to = at + step
            while 0 <= to < len(values) and self._try(replace(where, **{name: values[to]})):
                to += step
            if to != at + step:
                return replace(where, **{name: values[to - step]})
        return where

    def _try(self, settings: Settings) -> bool:
        """Measure settings, and return whether they are better than the best so far."""
        if settings in self._tried:
            return False
        self._tried.add(settings)
        point = self._climb(settings, self.best.callers if self.best else min(_START, self.space.most_callers))
        if point is None or not _is_better(point, self.best):
            return False
        self.best = point
        return True

    def _climb(self, settings: Settings, callers: int) -> Point | None:
        """Return the best of some settings, with more callers while that helps, or fewer until it is fast enough."""
        point = self._measure(settings, callers)
        to_beat = self.best.rows_per_s if self.best else 0.0
        while point is not None and not point.is_within and callers > 1 and point.rows_per_s > to_beat:
            callers //= 2
            point = self._measure(settings, callers)
        if point is None or not point.is_within or len([p for p in self.points if p.settings == settings]) > 1:
            return point if point is not None and point.is_within else None
        while callers * 2 <= self.space.most_callers and point.rows_per_s * 2 > to_beat:
            callers *= 2
            more = self._measure(settings, callers)
            if more is None or not more.is_within or more.rows_per_s < point.rows_per_s * _GAIN:
                return point
            point = more
        return point

    def _measure(self, settings: Settings, callers: int) -> Point | None:
        point = self.measure(settings, callers)
        if point is not None:
            self.points.append(point)
        return point


def _is_better(found: Point, best: Point | None) -> bool:
    if best is None or found.rows_per_s > best.rows_per_s * _GAIN:
        return True
    is_faster = (found.limit_ms or 0.0) < (best.limit_ms or 0.0) * _FASTER
    return found.rows_per_s >= best.rows_per_s and is_faster
