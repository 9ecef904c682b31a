"""Draw throughput against latency, which is on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paritygate.pipelines.live.result import Step
from paritygate.pipelines.report.drawings.plot import LEFT, TOP, Frame, Label, Path, Plot, nice_steps
from paritygate.pipelines.report.figures import amount

_STEPS = (1, 2, 5)
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
    x_ticks = [(at, amount(at)) for at in nice_steps(0.0, frame.x_high, _TICKS)]
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
        load = f"{step.users} users" if step.rate is None else f"{amount(step.rate)} a second sent"
        words = f"{load}: {amount(step.per_second)} answers a second, {name} {amount(latency)} ms"
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
    x_marks, x_labels = frame.x_ticks([(at, amount(at)) for at in nice_steps(0.0, frame.x_high, _TICKS)], "seconds")
    y_marks, y_labels = frame.y_ticks([(at, amount(at)) for at in nice_steps(low, high, _TICKS)])
    places = [(frame.x(at), frame.y(value)) for at, value in points]
    words = f"From {amount(values[0])} to {amount(values[-1])} {unit}, at most {amount(max(values))}."
    return Plot(
        title=title,
        words=words,
        height=frame.full_height,
        paths=(*y_marks, Path(d=route(places), kind="boundary", words=words), frame.axes(), *x_marks),
        labels=(*x_labels, *y_labels, Label(x=LEFT, y=TOP - 10, text=unit, kind="title", anchor="start")),
    )


def latency_ticks(frame: Frame) -> tuple[tuple[Path, ...], tuple[Label, ...]]:
    """Return lines and labels of milliseconds, for a frame whose vertical axis has their decimal logarithms."""
    decades = range(math.floor(frame.y_low), math.ceil(frame.y_high) + 1)
    values = [step * 10.0**decade for decade in decades for step in _STEPS]
    inside = [value for value in values if frame.y_low <= math.log10(value) <= frame.y_high]
    return frame.y_ticks([(math.log10(value), amount(value)) for value in inside])


def disc(x: float, y: float, radius: float) -> str:
    """Return the outline of a disc."""
    half = f"a{radius:g} {radius:g} 0 1 0 "
    return f"M{x - radius:.1f} {y:.1f}{half}{2 * radius:g} 0{half}-{2 * radius:g} 0z"


def route(places: list[tuple[float, float]]) -> str:
    """Return a line through some places."""
    return "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(places))
