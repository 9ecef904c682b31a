"""The report as one HTML file: nothing is loaded, nothing is executed, and every foreign text is escaped."""

from __future__ import annotations

import functools

import jinja2

from paritygate.pipelines.report.contents import contents_of
from paritygate.pipelines.report.printable import printable
from paritygate.pipelines.report.quantile_strip import WIDTH
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.table import SYMBOLS

__all__ = ["render_html"]


def render_html(report: ReportData) -> str:
    """Return the report as a self-contained HTML page."""
    template = _environment().get_template("report.html.j2")
    return template.render(contents_of(report), symbols=SYMBOLS, strip_width=WIDTH)


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
