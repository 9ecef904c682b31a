"""A selftest in the terminal: faults by outcome, reasons of misses, and the page's path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paritygate.pipelines.report.figures import shorten
from paritygate.pipelines.report.tables.table import table_of
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_message, print_table
from paritygate.pipelines.report.terminal.screen import path_line, wrapped
from paritygate.pipelines.selftest.page import COLUMNS, lines_below, rows_of
from paritygate.pipelines.selftest.result import NOT_APPLICABLE, SelftestResult

_MOST_LINES = 6
_LENGTH = 230
# Inapplicable faults that are named.
_NAMED = 8


def print_selftest(result: SelftestResult, page: Path, shown: Shown) -> None:
    """Print the outcome of every fault and rewrite; with `-v` also the change and the checks that caught it."""
    if shown.is_quiet:
        print_message(result.summary, err=shown.to_stderr)
        return
    if shown.is_verbose and not shown.to_stderr:
        for title, columns, are_innocent in (
            (f"faults planted into {result.variant} of {result.model}", COLUMNS, False),
            ("equivalent rewrites of it", ("rewrite", *COLUMNS[1:]), True),
        ):
            if rows := rows_of(result, are_innocent=are_innocent):
                print_table(table_of(title, columns, rows))
    print_lines(_lines(result, page, shown.width), err=shown.to_stderr)


def _lines(result: SelftestResult, page: Path, width: int | None) -> Iterator[str]:
    below = list(lines_below(result, most=None if width is None else _NAMED))
    if width is not None:
        yield from wrapped(f"faults planted into {result.variant} of {result.model}", width=width)
        for outcome in dict.fromkeys(plant.outcome for plant in result.plants if plant.outcome != NOT_APPLICABLE):
            names = [plant.name for plant in result.having(outcome)]
            yield from wrapped(f"{outcome} ({len(names)}): {', '.join(names)}", width=width)
        more = len(below) - _MOST_LINES
        below = [shorten(line, _LENGTH) for line in below[:_MOST_LINES]]
        below += [f"{more} more such lines: see the page, or -v"] if more > 0 else []
    for line in (*below, result.summary):
        yield from wrapped(line, width=width)
    yield from path_line("page", page, width)
