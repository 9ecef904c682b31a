"""The report as one HTML file: it loads and executes nothing, and escapes every foreign text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paritygate.pipelines.report.html_page import html_page
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.sections import VariantSection, contents_of
from paritygate.pipelines.report.templating import Markup

if TYPE_CHECKING:
    from paritygate.pipelines.report.against.side_by_side import SideBySide

_MOST_BYTES = 2_000_000


def render_html(report: ReportData) -> str:
    """Return the report as a self-contained HTML page of at most 2 MB.

    If everything does not fit, tables come first for variants that did not pass, then for the others. Drawings follow
    as far as there is room. The page names omitted variants, whose rows stay in its tables.
    """
    contents = contents_of(report)
    speed = contents["speed"]
    contents["layout"] = None
    if speed is not None and speed["tradeoff"].points:
        from paritygate.pipelines.report.tradeoff.layout import layout_of

        contents["layout"] = layout_of(speed["tradeoff"].points)
    sections: tuple[VariantSection, ...] = contents["sections"]
    page = html_page("report", **contents, told={item.anchor: _told(item, is_drawn=True) for item in sections})
    if len(page.encode()) <= _MOST_BYTES:
        return page
    room = _MOST_BYTES - len(html_page("report", **contents, told={}).encode())
    return html_page("report", **contents, told=_what_fits(sections, room))


def _what_fits(sections: Sequence[VariantSection], room: int) -> dict[str, Markup]:
    """Return the sections that fit into this many bytes: the tables of all come before the first drawing."""
    first_ones = sorted(sections, key=lambda section: not section.is_open)
    texts: dict[str, Markup] = {}
    for is_drawn in (False, True):
        for section in first_ones:
            text = _told(section, is_drawn=is_drawn)
            size = len(text.encode()) - len(texts.get(section.anchor, "").encode())
            if size > room or (is_drawn and section.anchor not in texts):
                break
            texts[section.anchor] = text
            room -= size
    return texts


def render_html_against(both: SideBySide) -> str:
    """Return the comparison of two runs as a self-contained HTML page."""
    return html_page("against", both=both)


def _told(section: VariantSection, *, is_drawn: bool) -> Markup:
    return Markup(html_page("variant", section=section, is_drawn=is_drawn))
