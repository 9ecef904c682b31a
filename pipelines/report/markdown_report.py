"""The report as Markdown, for pull requests and archives, with every foreign text escaped."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.pipelines.compare.result import ComparisonResult, reasons
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.sections import VariantSection, contents_of
from paritygate.pipelines.report.summary import comparison_remarks, comparison_summary
from paritygate.pipelines.report.tables.table import Cell, Table, symbol_of
from paritygate.pipelines.report.templating import Markup, template_environment
from paritygate.text import printable

if TYPE_CHECKING:
    import jinja2

    from paritygate.pipelines.report.against.side_by_side import SideBySide

_LONGEST = 60_000
_MOST_ROWS = 40
_CUT = f"\n\nThis page is cut off at {_LONGEST:,} characters: the HTML report has all of it.\n"
_CUT_COMPARISON = f"\n\nThis page is cut off at {_LONGEST:,} characters: `compare --verbose` prints all of it.\n"
# Entities for HTML and mentions; a backslash escapes Markdown.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
# Underscores within words are plain; `://` and `www.` would turn their surroundings into links. The pattern begins with
# a set of characters, which the search finds fast.
_SPECIAL = re.compile(r"[\\`*\[\]|~$&<>@_:.](?<![^\W_]_(?=[^\W_]))(?<!:(?!//))(?<!(?<!www)\.)")
# Beginnings of headings, lists and rules.
_START = re.compile(r"^(\d*)([.)]|[#=+-])(?=[#=\s-]|$)")


def escape_markdown(text: str) -> str:
    """Return `text` as one line of Markdown that shows exactly it, with runs of space as one."""
    escaped = _escape_cell(text)
    return _START.sub(lambda found: f"{found[1]}\\{found[2]}", escaped)


def _escape_cell(text: str) -> str:
    """Return `text` for a table cell, which is never at the start of a line."""
    line = " ".join(printable(text).split())
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)


def render_markdown(report: ReportData) -> str:
    """Return the report as Markdown with GitHub's tables, in at most 60,000 characters.

    Variants that did not pass come first and in full. A passing variant without room keeps its rows in the tables, and
    the page names it. A comment on GitHub takes 65,536 characters.
    """
    contents = contents_of(report)
    sections: tuple[VariantSection, ...] = contents["sections"]
    template = _environment().get_template("variant.md.j2")
    texts = {section.anchor: template.render(section=section) for section in sections}
    room = _LONGEST - len(_page(contents, sections, {}))
    fitting = {}
    for section in sorted(sections, key=lambda section: not section.is_open):
        if len(texts[section.anchor]) < room:
            fitting[section.anchor] = texts[section.anchor]
            room -= len(texts[section.anchor]) + 1
    return _cut_off(_page(contents, sections, fitting), _CUT)


def render_markdown_against(both: SideBySide) -> str:
    """Return the comparison of two runs as Markdown, in at most 60,000 characters."""
    return _cut_off(_environment().get_template("against.md.j2").render(both=both), _CUT)


def render_comparison(result: ComparisonResult) -> str:
    """Return one comparison as Markdown in at most 60,000 characters: the terminal's tables, and every reason."""
    # The reasons include warnings and suspected causes of differences.
    remarks = [
        ": ".join(filter(None, (remark.kind, *remark.names, remark.words)))
        for remark in comparison_remarks(result)
        if remark.kind not in {"warning", "looks like"}
    ]
    causes = [f"cause: {words}" for words in result.named_causes]
    if result.error is not None:
        remarks = [
            f"error: {result.error.message}",
            *filter(None, [result.error.hint and f"hint: {result.error.hint}"]),
        ]
    lines = [
        f"# {_verdict(result.verdict)}: {escape_markdown(f'{result.candidate.name} against {result.reference.name}')}",
        "",
        _table(comparison_summary(result)),
        *(
            f"- {escape_markdown(words)}"
            for words in dict.fromkeys((*causes, *reasons(result, with_findings=False), *remarks))
        ),
    ]
    return _cut_off("\n".join(lines) + "\n", _CUT_COMPARISON)


def _cut_off(text: str, note: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return text[: text.rindex("\n", 0, _LONGEST - len(note))] + note


def _page(contents: Mapping[str, Any], sections: Iterable[VariantSection], told: Mapping[str, str]) -> str:
    return (
        _environment()
        .get_template("report.md.j2")
        .render(
            contents,
            longest=f"{_LONGEST:,}",
            most_rows=_MOST_ROWS,
            told=[Markup(told[section.anchor]) for section in sections if section.anchor in told],
            untold=[section.variant.name for section in sections if section.anchor not in told],
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    # Text escaped for Markdown is marked as safe for Jinja2.
    environment = template_environment(lambda text: Markup(escape_markdown(text)))
    environment.filters["table"] = _table
    environment.filters["verdict"] = _verdict
    environment.filters["command"] = _command
    environment.filters["first_ones"] = lambda found: found[:_MOST_ROWS]
    return environment


def _table(table: Table) -> Markup:
    head = [column.title for column in table.columns]
    rule = ["---:" if column.is_figure else "---" for column in table.columns]
    lines = [
        f"**{escape_markdown(table.caption)}**",
        "",
        _line(_escape_cell(title) for title in head),
        _line(rule),
        *(_line(_cell(cell) for cell in row) for row in table.rows[:_MOST_ROWS]),
        "",
    ]
    if len(table.rows) > _MOST_ROWS:
        lines += [f"and {len(table.rows) - _MOST_ROWS} more rows, which the HTML report has", ""]
    return Markup("\n".join(lines))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if cell.kind == "status":
        return f"{cell.symbol} {cell.text}" + (f" ({_escape_cell(cell.remark)})" if cell.remark else "")
    return _escape_cell(f"{cell.text} ({cell.remark})" if cell.remark else cell.text)


def _verdict(word: str) -> Markup:
    return Markup(f"{symbol_of(word)} {word}")


def _command(text: str) -> Markup:
    """Return a command as a block of code, with a fence longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}\n{' '.join(printable(text).split())}\n{fence}")
