"""The report as Markdown, for pull requests and archives: the tables of the HTML report, every foreign text escaped."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

import jinja2

from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.sections import contents_of
from paritygate.pipelines.report.tables.table import SYMBOLS, Cell, Table
from paritygate.text import printable

__all__ = ["escape_markdown", "render_markdown"]

# Entities for what HTML or a mention would be made of, a backslash for what Markdown reads.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
# An underscore within a word is an underscore; `://` and `www.` would make a link of what stands around them.
_SPECIAL = re.compile(r"[\\`*\[\]|~$&<>@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
# What makes a heading, a list or a rule at the start of a line.
_START = re.compile(r"^(\d*)([.)]|[#=+-])(?=[#=\s-]|$)")


def escape_markdown(text: str) -> str:
    """Return `text` as one line of Markdown that shows exactly it, runs of space as one."""
    escaped = _escape_cell(text)
    return _START.sub(lambda found: f"{found[1]}\\{found[2]}", escaped)


def _escape_cell(text: str) -> str:
    """Return `text` for the cell of a table, where nothing is at the start of a line."""
    line = " ".join(printable(text).split())
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)


def render_markdown(report: ReportData) -> str:
    """Return the report as Markdown with GitHub's tables."""
    template = _environment().get_template("report.md.j2")
    return template.render(contents_of(report))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paritygate.pipelines.report"),
        # What is escaped for Markdown is safe to Jinja2, which therefore leaves it alone.
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


class _Markdown(str):
    """Text that is Markdown already: Jinja2 asks for `__html__` before it escapes."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def _finalize(value: object) -> object:
    return value if hasattr(value, "__html__") else _Markdown(escape_markdown(str(value)))


def _table(table: Table) -> _Markdown:
    head = [column.title for column in table.columns]
    rule = ["---:" if column.is_figure else "---" for column in table.columns]
    lines = [
        f"**{escape_markdown(table.caption)}**",
        "",
        _line(_escape_cell(title) for title in head),
        _line(rule),
        *(_line(_cell(cell) for cell in row) for row in table.rows),
        "",
    ]
    return _Markdown("\n".join(lines))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if cell.kind == "status":
        return str(_verdict(cell.text)) + (f" ({_escape_cell(cell.remark)})" if cell.remark else "")
    return _escape_cell(f"{cell.text} ({cell.remark})" if cell.remark else cell.text)


def _verdict(word: str) -> _Markdown:
    return _Markdown(f"{SYMBOLS[word]} {word}")


def _command(text: str) -> _Markdown:
    """Return a command as a block of code, behind a fence longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return _Markdown(f"{fence}\n{' '.join(printable(text).split())}\n{fence}")
