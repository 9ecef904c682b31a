"""Run `load`: send more and more requests, compare every answer, and find the highest rate that is sustained."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from paritygate.codec import with_fields_of
from paritygate.errors import UsageError
from paritygate.models.endpoint import parse_endpoint
from paritygate.pipelines.live.loops import Window, arrival_times, milliseconds, most_late, percentile_of
from paritygate.pipelines.live.metrics.server_counts import ServerCounts
from paritygate.pipelines.live.metrics.triton_page import MetricsPage
from paritygate.pipelines.live.processes import Use
from paritygate.pipelines.live.result import LoadRequest, LoadResult, Step
from paritygate.pipelines.live.target import Target, check_time, failures, judged, loaded, prepare
from paritygate.pipelines.live.traffic import Exchange, Outcome, Tally, added, interruptible
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.report.figures import amount
from paritygate.validate.runners.endpoint.client import Pace

# An open loop ends when it is so many seconds behind; under stress it may be, and waits for every answer.
_BEHIND_S, _BEHIND_STRESS = 10.0, 10.0
_STRESS_TIMES = 2.0
# From here on, this client is measured.
_BUSY = 0.85


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """One loop to run."""

    users: int
    rate: float | None = None  # None for a closed loop
    is_stress: bool = False

    def __str__(self) -> str:
        return f"{self.users} users" if self.rate is None else f"{amount(self.rate)} requests a second"


def check_plan(request: LoadRequest) -> None:
    """Raise UsageError for a load without a loop, or one that takes longer than allowed."""
    if not request.users and not request.rates:
        msg = "load has no loop (got no users and no rate)"
        raise UsageError(msg, hint="write for example --users 1,4,16, or --rate 50,100")
    check_time(request.planned_s, request.most_s)


def load(
    request: LoadRequest,
    *,
    progress: Progress = lambda *_: None,
    watch: Callable[[Step], None] = lambda _: None,
) -> LoadResult:
    """Load a server, and judge each of its answers by the released file's.

    `progress` is called while the released file runs on the samples, and `watch` with each loop.

    Raises:
        UsageError: The load is not allowed, or there is no such release.
        MeasurementError: The server does not answer.
        BackendError: It answers with an error before it is loaded.
        ParitygateError: The released file fails on the samples.
    """
    check_plan(request)
    callers = max([*request.users, request.most_callers if request.rates or request.stress_s else 1])
    target = prepare(request, "load", callers=callers, progress=progress)
    questions = len(target.traffic.questions.inputs)
    result = LoadResult(served=target.served, verdict="fail", rows=request.rows, questions=questions)
    page = None
    if request.server_metrics is not None:
        page = MetricsPage(request.server_metrics, request.limits, Pace(request.limits, request.server_metrics))
    return loaded(result, target, _Load(request=request, target=target, watch=watch, page=page).run)


def _busy_notes(steps: Sequence[Step]) -> Iterator[str]:
    if any(step.client_share > _BUSY for step in steps):
        yield "this client used a whole processor in some loops: the server may answer more than is shown"


@dataclass(kw_only=True)
class _Load:
    """One load of one server."""

    request: LoadRequest
    target: Target
    watch: Callable[[Step], None]
    page: MetricsPage | None  # of a Triton server
    begin: float = field(default_factory=time.monotonic)
    tally: Tally = field(default_factory=Tally)
    steps: list[Step] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def run(self, result: LoadResult) -> LoadResult:
        """Return the result."""
        self.tally = self.target.look()
        reasons = failures(self.tally, when=" before the load")
        is_right = None
        traffic = self.target.traffic
        if not reasons:
            with interruptible(traffic):
                for plan in self._plans():
                    self._run(plan)
                best = self._best()
                if best is not None and self.request.stress_s:
                    is_right = self._stress(best)
            reasons = self._reasons(is_right_after_stress=is_right)
            result = replace(result, highest_rate=None if best is None else best.per_second)
        else:
            result = replace(result, is_wrong_without_load=self.tally.wrong > 0)
        return replace(
            judged(result, self.target, self.tally, wrong=reasons, unclear=()),
            steps=tuple(self.steps),
            notes=tuple(_busy_notes(self.steps)),
            is_right_after_stress=is_right,
            left_out=tuple(self.left_out),
        )

    def _plans(self) -> Iterator[_Plan]:
        yield from (_Plan(users=users) for users in self.request.users)
        yield from (_Plan(users=self.request.most_callers, rate=rate) for rate in self.request.rates)

    def _reasons(self, *, is_right_after_stress: bool | None) -> list[str]:
        traffic = self.target.traffic
        # A rate that is too high for the server is not a fault of it, other than under stress.
        unsent = sum(step.unsent for step in self.steps if step.is_stress or traffic.is_gone)
        found = failures(self.tally, is_gone=traffic.is_gone, unsent=unsent)
        if not found and not traffic.is_interrupted and not any(step.is_sustained for step in self.steps):
            found.append("no load is sustained")
        if is_right_after_stress is False:
            found.append("the server is wrong after the stress")
        return found

    def _best(self) -> Step | None:
        sustained = [step for step in self.steps if step.is_sustained]
        return max(sustained, key=lambda step: step.per_second, default=None)

    def _stress(self, best: Step) -> bool | None:
        """Send twice the highest sustained rate, and return whether the server is right afterwards."""
        rate = _STRESS_TIMES * best.per_second
        self._run(_Plan(users=self.request.most_callers, rate=rate, is_stress=True))
        if not self.steps[-1].is_stress or self.target.traffic.is_over:
            return None
        after = self.target.look()
        self.tally = added(self.tally, after)
        return not failures(after)

    def _run(self, plan: _Plan) -> None:
        traffic = self.target.traffic
        if traffic.is_over or not traffic.left or time.monotonic() - self.begin > self.request.most_s:
            why = "the server stopped answering" if traffic.is_gone else "a limit is reached"
            why = "interrupted" if traffic.is_interrupted else why
            self.left_out.append(f"{plan}: {why}")
            return
        begin, counts = time.perf_counter(), self._counts()
        window = self._window(plan)
        use = self.target.watch.use_since(begin)
        tally = traffic.tally(window.sent)
        self.tally = added(self.tally, tally)
        step = self._step(plan, window, tally, use)
        after = self._counts()
        if self.page is not None and counts is not None and after is not None:
            step = replace(step, server=after.since(counts), machine=self.page.read())
        self.steps.append(step)
        self.watch(step)

    def _counts(self) -> ServerCounts | None:
        if self.page is None:
            return None
        return self.page.counts(parse_endpoint(self.request.url, is_mapped=self.request.mapping is not None).model)

    def _window(self, plan: _Plan) -> Window[Exchange]:
        request, traffic = self.request, self.target.traffic
        if plan.rate is None:
            spawn_rate = request.spawn_rate or math.inf
            return traffic.closed(callers=plan.users, seconds=request.seconds, spawn_rate=spawn_rate)
        seconds = request.stress_s if plan.is_stress else request.seconds
        times = arrival_times(plan.rate, seconds, arrivals=request.arrivals, seed=request.seed)
        give_up_s = _BEHIND_STRESS * max(seconds, _BEHIND_S) if plan.is_stress else _BEHIND_S
        # Stress waits for every answer. Any other rate has failed by then.
        end_s = math.inf if plan.is_stress else seconds + most_late(seconds)
        return traffic.open(times, callers=plan.users, give_up_s=give_up_s, end_s=end_s)

    def _step(self, plan: _Plan, window: Window[Exchange], tally: Tally, use: Use | None) -> Step:
        # While users begin, there is less load than the line says.
        ramp = (plan.users - 1) / self.request.spawn_rate if plan.rate is None and self.request.spawn_rate else 0.0
        sent = [each for each in window.sent if each.at >= ramp]
        latencies = [each.latency for each in sent if each.answer.outcome is Outcome.ANSWERED]
        missing = sum(each.answer.outcome is Outcome.LOST for each in sent) + window.unsent
        # What never came took longer than all others.
        all_of_them = [*latencies, *[math.inf] * missing]
        per_second = len(latencies) / max(window.seconds - ramp, 1e-9)
        at = functools.partial(percentile_of, all_of_them)
        step = with_fields_of(
            Step,
            tally,
            loop="closed" if plan.rate is None else "open",
            users=plan.users,
            rate=plan.rate,
            is_stress=plan.is_stress,
            requests=window.answered,
            unsent=window.unsent,
            seconds=window.seconds,
            per_second=per_second,
            rows_per_second=per_second * self.request.rows,
            mean_ms=milliseconds(sum(all_of_them) / len(all_of_them)) if all_of_them else None,
            p50_ms=milliseconds(at(50.0)),
            p95_ms=milliseconds(at(95.0)),
            p99_ms=milliseconds(at(99.0)),
            cpu=None if use is None else use.cpu,
            memory=None if use is None else use.memory,
            client_share=window.client_share,
        )
        last = max((each.at for each in window.sent), default=0.0)
        return replace(step, why_not=self._why_not(step, last))

    def _why_not(self, step: Step, last: float) -> str:
        """Return why a load is not sustained; `last` is when the last request was sent or was to be sent."""
        if step.wrong or step.errors or step.lost:
            return "wrong or missing answers"
        if self.target.traffic.is_interrupted:
            return "interrupted"
        if not step.answered:
            return "no answer"
        if step.loop == "open" and (step.unsent or step.seconds - last > most_late(last)):
            return "the server falls behind"
        limit = self.request.limit_s
        if limit is not None and (step.p99_ms is None or step.p99_ms > limit * 1000):
            return "over the limit on latency"
        return ""
