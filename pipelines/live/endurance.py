"""Run `endurance`: send requests for a long time, and look for leaks, slower answers and answers that drift."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.pipelines.live.batches import Repeats, repeated
from paritygate.pipelines.live.endurance_result import Drift, EnduranceRequest, EnduranceResult, Period
from paritygate.pipelines.live.loops import (
    Arrivals,
    Window,
    arrival_times,
    milliseconds,
    most_late,
    percentile_of,
)
from paritygate.pipelines.live.processes import MEBIBYTE, Look
from paritygate.pipelines.live.slope import Trend, trend_of
from paritygate.pipelines.live.target import Target, check_time, failures, judged, loaded, prepare
from paritygate.pipelines.live.traffic import Exchange, Outcome, Tally, added, interruptible
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.report.figures import amount
from paritygate.text import counted

# Periods are so many, and none is shorter.
_PERIODS, _SHORTEST_S = 60, 0.5
# What a server does in this part of the time, and no longer, is its warm-up.
_WARM_UP, _LONGEST_WARM_UP_S = 1 / 3, 120.0
# In so many seconds, memory is looked at often enough for a trend, with a reserve for slow looks.
_MEMORY_S = 15
# How much the differences may grow, as a share of the limit: correct servers answer batches of other sizes by less.
_MOST_DRIFT = 0.1
_OF_FIRST = 1 / 3
_CALLERS = 64
_BEHIND_S = 10.0
_BY_BADNESS = ("pass", "inconclusive", "fail")


def endurance(
    request: EnduranceRequest,
    *,
    progress: Progress = lambda *_: None,
    watch: Callable[[Period], None] = lambda _: None,
) -> EnduranceResult:
    """Load a server for a long time, and judge its memory, its latency and each of its answers.

    Several models are loaded at the same time, and the worst verdict counts. `progress` is called while a released file
    runs on the samples, and `watch` with each period of the first model.

    Raises:
        UsageError: The load is not allowed, or there is no such release.
        MeasurementError: The server does not answer.
        BackendError: It answers with an error before it is loaded.
        ParitygateError: The released file fails on the samples.
    """
    check_time(request.seconds, request.most_s)
    callers = request.users if request.rate is None else _CALLERS
    loads = [
        _Endurance(
            request=each,
            target=prepare(
                each, "endurance", callers=callers, progress=_naming(each, progress) if request.also else progress
            ),
            callers=callers,
            watch=watch if each is request else lambda _: None,
        )
        for each in (request, *request.also)
    ]
    traffics = [load.target.traffic for load in loads]

    def run(load: _Endurance) -> EnduranceResult:
        try:
            return loaded(EnduranceResult(served=load.target.served, verdict="fail"), load.target, load.run)
        except BaseException:
            # The others would go on to their end.
            for traffic in traffics:
                traffic.interrupt()
            raise

    if not request.also:
        return run(loads[0])
    with interruptible(*traffics), ThreadPoolExecutor(len(loads)) as pool:
        return _together(list(pool.map(run, loads)))


def _naming(request: EnduranceRequest, progress: Progress) -> Progress:
    return lambda doing, done, total: progress(f"{request.model}: {doing}", done, total)


def _together(results: Sequence[EnduranceResult]) -> EnduranceResult:
    """Return the first result with the others, the worst verdict, and the reasons of that verdict."""
    worst = max((result.verdict for result in results), key=_BY_BADNESS.index)
    reasons = [
        f"{result.served.url}: {reason}" for result in results if result.verdict == worst for reason in result.reasons
    ]
    return replace(
        results[0],
        verdict=worst,
        reasons=tuple(reasons),
        also=tuple(results[1:]),
        is_interrupted=any(result.is_interrupted for result in results),
    )


class _Endurance(Struct, kw_only=True):
    """One long load of one server."""

    request: EnduranceRequest
    target: Target
    callers: int
    watch: Callable[[Period], None]
    tally: Tally = field(default_factory=Tally)
    periods: list[Period] = field(default_factory=list)
    # By the clock of the looks. After the last answer, the server may be gone.
    begin: float = 0.0
    last_answer: float = 0.0
    # At a rate: the requests that were planned and not sent, and the seconds by which all periods together were late.
    unsent: int = 0
    late: float = 0.0

    def run(self, result: EnduranceResult) -> EnduranceResult:
        """Return the result."""
        traffic = self.target.traffic
        if self.request.requests is not None:
            traffic.most = min(traffic.most, self.request.requests)
        self.tally = self.target.look()
        before = repeated(traffic, self._sizes())
        with interruptible(traffic):
            if not failures(self.tally):
                self._load()
            after = repeated(traffic, self._sizes()) if self.periods and not traffic.is_over else ()
        memory = memory_trend(self.target.watch.looks, begin=self.begin, end=self.last_answer)
        latency, drift = self._latency(), drift_of(self.periods)
        found = [*failures(self.tally, is_gone=traffic.is_gone, unsent=self.unsent), *self._too_slow()]
        wrong = [*found, *self._of_batches(before, after), *self._growth(memory, latency, drift)]
        return replace(
            judged(result, self.target, self.tally, wrong=wrong, unclear=list(self._unclear(memory, latency))),
            unsent=self.unsent,
            memory=memory,
            latency=latency,
            drift=drift,
            batches_before=before,
            batches_after=after,
            periods=tuple(self.periods),
        )

    def _sizes(self) -> list[int]:
        # A server may take no other size than that of a request.
        powers = (2**power for power in range(self.request.most_batch.bit_length()))
        return sorted({*powers, self.target.traffic.questions.rows_each})

    def _load(self) -> None:
        traffic, request = self.target.traffic, self.request
        self.begin = begin = time.perf_counter()
        length = max(_SHORTEST_S, request.seconds / _PERIODS)
        before, planned = traffic.sent, min(traffic.left, round((request.rate or 0.0) * request.seconds))
        while traffic.left and not traffic.is_over:
            left_s = begin + request.seconds - time.perf_counter()
            if left_s <= 0:
                break
            start, first = time.perf_counter(), traffic.sent
            self._keep(self._window(min(length, left_s)), first, start - begin)
        if self._is_behind() and not traffic.is_interrupted:
            self.unsent = max(self.unsent, planned - (traffic.sent - before))

    def _window(self, seconds: float) -> Window[Exchange]:
        traffic, rate = self.target.traffic, self.request.rate
        if rate is None:
            return traffic.closed(callers=self.callers, seconds=seconds)
        times = arrival_times(rate, seconds, arrivals=Arrivals.POISSON, seed=traffic.sent)
        return traffic.open(times, callers=self.callers, give_up_s=_BEHIND_S)

    def _keep(self, window: Window[Exchange], first: int, start: float) -> None:
        traffic = self.target.traffic
        tally = traffic.tally(window.sent)
        self.tally = added(self.tally, tally)
        self.unsent += window.unsent
        if self.request.rate is not None:
            self.late += late_of(window)
        right = [each for each in window.sent if each.answer.outcome is Outcome.ANSWERED]
        latencies = [each.latency for each in right]
        shares = [traffic.difference_of(each.answer).share for each in right]
        answered = [each.at + each.latency for each in window.sent if each.answer.outcome is not Outcome.LOST]
        if answered:
            self.last_answer = self.begin + start + max(answered)
        looks = (look for look in reversed(self.target.watch.looks) if look.at <= self.last_answer)
        look = next(looks, None) if answered else None
        period = Period(
            at=start + window.seconds / 2,
            first_request=first,
            requests=window.answered,
            answered=tally.answered,
            flips=tally.flips,
            per_second=len(right) / max(window.seconds, 1e-9),
            p50_ms=milliseconds(percentile_of(latencies, 50.0)),
            p99_ms=milliseconds(percentile_of(latencies, 99.0)),
            share=_finite(statistics.median(shares)) if shares else None,
            memory=None if look is None else look.memory / MEBIBYTE,
        )
        self.periods.append(period)
        self.watch(period)

    def _latency(self) -> Trend | None:
        found = [(period.at, period.p50_ms) for period in self.periods if period.p50_ms is not None]
        return trend_after_warm_up([at for at, _ in found], [latency for _, latency in found])

    def _is_behind(self) -> bool:
        return self.late > most_late(self.last_answer - self.begin)

    def _too_slow(self) -> Iterator[str]:
        if self._is_behind():
            yield f"the server falls behind {amount(self.request.rate)} requests a second ({self.callers} at once)"

    def _growth(self, memory: Trend | None, latency: Trend | None, drift: Drift | None) -> Iterator[str]:
        most = self.request.most_growth
        if memory is not None and memory.exceeds(most):
            limits = f"at least {amount(memory.low)}, allowed {amount(most)}"
            yield f"the server's memory grows by {amount(memory.per_minute)} MiB a minute ({limits})"
        slowdown = self.request.most_slowdown
        if slowdown is not None and latency is not None and latency.low > 0 and latency.last > slowdown * latency.first:
            both = f"{amount(latency.first)} to {amount(latency.last)}"
            yield f"latency grows from {both} ms (allowed: {amount(slowdown)} times)"
        if drift is not None and drift.request is not None:
            yield f"answers drift from request {drift.request} on"

    def _of_batches(self, before: Sequence[Repeats], after: Sequence[Repeats]) -> Iterator[str]:
        wrong = sum(each.wrong for each in (*before, *after))
        if wrong:
            first = next(each.first_wrong for each in (*before, *after) if each.first_wrong)
            yield f"{counted(wrong, 'row')} of repeated rows wrong in a batch ({first})"
        # The load itself asked for so many rows.
        taken = {self.target.traffic.questions.rows_each, *(each.size for each in before if not each.refused)}
        refused = next((each for each in (*before, *after) if each.refused and each.size in taken), None)
        if refused is not None:
            yield f"a batch of {counted(refused.size, 'row')} refused, which the server took before ({refused.refused})"

    def _unclear(self, memory: Trend | None, latency: Trend | None) -> Iterator[str]:
        if not self.periods:
            yield "no load was sent: all requests that are allowed went before it"
            return
        slowdown = self.request.most_slowdown
        if slowdown is not None and latency is None:
            yield "the growth of latency was not measured: the load was too short"
        elif slowdown is not None and latency is not None and latency.last > slowdown * latency.first:
            yield "latency grows by more than allowed, but not throughout; load it for longer"
        if not self.request.is_memory_needed:
            return
        if memory is None:
            yield f"memory was not measured: {self.target.watch.why or f'it takes a load of at least {_MEMORY_S} s'}"
        elif memory.is_unclear(self.request.most_growth):
            interval, limit = f"{amount(memory.low)} to {amount(memory.high)}", amount(self.request.most_growth)
            yield f"memory grows by {interval} MiB a minute: too unclear for the limit {limit}; load it for longer"


def memory_trend(looks: Sequence[Look], *, begin: float, end: float) -> Trend | None:
    """Return the growth of a server's memory in MiB between two times: from the load's beginning to the last answer."""
    kept = [look for look in looks if begin <= look.at <= end]
    return trend_after_warm_up([look.at - begin for look in kept], [look.memory / MEBIBYTE for look in kept])


def trend_after_warm_up(times: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Return the trend of a series without its warm-up: a third of its time, and at most two minutes."""
    if not times:
        return None
    warm = times[0] + min(_WARM_UP * (times[-1] - times[0]), _LONGEST_WARM_UP_S)
    kept = [(at, value) for at, value in zip(times, values, strict=True) if at >= warm]
    return trend_of([at for at, _ in kept], [value for _, value in kept])


def drift_of(periods: Sequence[Period]) -> Drift | None:
    """Return how the median difference of a period rises above those of the first third; None for too few periods.

    It begins with the first period beyond the limit whose next one is, too; else with the only one that is.
    """
    shares = [(period.share, period.first_request) for period in periods if period.share is not None]
    cut = math.ceil(_OF_FIRST * len(shares))
    if not shares[cut:]:
        return None
    first = max(share for share, _ in shares[:cut])
    beyond = [(share > first + _MOST_DRIFT, request) for share, request in shares[cut:]]
    requests = [request for is_beyond, request in beyond if is_beyond]
    lasting = (request for (now, request), (then, _) in itertools.pairwise(beyond) if now and then)
    return Drift(
        first=first,
        last=max(share for share, _ in shares[cut:]),
        request=next(lasting, requests[0] if requests else None),
    )


def late_of(window: Window[Exchange]) -> float:
    """Return by how many seconds an open loop ended late, beyond the time of an answer that did not wait."""
    if not window.sent:
        return 0.0
    usual = percentile_of([each.latency for each in window.sent], 10.0)
    return window.seconds - max(each.at for each in window.sent) - usual


def _finite(share: float) -> float | None:
    return share if math.isfinite(share) else None
