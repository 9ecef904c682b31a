"""Print the comparison of two releases in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from paritygate.pipelines.release.diff import DiffRow, DiffSide, ReleaseDiff
from paritygate.pipelines.report.figures import number, size_words
from paritygate.pipelines.report.tables.table import Row, table_of, text
from paritygate.pipelines.report.terminal.printing import Shown, print_lines
from paritygate.pipelines.report.terminal.screen import screen_table, wrapped

_COLUMNS = ("variant", "what", ">was", ">is")
_DIGEST_SHOWN, _DATE = 19, 10
_OF_RULES = frozenset({"rule", "tolerance"})


def print_diff(difference: ReleaseDiff, shown: Shown) -> None:
    """Print what differs, and with -v what is the same as well."""
    print_lines(_lines(difference, shown), err=shown.to_stderr)


def _lines(difference: ReleaseDiff, shown: Shown) -> Iterator[str]:
    rows = [row for row in difference.rows if row.is_changed or shown.is_verbose]
    caption = f"{_named(difference.was)} and {_named(difference.now)}"
    if rows:
        table = table_of(caption, _COLUMNS, (_cells(row) for row in rows))
        yield from screen_table(table, shown.width)
    else:
        yield from wrapped(f"{caption}: no difference", width=shown.width)
    if any(row.is_changed and row.figure in _OF_RULES for row in rows):
        for side in (difference.was, difference.now):
            yield from wrapped(_released(side), width=shown.width)
            for words in side.asked_less:
                yield from wrapped(f"version {side.version} checks less: {words}", width=shown.width)
    for words in difference.not_compared:
        yield from wrapped(f"not compared: {words}", width=shown.width)
    for words in difference.signature:
        yield from wrapped(f"changed: {words}", width=shown.width)
    if not difference.signature:
        yield from wrapped("inputs and outputs: no change", width=shown.width)


def _released(side: DiffSide) -> str:
    by = f" by {side.who}" if side.who else ""
    return f"version {side.version} was released{by} on {side.created[:_DATE]}; reason: {side.reason or 'none'}"


def _named(side: DiffSide) -> str:
    aliases = f" ({', '.join(side.aliases)})" if side.aliases else ""
    return f"{side.model} version {side.version}{aliases}"


def _cells(row: DiffRow) -> Row:
    return ((row.variant or "all"), text(row.figure, remark=row.about), _value(row, row.was), _value(row, row.now))


def _value(row: DiffRow, value: object) -> str:
    if row.figure == "size_bytes" and isinstance(value, int):
        return size_words(value)
    if isinstance(value, str):
        return value[:_DIGEST_SHOWN]
    if isinstance(value, int | float | None) and not isinstance(value, bool):
        return number(value, missing="-")
    return str(value)
