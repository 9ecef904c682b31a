"""The report as Markdown, for pull requests and archives: the tables of the HTML report, every foreign text escaped."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

import jinja2
from markupsafe import Markup

from paritygate.pipelines.report.contents import contents_of
from paritygate.pipelines.report.printable import printable
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.table import SYMBOLS, Cell, Table

__all__ = ["escape_markdown", "render_markdown"]

# Entities for what HTML or a mention would be made of, a backslash for what Markdown reads.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=\w):(?=//)|\.(?=\w+\.\w)|[&<>@]")
# What makes a heading, a list, a rule or a quote at the start of a line.
_START = re.compile(r"^(\d+)([.)])|^([#+=-])")


def escape_markdown(text: str) -> str:
    """Return `text` as one line of Markdown that shows exactly it, also within a cell of a table."""
    line = " ".join(printable(text).split())
    escaped = _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)
    return _START.sub(lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", escaped)


def render_markdown(report: ReportData) -> str:
    """Return the report as Markdown with GitHub's tables."""
    template = _environment().get_template("report.md.j2")
    return template.render(contents_of(report))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paritygate.pipelines.report"),
        # What is escaped for Markdown is markup to Jinja2, which therefore leaves it alone.
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["table"] = _table
    environment.filters["verdict"] = _verdict
    environment.filters["command"] = _command
    return environment


def _finalize(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape_markdown(str(value)))  # noqa: S704 - escaped


def _table(table: Table) -> Markup:
    head = [column.title for column in table.columns]
    rule = ["---:" if column.is_figure else "---" for column in table.columns]
    lines = [
        f"**{escape_markdown(table.caption)}**",
        "",
        _line(escape_markdown(title) for title in head),
        _line(rule),
        *(_line(_cell(cell) for cell in row) for row in table.rows),
        "",
    ]
    return Markup("\n".join(lines))  # noqa: S704 - every cell is escaped


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if cell.kind == "status":
        return str(_verdict(cell.text))
    return escape_markdown(f"{cell.text} ({cell.remark})" if cell.remark else cell.text)


def _verdict(word: str) -> Markup:
    return Markup(f"{SYMBOLS[word]} {word}")  # noqa: S704 - one of a few words


def _command(text: str) -> Markup:
    """Return a command as a block of code, behind a fence longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}\n{' '.join(printable(text).split())}\n{fence}")  # noqa: S704 - code shows what it is
