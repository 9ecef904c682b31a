"""Looks for the settings that answer most rows a second within a limit on latency, by few measurements.

One setting at a time is moved, as long as that helps; what was measured is not measured again. Two bounds spare
measurements: twice as many callers get at most twice as many answers, and fewer callers never get more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.server_metrics import MachineUse

# A throughput has to be higher by so much to count: less is noise. A latency alone counts from a tenth less on.
_GAIN = 1.03
_FASTER = 0.9
_START = 4
_ROUNDS = 3
# How often the callers of the best and the next power of two are halved.
_HALVES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One measurement.

    Attributes:
        settings: The settings that the server had.
        loop: `closed` or `open`.
        callers: Of a closed loop, how many sent at once; of an open one, how many could.
        rate: Of an open loop, the requests a second that were to be sent; None of a closed one.
        requests: How many were answered.
        unsent: How many were to be sent and were not, since the server was too far behind.
        seconds: How long it took.
        rows_per_s: Rows answered a second.
        mean_ms: The mean latency; None where a request was never sent.
        p50_ms: The median of it; None where it is one that was never sent.
        limit_ms: The latency at the percentile that the limit is on, alike.
        rows_per_call: Rows that the server put into one call of the model; None where it does not say.
        queue_ms: Milliseconds that a request waited in the server, on average; None where it does not say.
        compute_ms: Milliseconds that the server computed it in, alike.
        cache_hits: Requests that the server answered out of a cache, without running the model.
        use: How much of its machine the server used at the end; None where nobody asked, or it does not say.
        client_share: The share of one processor that the client took.
        is_within: Whether the latency is within the limit.
    """

    settings: Settings
    loop: str = "closed"
    callers: int
    rate: float | None = None
    requests: int
    unsent: int = 0
    seconds: float
    rows_per_s: float
    mean_ms: float | None
    p50_ms: float | None
    limit_ms: float | None
    rows_per_call: float | None = None
    queue_ms: float | None = None
    compute_ms: float | None = None
    cache_hits: int = 0
    use: MachineUse | None = None
    client_share: float = 0.0
    is_within: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """What is searched: the values of each setting, ascending; one value is not searched.

    Attributes:
        max_batch_size: Rows a call.
        instances: Calls at once.
        queue_delay_us: Microseconds that a request waits; nothing where the server merges no requests.
        most_callers: No more callers send at once.
    """

    max_batch_size: Sequence[int]
    instances: Sequence[int]
    queue_delay_us: Sequence[int] = ()
    most_callers: int = 64

    @property
    def settings(self) -> Iterable[Settings]:
        """All settings that there are."""
        for rows, instances, delay in itertools.product(
            self.max_batch_size, self.instances, self.queue_delay_us or (None,)
        ):
            yield Settings(max_batch_size=rows, instances=instances, queue_delay_us=delay)

    def axes(self) -> Mapping[str, Sequence[int]]:
        """Return what can be moved, in the order in which it is tried: what changes most comes first."""
        found = {
            "max_batch_size": self.max_batch_size,
            "instances": self.instances,
            "queue_delay_us": self.queue_delay_us,
        }
        return {name: values for name, values in found.items() if len(values) > 1}


@dataclass(kw_only=True)
class Search:
    """A search, and what it has found by now.

    Attributes:
        space: What is searched.
        measure: Measures settings with so many callers; None if the server does not load them.
        best: The best measurement within the limit; None as long as there is none.
        points: All measurements, in their order.
    """

    space: Space
    measure: Callable[[Settings, int], Point | None]
    best: Point | None = None
    points: list[Point] = field(default_factory=list)
    _tried: set[Settings] = field(default_factory=set)

    def run(self, start: Settings) -> Point | None:
        """Return the best measurement within the limit, beginning with the settings that the server has."""
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
        """Look between the callers of the best and twice as many, by halves: only powers of two were tried."""
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
        found = [point for point in self.points if point.settings == settings and point.is_within]
        return max(found, key=lambda point: point.rows_per_s, default=None)

    def _move(self, name: str, values: Sequence[int], where: Settings) -> Settings:
        """Move one setting as long as that helps, up or else down, and return where it ended."""
        at = values.index(getattr(where, name))
        for step in (1, -1):
            to = at + step
            while 0 <= to < len(values) and self._try(replace(where, **{name: values[to]})):
                to += step
            if to != at + step:
                return replace(where, **{name: values[to - step]})
        return where

    def _try(self, settings: Settings) -> bool:
        """Measure settings, and return whether they are better than the best by now."""
        if settings in self._tried:
            return False
        self._tried.add(settings)
        found = self._climb(settings, self.best.callers if self.best else min(_START, self.space.most_callers))
        if found is None or not _is_better(found, self.best):
            return False
        self.best = found
        return True

    def _climb(self, settings: Settings, callers: int) -> Point | None:
        """Return the best of some settings, by more callers as long as that helps, or fewer until it is fast enough."""
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
