"""The report as one HTML file: nothing is loaded, nothing is executed, and every foreign text is escaped."""

from __future__ import annotations

import functools

import jinja2

from paritygate.pipelines.report.quantile_strip import WIDTH
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.sections import contents_of
from paritygate.pipelines.report.speed_section import SpeedSection
from paritygate.pipelines.report.tables.table import SYMBOLS
from paritygate.pipelines.report.tradeoff.chart import is_drawing_possible, tradeoff_svg
from paritygate.text import printable

__all__ = ["render_html"]


def render_html(report: ReportData) -> str:
    """Return the report as a self-contained HTML page."""
    template = _environment().get_template("report.html.j2")
    contents = contents_of(report)
    chart, no_chart = _chart(contents["speed"])
    return template.render(contents, symbols=SYMBOLS, strip_width=WIDTH, chart=chart, no_chart=no_chart)


def _chart(speed: SpeedSection | None) -> tuple[_Markup | None, str]:
    """Return the chart of speed against difference, or None and why there is none."""
    if speed is None:
        return None, ""
    if not speed.tradeoff.points:
        return None, "There is no chart: no variant was both compared and benchmarked."
    if not is_drawing_possible():
        return None, "The chart was left out: altair and vl-convert-python are not installed (the extra `report`)."
    return _Markup(tradeoff_svg(speed.tradeoff)), ""


class _Markup(str):
    """Text that is markup already: Jinja2 asks for `__html__` before it escapes."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("paritygate.pipelines.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: object) -> object:
    """Make everything that a template prints fit to look at; what is markup already was made by a template."""
    return value if hasattr(value, "__html__") else printable(str(value))
