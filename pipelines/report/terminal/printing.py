"""Print on standard output and standard error: tables, lines of a screen, and errors."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paritygate.errors import UsageError
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.terminal.screen import WIDTH, screen_table, wrapped
from paritygate.text import echo, one_line, writing

# The first match of a word's beginning counts.
_STYLES = {
    "pass, edge": "yellow",
    "pass": "green",
    "fail": "red",
    "worse": "red",
    "ok": "green",
    "error": "red",
    "inconclusive": "yellow",
    "warning": "yellow",
    "edge": "yellow",
    "not run here": "bright_black",
    "not available": "bright_black",
}
_VERDICT = "verdict: "
# Between two columns.
_GAP = 2
# A narrower terminal is useless for text.
_LEAST_WIDTH = 20
# For a number of columns.
_MOST_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """The amount and the place of a command's output.

    `is_quiet` prints only the verdict, besides errors; `is_verbose` everything in full width. `to_stderr` is set if
    standard output holds JSON.
    """

    is_quiet: bool = False
    is_verbose: bool = False
    to_stderr: bool = False

    def __post_init__(self) -> None:
        if self.is_quiet and self.is_verbose:
            raise UsageError("--quiet and --verbose contradict each other", hint="give one of them, or neither")

    @property
    def width(self) -> int | None:
        """The width of lines; None for any."""
        return None if self.is_verbose else WIDTH


def print_table(table: Table) -> None:
    """Print a table on standard output: in full width, or on a terminal in parts that fit."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    parts = [table] if width is None else fitting_parts(table, width)
    print_lines(line for part in parts for line in screen_table(part, width))


def fitting_parts(table: Table, width: int) -> list[Table]:
    """Return the table as several of this width, each with the first columns; a column that is too wide is folded."""
    from rich.cells import cell_len

    names = next((at for at, column in enumerate(table.columns) if column.is_figure), 1) or 1
    texts = [[column.title for column in table.columns], *([cell.text for cell in row] for row in table.rows)]
    widths = [max(map(cell_len, column)) + _GAP for column in zip(*texts, strict=True)]
    if sum(widths[:names]) > width // 2:
        names = 1
    parts: list[list[int]] = []
    taken = width
    for at in range(names, len(widths)):
        taken += widths[at]
        if taken + 1 > width:
            parts.append([*range(names)])
            taken = sum(widths[:names]) + widths[at]
        parts[-1].append(at)
    if len(parts) <= 1:
        return [table]
    return [
        replace(
            table,
            caption=table.caption if part is parts[0] else "",
            columns=tuple(table.columns[at] for at in part),
            rows=tuple(tuple(row[at] for at in part) for row in table.rows),
        )
        for part in parts
    ]


def _style_of(words: str) -> str:
    return next((style for word, style in _STYLES.items() if words.startswith(word)), "")


def print_message(message: str, *, err: bool = False) -> None:
    """Print one message: on a terminal in lines that fit, else as one line, which programs read."""
    stream = sys.stderr if err else sys.stdout
    print_lines(wrapped(message, width=WIDTH if stream.isatty() else None), err=err)


def print_outcome(verdict: str, facts: Iterable[str | Table | Sequence[str]], shown: Shown) -> None:
    """Print facts, which may be tables or finished lines, and then the verdict; when quiet, the verdict alone."""
    if shown.is_quiet:
        print_message(verdict, err=shown.to_stderr)
        return
    print_lines((line for fact in (*facts, verdict) for line in _lines_of(fact, shown.width)), err=shown.to_stderr)


def _lines_of(fact: str | Table | Sequence[str], width: int | None) -> Iterable[str]:
    if isinstance(fact, str):
        return wrapped(fact, width=width)
    return screen_table(fact, width) if isinstance(fact, Table) else fact


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines of a screen, with coloured verdicts on a terminal."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        for line in lines:
            echo(line, err=err)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for line in map(one_line, lines):
        shown, start = Text(line), len(_VERDICT) if line.startswith(_VERDICT) else 0
        style = _style_of(line[start:])
        word = next((word for word in _STYLES if line[start:].startswith(word)), "")
        shown.stylize(style, start, start + len(word))
        with writing(err=err):
            console.print(shown, soft_wrap=True)


def print_errors(*messages: str, is_verbose: bool = False) -> None:
    """Print errors and hints on standard error, in the terminal's width or 80 columns; one line each if verbose."""
    width = None if is_verbose else _width_of_errors()
    print_lines((line for message in messages for line in wrapped(message, width=width)), err=True)


def _width_of_errors() -> int:
    # Other programs trust this variable too, if a terminal has no size.
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) <= _MOST_DIGITS and int(columns):
        return max(int(columns), _LEAST_WIDTH)
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return WIDTH
    return max(width, _LEAST_WIDTH) if width else WIDTH
