"""What people see: tables, progress and plain lines, on standard output and standard error."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.files import storage_errors, write_json_atomically
from paritygate.pipelines.compare.result import NOT_RUN_HERE, ComparisonResult
from paritygate.pipelines.process.child import Progress
from paritygate.signature import is_float_dtype
from paritygate.text import echo, echo_block, one_line, printable
from paritygate.validate.gate.bounds import upper_bound_text

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["PARITY_COLUMNS", "parity_rows", "print_table", "progress_of", "table_text", "write_json"]

PARITY_COLUMNS = (
    "variant",
    "output",
    "rows",
    "mismatches",
    "95 % bound",
    "max diff",
    "min diff",
    "mean diff",
    "std diff",
    "device",
    "evidence",
    "verdict",
)
_STYLES = {
    "pass": "green",
    "fail": "red",
    "error": "red",
    "inconclusive": "yellow",
    "warning": "yellow",
    "edge": "yellow",
    NOT_RUN_HERE: "bright_black",
}
_PLAIN_WIDTH = 160


def parity_rows(variant: str, result: ComparisonResult, evidence: str) -> list[Sequence[str]]:
    """Return the rows of the parity table for one variant, one an output."""
    device = result.candidate.device or "-"
    if not result.outputs:
        return [(variant, "-", str(result.rows), *["-"] * 6, device, evidence, result.verdict_words)]
    rows: list[Sequence[str]] = []
    for name, output in result.outputs.items():
        decision = result.decisions.get(name)
        count = "-" if decision is None else str(decision.mismatches)
        bound = "-" if decision is None else f"< {upper_bound_text(decision.mismatch_rate_upper_95)}"
        if decision is None and not is_float_dtype(output.dtype):
            # Integers are compared exactly: their count is of values that differ.
            count = str(output.mismatches)
        numbers = [output.max_abs_diff, output.min_abs_diff, output.mean_abs_diff, output.std_abs_diff]
        shown = ["-" if number is None else f"{number:.3g}" for number in numbers]
        rows.append((variant, name, str(result.rows), count, bound, *shown, device, evidence, result.verdict_words))
    return rows


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output; as wide as it needs to be where that is no terminal."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if is_terminal else _PLAIN_WIDTH, highlight=False)
    console.print(_table(title, columns, rows))


def table_text(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as `print_table` prints it where standard output is no terminal."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=_PLAIN_WIDTH, highlight=False, force_terminal=False, force_jupyter=False).print(
        _table(title, columns, rows)
    )
    return text.getvalue().rstrip("\n")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    # As Text, in which rich reads no markup.
    table = Table(title=Text(one_line(title)), title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(Text(one_line(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell), style=_STYLES.get(cell, "")) for cell in row))
    return table


@contextlib.contextmanager
def progress_of(what: str, *, is_quiet: bool = False) -> Iterator[Progress]:
    """Show the progress of one piece of work on standard error: a live line on a terminal, plain lines elsewhere."""
    if is_quiet:
        yield lambda *_: None
        return
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text(one_line(what))) as status:
            yield lambda stage, done, total: status.update(
                Text(one_line(f"{what}: {_progress_text(stage, done, total)}"))
            )
        return
    seen: set[str] = set()

    def line(stage: str, done: int, total: int) -> None:
        del done, total
        if stage not in seen:
            seen.add(stage)
            echo(f"{what}: {stage}", err=True)

    yield line


def _progress_text(stage: str, done: int, total: int) -> str:
    if not done:
        return stage
    return f"{stage}, {done} of {total} rows" if total else f"{stage}, {done} rows"


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
        with storage_errors(path):
            text = printable(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
            path.write_text(text + "\n", encoding="utf-8")
        return
    write_json_atomically(path, data)
