"""The chart of speed against difference as SVG that stands in the page: no script, nothing loaded, its colours."""

from __future__ import annotations

import importlib.util
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from paritygate.pipelines.report.tradeoff.layout import HEIGHT, WIDTH, Layout, Mark, layout_of
from paritygate.pipelines.report.tradeoff.tradeoff import Tradeoff

if TYPE_CHECKING:
    import altair as alt

__all__ = ["is_drawing_possible", "tradeoff_svg"]

_MODULES = ("altair", "vl_convert")
_NAMESPACE = "http://www.w3.org/2000/svg"
# The page's own colours, which follow its light and dark mode and print.
_INK, _SOFT, _LINE, _ACCENT, _FAIL = "currentColor", "var(--soft)", "var(--line)", "var(--accent)", "var(--fail)"
_SHAPES = {"pass": "circle", "fail": "cross", "inconclusive": "triangle-up"}
_COLOURS = {"pass": "var(--pass)", "fail": "var(--fail)", "inconclusive": "var(--warn)"}
_SIZE, _RING = 110, 420
_WEIGHTS: dict[Literal["normal", "bold"], bool] = {"normal": False, "bold": True}
_ALIGNMENTS: tuple[Literal["left", "right", "center"], ...] = ("left", "right", "center")


def is_drawing_possible() -> bool:
    """Return whether the extra `report` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in _MODULES)


def tradeoff_svg(tradeoff: Tradeoff) -> str:
    """Return the chart as an `<svg>` element; its text alternative is its label.

    Args:
        tradeoff: What it shows, at least one point.
    """
    layout = layout_of(tradeoff.points)
    stream = io.StringIO()
    _chart(layout, tradeoff.at).save(stream, format="svg")
    words = "Speed-up over the source against the difference. " + " ".join(tradeoff.words)
    return _for_the_page(stream.getvalue(), words)


def _chart(layout: Layout, at: str) -> alt.LayerChart:
    import altair as alt

    layers = [
        *_background(layout),
        *_intervals(layout.marks),
        _lines([label.line for label in layout.labels if label.line is not None], color=_SOFT, width=0.8),
        *_points(layout.marks),
        *_texts(layout),
    ]
    x_axis = _axis(layout.x_ticks, "difference, of the nearest limit: largest, mean or per row")
    y_axis = _axis(layout.y_ticks, f"speed-up over the source, {at}")
    chart: alt.LayerChart = (
        alt.layer(*layers)
        .encode(
            x=alt.X("x:Q", axis=x_axis, scale=alt.Scale(domain=[0, WIDTH], nice=False)),
            # From the top down.
            y=alt.Y("y:Q", axis=y_axis, scale=alt.Scale(domain=[HEIGHT, 0], nice=False)),
        )
        .properties(width=WIDTH, height=HEIGHT, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_SOFT, titleColor=_SOFT, titleFontWeight="normal", tickColor=_LINE, domainColor=_SOFT,
            gridColor=_LINE, gridOpacity=0.7, labelFontSize=11, titleFontSize=12, titlePadding=10,
            labelOverlap=False, labelFlush=False,
        )
    )  # fmt: skip
    return chart


def _axis(ticks: Sequence[tuple[float, str]], title: str) -> alt.Axis:
    """Return an axis of positions in user units with ticks of its own."""
    import altair as alt

    names = json.dumps({f"{position:.2f}": words for position, words in ticks})
    words = f"({names})[format(datum.value, '.2f')]"
    return alt.Axis(values=[position for position, _ in ticks], labelExpr=words, title=title)


def _background(layout: Layout) -> Iterable[alt.Chart]:
    """Yield what is behind the variants: the area beyond the tolerance, its line, and the line of the source."""
    import altair as alt

    beyond = {"x": layout.tolerance, "x2": WIDTH, "y": 0, "y2": HEIGHT}
    yield (
        alt.Chart(alt.InlineData(values=[beyond]))
        .mark_rect(color=_FAIL, opacity=0.07)
        .encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q")
    )
    yield _lines([(slot, 0, slot, HEIGHT) for slot in layout.slots], color=_SOFT, width=1, dash=[2, 3])
    yield _lines([(layout.tolerance, 0, layout.tolerance, HEIGHT)], color=_FAIL, width=2)
    yield _lines([(0, layout.source, WIDTH, layout.source)], color=_INK, width=1.2, dash=[5, 4])


def _intervals(marks: Iterable[Mark]) -> Iterable[alt.Chart]:
    """Yield the intervals of the speed-ups, with a short bar at either end."""
    by_verdict: dict[str, list[tuple[float, float, float, float]]] = {}
    for mark in marks:
        ends = [(mark.x - 4, y, mark.x + 4, y) for y in (mark.low, mark.high)]
        by_verdict.setdefault(mark.point.verdict, []).extend([(mark.x, mark.low, mark.x, mark.high), *ends])
    for verdict, lines in by_verdict.items():
        yield _lines(lines, color=_COLOURS.get(verdict, _SOFT), width=1.4)


def _points(marks: Sequence[Mark]) -> Iterable[alt.Chart]:
    """Yield the variants: a shape and colour for each verdict, a ring around what is released."""
    import altair as alt

    for verdict in dict.fromkeys(mark.point.verdict for mark in marks):
        values = [{"x": mark.x, "y": mark.y} for mark in marks if mark.point.verdict == verdict]
        yield (
            alt.Chart(alt.InlineData(values=values))
            .mark_point(
                shape=_SHAPES.get(verdict, "square"), filled=True, size=_SIZE, opacity=1, stroke="var(--sheet)",
                color=_COLOURS.get(verdict, _SOFT), strokeWidth=1,
            )
            .encode(x="x:Q", y="y:Q")
        )  # fmt: skip
    ringed = [{"x": mark.x, "y": mark.y} for mark in marks if mark.point.mark]
    if ringed:
        yield (
            alt.Chart(alt.InlineData(values=ringed))
            .mark_point(shape="circle", filled=False, size=_RING, opacity=1, color=_ACCENT, strokeWidth=2.2)
            .encode(x="x:Q", y="y:Q")
        )


def _texts(layout: Layout) -> Iterable[alt.Chart]:
    """Yield the labels of the variants, of the tolerance and of the source."""
    labels = list(zip(layout.marks, layout.labels, strict=True))
    for weight, is_bold in _WEIGHTS.items():
        for align in _ALIGNMENTS:
            found = [
                (label.x, label.y, label.text)
                for mark, label in labels
                if label.align == align and bool(mark.point.mark) == is_bold
            ]
            if found:
                yield _text(found, align=align, color=_INK, weight=weight)
    yield _text([(layout.tolerance, -9.0, "tolerance")], align="center", color=_FAIL, weight="bold")
    yield _text([(WIDTH + 6, layout.source, "source")], align="left", color=_INK, weight="normal")


def _text(
    texts: Sequence[tuple[float, float, str]],
    *,
    align: Literal["left", "right", "center"],
    color: str,
    weight: Literal["normal", "bold"],
) -> alt.Chart:
    import altair as alt

    values = [{"x": x, "y": y, "words": words} for x, y, words in texts]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_text(baseline="middle", align=align, color=color, fontSize=12, fontWeight=weight)
        .encode(x="x:Q", y="y:Q", text="words:N")
    )
    return chart


def _lines(
    lines: Iterable[tuple[float, float, float, float]], *, color: str, width: float, dash: Sequence[float] = (1, 0)
) -> alt.Chart:
    import altair as alt

    values = [{"x": x, "y": y, "x2": x2, "y2": y2} for x, y, x2, y2 in lines]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_rule(color=color, strokeWidth=width, strokeDash=list(dash))
        .encode(x="x:Q", y="y:Q", x2="x2:Q", y2="y2:Q")
    )
    return chart


def _for_the_page(svg: str, words: str) -> str:
    """Return the drawing as one picture with one text alternative, as large as the page lets it be."""
    ET.register_namespace("", _NAMESPACE)
    root = ET.fromstring(svg)  # noqa: S314 - made here a moment ago, and no document of others
    for element in root.iter():
        for name in [name for name in element.attrib if name == "role" or name.startswith("aria-")]:
            del element.attrib[name]
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"class": "tradeoff", "role": "img", "aria-label": words})
    return ET.tostring(root, encoding="unicode")
