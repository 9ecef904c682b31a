"""Many runs in the terminal: a line when each ends, and those that need attention first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paritygate.pipelines.fleet.fleet import FleetEntry, entries_in_order
from paritygate.pipelines.report.figures import seconds_words, shorten
from paritygate.pipelines.report.fleet import counts_of, verdict_of
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_message
from paritygate.pipelines.report.terminal.screen import WIDTH, wrapped
from paritygate.text import from_here, one_line

_MOST_SHOWN = 20
_LENGTH = 220


def print_ended(entry: FleetEntry, at: int, total: int) -> None:
    """Print that the run of a spec has ended."""
    took = f" in {seconds_words(entry.seconds)}" if entry.log else ", nothing has changed"
    print_lines([f"{at} of {total}: {one_line(entry.model)}: {verdict_of(entry)}{took}"], err=True)


def print_fleet(entries: Sequence[FleetEntry], page: Path, shown: Shown) -> None:
    """Print how many runs ended in each way, and those that need attention."""
    if shown.is_quiet:
        print_message(counts_of(entries), err=shown.to_stderr)
        return
    rows = list(entries_in_order(entries))
    most = len(rows) if shown.is_verbose else _MOST_SHOWN
    lines = [counts_of(entries)]
    for entry in rows[:most]:
        lines += wrapped(
            f"{verdict_of(entry)}: {entry.model}: {shorten(one_line(entry.why), _LENGTH)}", width=shown.width
        )
        if entry.hint:
            lines += [
                f"  {line}" for line in wrapped(f"hint: {shorten(one_line(entry.hint), _LENGTH)}", width=WIDTH - 2)
            ]
    if len(rows) > most:
        lines += wrapped(f"{len(rows) - most} more are in the page; -v shows all", width=shown.width)
    lines += wrapped(f"page: {from_here(page)}", width=shown.width)
    print_lines(lines, err=shown.to_stderr)
