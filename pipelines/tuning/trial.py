"""Search on one server, measure the best settings again beside the server's own, and confirm them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.measuring import WrongAnswer
from paritygate.pipelines.tuning.request import TuneRequest, TuneResult
from paritygate.pipelines.tuning.search import Point, Search, Space
from paritygate.pipelines.tuning.session import Session

# How often the best and the server's own are measured again, in turn, and how much longer; and the relevant gain.
_FINALS, _FINAL_TIMES, _GAIN = 3, 2.0, 1.03
# The shares of the closed loop's rate that are offered to an open loop, one after the other.
_OFFERED = (0.8, 0.65, 0.5)
_BUSY = 0.85


class SettingsTrial(Struct, kw_only=True):
    """One search on one server."""

    request: TuneRequest
    space: Space
    session: Session
    watch: Callable[[Point], None]  # called with each measurement
    points: list[Point] = field(default_factory=list)  # all, in their order

    def run(self, result: TuneResult) -> TuneResult:
        """Return the result of the search; the server keeps the settings that were measured last.

        Raises:
            MeasurementError: The server does not answer, goes away, or reached the limit of requests.
            BackendError: It answers with an error.
        """
        try:
            outcome = self._search(result)
        except WrongAnswer as err:
            reason = f"a wrong answer with {err.settings}, to {err}"
            outcome = replace(result, verdict="fail", reason=reason, wrong_answers=err.count)
        if any(point.client_share > _BUSY for point in self.points):
            note = "this client took a whole processor in some measurements: the server may answer more than is shown"
            outcome = replace(outcome, notes=(*outcome.notes, note))
        hits = sum(point.cache_hits for point in self.points)
        if hits:
            note = (
                f"{hits} of the answers came out of the server's response_cache: the figures are not those of the model"
            )
            outcome = replace(outcome, notes=(*outcome.notes, note))
        meter = self.session.meter
        return replace(
            outcome,
            points=tuple(self.points),
            not_loaded=self.session.not_loaded,
            measurements=meter.measurements,
            answers=meter.answers,
        )

    def _search(self, result: TuneResult) -> TuneResult:
        before, space = result.before, self.space
        if self.session.is_cached and self.session.load(before, 1):
            note = "the server's response_cache was off during the measurement, because cached responses are faster"
            result = replace(result, notes=(*result.notes, note))
        self.session.meter.look(before)
        if self.session.control is None:
            space = Space(max_batch_size=[], instances=[], most_callers=space.most_callers)
        search = Search(space=space, measure=self._measure)
        best = search.run(before)
        if best is None:
            fastest = min((p.limit_ms for p in self.points if p.limit_ms is not None), default=None)
            words = "" if fastest is None else f"; the least was {fastest:.3g} ms"
            return replace(result, verdict="fail", reason=f"no settings answer within {self._limit}{words}")
        best, baseline = self._finals(best, search.best_of(before))
        if best is None:
            reason = f"measured again, the best settings were not within {self._limit}: the latency varies"
            return replace(result, verdict="inconclusive", reason=reason, baseline=baseline)
        opened = self._confirm(best)
        reason = ""
        if opened is None:
            least = f"{best.rows_per_s * _OFFERED[-1]:.3g} rows a second"
            reason = f"sent at random times, {least} were not answered within {self._limit}"
        return replace(
            result,
            verdict="inconclusive" if opened is None else "pass",
            reason=reason,
            settings=best.settings,
            baseline=baseline,
            best=best,
            open=opened,
        )

    @property
    def _limit(self) -> str:
        return f"p{self.request.percentile:g} {self.request.limit_s * 1000:g} ms"

    def _finals(self, best: Point, baseline: Point | None) -> tuple[Point | None, Point | None]:
        """Return the best and the server's own, measured again in turn; the latter wins unless the best is clearly so.

        The median measurement of each excludes hiccups of the machine and lucky runs.
        """
        seconds = self.request.seconds * _FINAL_TIMES
        is_same = baseline is not None and best.settings == baseline.settings
        rivals = [best] if baseline is None or is_same else [best, baseline]
        finals: dict[Settings, list[Point]] = {}
        for _ in range(_FINALS):
            for rival in rivals:
                point = self._measure(rival.settings, rival.callers, seconds)
                if point is not None:
                    finals.setdefault(rival.settings, []).append(point)
        standing = {
            settings: _median(points)
            for settings, points in finals.items()
            if sum(point.is_within for point in points) * 2 > len(points)
        }
        winner = standing.get(best.settings)
        own = None if baseline is None else standing.get(baseline.settings)
        if winner is None or (own is not None and winner.rows_per_s <= own.rows_per_s * _GAIN):
            winner = own
        return winner, own or (None if is_same else baseline)

    def _confirm(self, best: Point) -> Point | None:
        """Return the measurement of an open loop at the highest offered rate within the limit."""
        request = self.request
        self.session.load(best.settings, best.callers)
        for share in _OFFERED:
            point = self.session.meter.open(
                best.settings,
                best.rows_per_s / request.rows * share,
                request.seconds * _FINAL_TIMES,
                callers=request.most_callers,
                arrivals=request.arrivals,
                seed=request.seed,
            )
            self.session.check_unchanged()
            self._keep(point)
            if point.is_within:
                return point
        return None

    def _measure(self, settings: Settings, callers: int, seconds: float | None = None) -> Point | None:
        if not self.session.load(settings, callers):
            return None
        point = self.session.meter.closed(settings, callers, seconds or self.request.seconds)
        self.session.check_unchanged()
        self._keep(point)
        return point

    def _keep(self, point: Point) -> None:
        self.points.append(point)
        self.watch(point)


def _median(points: Sequence[Point]) -> Point:
    """Return the measurement in the middle by rows a second, of those within the limit."""
    within = sorted((point for point in points if point.is_within), key=lambda point: point.rows_per_s)
    return within[(len(within) - 1) // 2]
