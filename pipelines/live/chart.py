"""Draw throughput against latency."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paritygate.pipelines.live.latency_axis import disc, latency_ticks, route
from paritygate.pipelines.live.result import Step
from paritygate.pipelines.report.drawings.plot import LEFT, TOP, Frame, Label, Path, Plot, nice_steps
from paritygate.pipelines.report.figures import number

_HEIGHT, _TICKS, _RADIUS = 230.0, 6, 3.0
_LINES = (("p50_ms", "p50", "cell-1"), ("p99_ms", "p99", "column"))


def latency_chart(steps: Sequence[Step]) -> Plot | None:
    """Return the chart with one dot for each loop and percentile, and lines through the closed loops; None of none."""
    found = [(step, getattr(step, key)) for step in steps for key, _, _ in _LINES]
    measured = [(step, latency) for step, latency in found if latency]
    if not measured:
        return None
    logs = [math.log10(latency) for _, latency in measured]
    fastest = max(step.per_second for step, _ in measured)
    frame = Frame(height=_HEIGHT, x_low=0.0, x_high=fastest * 1.1, y_low=min(logs) - 0.1, y_high=max(logs) + 0.1)
    x_ticks = [(at, number(at)) for at in nice_steps(0.0, frame.x_high, _TICKS)]
    x_marks, x_labels = frame.x_ticks(x_ticks, "answers a second")
    y_marks, y_labels = latency_ticks(frame)
    paths, labels = zip(*(_line(frame, steps, *line) for line in _LINES), strict=True)
    title = Label(x=LEFT, y=TOP - 10, text="latency in ms", kind="title", anchor="start")
    return Plot(
        title="Throughput against latency",
        words="Pale dots are p50 and full dots p99. A line joins closed loops; other dots are rates and stress.",
        height=frame.full_height,
        paths=(*y_marks, *(path for group in paths for path in group), frame.axes(), *x_marks),
        labels=(*x_labels, *y_labels, title, *(label for group in labels for label in group)),
    )


def _line(frame: Frame, steps: Sequence[Step], key: str, name: str, kind: str) -> tuple[list[Path], list[Label]]:
    """Return the dots of one percentile, their line and its label."""
    dots, ends = [], []
    for step in steps:
        latency = getattr(step, key)
        if not latency:
            continue
        place = frame.x(step.per_second), frame.y(math.log10(latency))
        load = f"{step.users} users" if step.rate is None else f"{number(step.rate)} a second sent"
        words = f"{load}: {number(step.per_second)} answers a second, {name} {number(latency)} ms"
        dots.append(Path(d=disc(*place, _RADIUS), kind=kind, words=words))
        if step.loop == "closed":
            ends.append(place)
    label = [Label(x=ends[-1][0] - 6, y=ends[-1][1] - 6, text=name, kind="strong", anchor="end")] if ends else []
    return [Path(d=route(ends), kind="diagonal"), *dots] if ends else dots, label


def series_chart(title: str, unit: str, points: Sequence[tuple[float, float]]) -> Plot | None:
    """Return the chart of values at times in seconds; None of fewer than two."""
    if len(points) <= 1:
        return None
    times, values = [at for at, _ in points], [value for _, value in points]
    # A flat series is not drawn as if it jumped.
    room = max(0.1 * max(values), (max(values) - min(values)) * 0.1, 1e-3)
    low, high = max(0.0, min(values) - room), max(values) + room
    frame = Frame(height=_HEIGHT, x_low=0.0, x_high=max(times) or 1.0, y_low=low, y_high=high)
    x_marks, x_labels = frame.x_ticks([(at, number(at)) for at in nice_steps(0.0, frame.x_high, _TICKS)], "seconds")
    y_marks, y_labels = frame.y_ticks([(at, number(at)) for at in nice_steps(low, high, _TICKS)])
    places = [(frame.x(at), frame.y(value)) for at, value in points]
    words = f"From {number(values[0])} to {number(values[-1])} {unit}, at most {number(max(values))}."
    return Plot(
        title=title,
        words=words,
        height=frame.full_height,
        paths=(*y_marks, Path(d=route(places), kind="boundary", words=words), frame.axes(), *x_marks),
        labels=(*x_labels, *y_labels, Label(x=LEFT, y=TOP - 10, text=unit, kind="title", anchor="start")),
    )
