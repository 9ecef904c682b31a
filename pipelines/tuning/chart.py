"""Draw the chart of throughput against latency, as a self-contained SVG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from paritygate.pipelines.live.chart import disc, latency_ticks, route
from paritygate.pipelines.report.drawings.plot import LEFT, TOP, WIDTH, Frame, Label, Path, Plot, line, nice_steps
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.tuning.request import TuneResult
from paritygate.pipelines.tuning.search import Point

_HEIGHT, _TICKS = 230.0, 6
_RADIUS, _BEST_RADIUS = 2.6, 5.5
_STYLE = """
svg { background: #fff; }
path { fill: none; stroke: #667; stroke-width: 1; }
path.grid { stroke: #e3e5ea; }
path.other { stroke: #b4b9c4; }
path.dot { fill: #b4b9c4; stroke: none; }
path.best { stroke: #1f5fbf; stroke-width: 1.6; }
path.best-dot { fill: #1f5fbf; stroke: none; }
path.open { stroke: #1f5fbf; stroke-width: 1.6; }
path.limit { stroke: #b3261e; stroke-width: 1.6; stroke-dasharray: 5 3; }
text { fill: #556; font: 11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
text.limit-label { fill: #b3261e; font-weight: 600; }
text.strong { fill: #1f5fbf; font-weight: 600; }
"""


def chart_of(result: TuneResult) -> Plot | None:
    """Return the chart with a line for each settings, by callers, or None without measurements."""
    points = [point for point in result.points if point.limit_ms]
    if not points:
        return None
    latencies = [math.log10(value) for value in (*(p.limit_ms or 0.0 for p in points), result.limit_ms)]
    low, high = min(latencies) - 0.1, max(latencies) + 0.1
    fastest = max(point.rows_per_s for point in points)
    frame = Frame(height=_HEIGHT, x_low=0.0, x_high=fastest * 1.1 or 1.0, y_low=low, y_high=high)
    x_marks, x_labels = frame.x_ticks(
        [(step, number(step)) for step in nice_steps(0.0, frame.x_high, _TICKS)], "rows a second"
    )
    y_marks, y_labels = latency_ticks(frame)
    limit = frame.y(math.log10(result.limit_ms))
    words = f"limit {number(result.limit_ms)} ms"
    best, opened = result.best, result.open
    strong = [_label(frame, best, str(best.settings))] if best is not None and best.limit_ms else []
    ring = [_ring(frame, opened)] if opened is not None and opened.limit_ms else []
    return Plot(
        title=f"{result.name} on {result.server} {result.server_version}: throughput against latency",
        words=_words(result, points),
        height=frame.full_height,
        paths=(
            *y_marks,
            *_lines(frame, points, best),
            Path(d=line(LEFT, limit, frame.right, limit), kind="limit"),
            frame.axes(),
            *x_marks,
            *ring,
        ),
        labels=(
            *x_labels,
            *y_labels,
            Label(x=LEFT, y=TOP - 10, text=f"p{result.percentile:g} in ms", kind="title", anchor="start"),
            Label(x=frame.right, y=limit - 4, text=words, kind="limit-label", anchor="end"),
            *strong,
        ),
    )


def _lines(frame: Frame, points: Sequence[Point], best: Point | None) -> list[Path]:
    """Return a line and dots for each settings, those of the best above all others."""
    paths: list[tuple[bool, Path]] = []
    for settings in dict.fromkeys(point.settings for point in points):
        own = sorted((p for p in points if p.settings == settings and p.loop == "closed"), key=lambda p: p.callers)
        is_best = best is not None and settings == best.settings
        places = [_place(frame, point) for point in own]
        # Repeated measurements are dots beside the line.
        first = {point.callers: _place(frame, point) for point in reversed(own)}
        ends = [first[callers] for callers in sorted(first)]
        radius = _RADIUS * (1.4 if is_best else 1.0)
        dots = "".join(disc(x, y, radius) for x, y in places)
        words = f"{settings}: " + ", ".join(_in_words(point) for point in own)
        paths.append((is_best, Path(d=route(ends), kind="best" if is_best else "other")))
        paths.append((is_best, Path(d=dots, kind="best-dot" if is_best else "dot", words=words)))
    return [path for is_best, path in sorted(paths, key=lambda pair: pair[0]) if path.d]


def _place(frame: Frame, point: Point) -> tuple[float, float]:
    return frame.x(point.rows_per_s), frame.y(math.log10(point.limit_ms or 1.0))


def _ring(frame: Frame, point: Point) -> Path:
    x, y = _place(frame, point)
    return Path(d=disc(x, y, _BEST_RADIUS), kind="open", words=f"open loop: {_in_words(point)}")


def _label(frame: Frame, point: Point, text: str) -> Label:
    x, y = _place(frame, point)
    anchor = "end" if x > WIDTH / 2 else "start"
    return Label(x=x + (-8 if anchor == "end" else 8), y=y + 14, text=text, kind="strong", anchor=anchor)


def _in_words(point: Point) -> str:
    load = f"{point.callers} at once" if point.rate is None else f"{number(point.rate)} a second sent"
    return f"{number(point.rows_per_s)} rows/s at {number(point.limit_ms)} ms ({load})"


def _words(result: TuneResult, points: Sequence[Point]) -> str:
    settings = len({point.settings for point in points})
    text = f"{len(points)} measurements of {settings} settings, each line by the number of callers."
    if result.best is not None:
        text += f" The best within the limit: {result.best.settings}, {_in_words(result.best)}."
    if result.open is not None:
        text += f" The ring is the open loop: {_in_words(result.open)}."
    return text


def svg_of(plot: Plot) -> str:
    """Return a drawing as an SVG file, with its own style and a description."""
    height = f"{plot.height:g}"
    shapes = [
        f'<path class="{path.kind}" d="{path.d}">{f"<title>{escape(path.words)}</title>" if path.words else ""}</path>'
        for path in plot.paths
    ]
    texts = [
        f'<text class="{label.kind}" x="{label.x:.1f}" y="{label.y:.1f}" text-anchor="{label.anchor}">'
        f"{escape(label.text)}</text>"
        for label in plot.labels
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}" width="{2 * WIDTH:g}" role="img">'
    about = f"<title>{escape(plot.title)}</title><desc>{escape(plot.words)}</desc><style>{_STYLE}</style>"
    return "\n".join([head, about, *shapes, *texts, "</svg>", ""])
