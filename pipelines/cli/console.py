"""What people see: tables, lines and progress, on standard output and standard error."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import BACKENDS, backend_state
from paritygate.errors import UsageError
from paritygate.files import storage_errors, write_json_atomically
from paritygate.pipelines.cli.screen import WIDTH, wrapped
from paritygate.pipelines.report.figures import seconds_words
from paritygate.pipelines.report.tables.table import Cell, Table
from paritygate.text import echo, echo_block, one_line, printable, writing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table as RichTable

__all__ = [
    "OTHER_JSON",
    "Shown",
    "print_errors",
    "print_lines",
    "print_table",
    "progress_of",
    "table_text",
    "write_json",
]

# How to have a file of JSON written elsewhere, for hints.
OTHER_JSON = "name another file with --json"
# The first that a word begins with counts.
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
_PLAIN_WIDTH = 200
# Of a narrower terminal there is no use for words.
_LEAST_WIDTH = 20
# Of a number of columns.
_MOST_DIGITS = 6
# Speed is judged by all of a stage: a variant may take minutes.
_ESTIMATED_OVER_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """How much a command prints, and where.

    Attributes:
        is_quiet: Whether the line with the verdict is all, beside errors.
        is_verbose: Whether all tables and remarks are printed as well, as wide as they are.
        to_stderr: Whether it goes to standard error, since standard output holds JSON.
    """

    is_quiet: bool = False
    is_verbose: bool = False
    to_stderr: bool = False

    @classmethod
    def of(cls, *, quiet: bool, verbose: bool, json_target: str | None) -> Shown:
        """Return what options ask for.

        Raises:
            UsageError: They contradict each other.
        """
        if quiet and verbose:
            msg = "--quiet and --verbose contradict each other"
            raise UsageError(msg, hint="give one of them, or neither")
        return cls(is_quiet=quiet, is_verbose=verbose, to_stderr=json_target == "-")

    @property
    def width(self) -> int | None:
        """How wide lines may be; None for as wide as they are."""
        return None if self.is_verbose else WIDTH


def print_table(table: Table) -> None:
    """Print a table on standard output; as wide as it needs to be where that is no terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
    with writing(err=False):
        console.print(_drawn(table))


def table_text(table: Table) -> str:
    """Return a table as `print_table` prints it where standard output is no terminal."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=_PLAIN_WIDTH, highlight=False, force_terminal=False, force_jupyter=False)
    console.print(_drawn(table))
    return text.getvalue().rstrip("\n")


def _drawn(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    # As Text, in which rich reads no markup.
    drawn = RichTable(title=Text(one_line(table.caption)), title_justify="left", title_style="bold")
    for column in table.columns:
        drawn.add_column(Text(one_line(column.title)), overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(one_line(_words(cell)), style=_style_of(cell.text)) for cell in row))
    return drawn


def _words(cell: Cell) -> str:
    return f"{cell.text} ({cell.remark})" if cell.remark else cell.text


def _style_of(words: str) -> str:
    return next((style for word, style in _STYLES.items() if words.startswith(word)), "")


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines of a screen; on a terminal the verdicts are coloured."""
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
    """Print errors and their hints on standard error: as wide as a terminal there, else within 80 columns.

    Args:
        messages: Each begins a line.
        is_verbose: Whether each is one line, as it is with `-v`.
    """
    width = None if is_verbose else _width_of_errors()
    print_lines((line for message in messages for line in wrapped(message, width=width)), err=True)


def _width_of_errors() -> int:
    # As other programs do, which reckon with a terminal that cannot say it.
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and len(said) <= _MOST_DIGITS and int(said):
        return max(int(said), _LEAST_WIDTH)
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return WIDTH
    return max(width, _LEAST_WIDTH) if width else WIDTH


@contextlib.contextmanager
def progress_of(what: str, *, is_quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress on standard error: one moving line on a terminal, one line for each stage elsewhere.

    What is yielded takes stages as well, by `paritygate.pipelines.process.stages`.
    """
    if is_quiet:
        yield lambda *_: None
        return
    _warn_of_backends()
    if not sys.stderr.isatty():
        yield _Lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=10),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        expand=True,
        transient=True,
        speed_estimate_period=_ESTIMATED_OVER_S,
    ) as progress:
        yield _Line(what, progress)


@functools.cache
def _warn_of_backends() -> None:
    """Warn of several builds of a runtime, once a process."""
    for warning in filter(None, (backend_state(name).warning for name in BACKENDS if BACKENDS[name].builds)):
        print_lines(wrapped(f"warning: {warning}"), err=True)


class _Lines:
    """Prints what each stage did, and how long it took."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Say nothing of what is done within a stage."""

    def begin(self, doing: str, names: Sequence[str]) -> None:
        """Take the time."""
        del doing, names
        self._begin = time.monotonic()

    def end(self, did: str) -> None:
        """Print what the stage did."""
        if did:
            for line in wrapped(f"{self._what}: {did} in {seconds_words(time.monotonic() - self._begin)}"):
                echo(line, err=True)


class _Line:
    """Moves one line: what is done, the share of the stage, and the time left."""

    def __init__(self, what: str, progress: Progress) -> None:
        self._what = what
        self._doing = ""
        self._names: Sequence[str] = ()
        self._progress = progress
        self._task: TaskID | None = None
        self._share = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show what is done within the stage."""
        within = done / total if total else 0.0
        name = stage.partition(": ")[0]
        if name in self._names:
            within = (self._names.index(name) + within) / len(self._names)
        # How many rows are asked is not known before: the line does not go back for it.
        self._share = max(self._share, min(within, 1.0))
        self._show(stage)

    def begin(self, doing: str, names: Sequence[str]) -> None:
        """Show that a stage begins."""
        self._doing, self._names, self._share = doing, names, 0.0
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = None
        self._show("")

    def end(self, did: str) -> None:
        """Leave the line until the next stage begins."""

    def _show(self, stage: str) -> None:
        words = one_line(": ".join(filter(None, (self._what, self._doing, stage))))
        if self._task is None:
            # Without an end, which the bar shows, until a share of the stage is known.
            self._task = self._progress.add_task(words, total=None)
        if self._share:
            self._progress.update(self._task, total=1.0)
        self._progress.update(self._task, description=words, completed=self._share)


def write_json(target: str | None, data: Mapping[str, Any]) -> None:
    """Write JSON data to a file, or to standard output for `-`, or nowhere for None.

    Raises:
        StorageError: The file cannot be written.
    """
    if target is None:
        return
    if target == "-":
        echo_block(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        return
    path = Path(target)
    if path.exists() and not path.is_file():
        # A device or a pipe cannot be replaced by a file.
        with storage_errors(path, elsewhere=OTHER_JSON):
            text = printable(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
            path.write_text(text + "\n", encoding="utf-8")
        return
    write_json_atomically(path, data, elsewhere=OTHER_JSON)
