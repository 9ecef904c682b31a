"""Check that a demo printed what the README shows: the same variants, rows, mismatches, evidence and verdicts.

    python .ci/check_demo.py README.md demo.txt

The README shows the parity table in two blocks. The rows of the first one have to be the same. Those of the second one
hold what processors compute differently, and what some do not run at all: of these the variants alone are compared.
Differences, speeds and the variant that was released differ from machine to machine, and are not compared.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

_TITLE = "klue-sts: parity with its"
_NEXT = "klue-sts: speed beside its"
_COMPARED = ("variant", "output", "rows", "mismatches", "evidence", "verdict")


@dataclass(kw_only=True)
class Table:
    """The parity table: the rows before the first line that ends a block, and those after it."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    names_after: list[str] = field(default_factory=list)


def parity_table(text: str) -> Table:
    """Return the parity table in a text, as far as it is compared; an empty one where there is none."""
    table = Table()
    lines = iter(text.splitlines())
    if not any(line.startswith(_TITLE) for line in lines):
        return table
    columns: list[str] = []
    is_first_block = True
    for line in lines:
        if line.startswith(("└", _NEXT)):
            break
        if line.startswith("┃"):
            columns = _cells(line, "┃")
        elif line.startswith("│"):
            row = dict(zip(columns, _cells(line, "│"), strict=True))
            if is_first_block:
                table.rows.append(tuple(row[name] for name in _COMPARED))
            else:
                table.names_after.append(row["variant"])
        elif line.startswith("```"):
            is_first_block = False
    return table


def _cells(line: str, border: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip(border).split(border)]


def main(readme: str, demo: str) -> int:
    """Print how the two differ and return 1; return 0 if they do not."""
    shown = parity_table(Path(readme).read_text(encoding="utf-8"))
    printed = parity_table(Path(demo).read_text(encoding="utf-8"))
    if not shown.rows:
        print(f"{readme} shows no table {_TITLE!r}: there is nothing to hold the demo against", file=sys.stderr)
        return 1
    count = len(shown.rows)
    names_after = [row[0] for row in printed.rows[count:]]
    if shown.rows == printed.rows[:count] and shown.names_after == names_after:
        print(f"the demo printed the {count + len(names_after)} rows that {readme} shows")
        return 0
    for row in shown.rows:
        if row not in printed.rows:
            print(f"only in {readme}: {' | '.join(row)}", file=sys.stderr)
    for row in printed.rows[:count]:
        if row not in shown.rows:
            print(f"only in the demo: {' | '.join(row)}", file=sys.stderr)
    print(f"further rows in {readme}: {', '.join(shown.names_after)}", file=sys.stderr)
    print(f"further rows in the demo: {', '.join(names_after)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
