"""Check that a demo printed what the README shows: the same variants, verdicts and mismatches.

    python .ci/check_demo.py README.md demo.txt

The README shows what the run prints in two blocks. The rows of the first one have to be the same. Those of the second
one hold what processors compute differently, and what some do not run at all: of these the variants alone are compared.
Differences, speeds and the variant that was released differ from machine to machine, and are not compared.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

_TITLE = "klue-sts against its"
_END = "verdict: "
_COLUMNS = ["verdict", "variant", "mismatches"]


@dataclass(kw_only=True)
class Screen:
    """The rows of the screen: those before the first line that ends a block, and the names of those after it."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    names_after: list[str] = field(default_factory=list)


def screen_of(text: str) -> Screen:
    """Return the rows in a text, as far as they are compared; an empty screen where there are none."""
    screen = Screen()
    lines = iter(text.splitlines())
    if not any(line.startswith(_TITLE) for line in lines):
        return screen
    is_first_block, width = True, 0
    for line in lines:
        cells = re.split(r" {2,}", line.strip())
        if line.startswith(_END):
            break
        if cells[: len(_COLUMNS)] == _COLUMNS:
            width = len(cells)
        elif line.startswith("```"):
            is_first_block = False
        elif width and len(cells) >= width and not line.startswith(" "):
            if is_first_block:
                screen.rows.append(tuple(cells[: len(_COLUMNS)]))
            else:
                screen.names_after.append(cells[1])
    return screen


def main(readme: str, demo: str) -> int:
    """Print how the two differ and return 1; return 0 if they do not."""
    shown = screen_of(Path(readme).read_text(encoding="utf-8"))
    printed = screen_of(Path(demo).read_text(encoding="utf-8"))
    if not shown.rows:
        print(f"{readme} shows no rows below {_TITLE!r}: there is nothing to hold the demo against", file=sys.stderr)
        return 1
    count = len(shown.rows)
    names_after = [row[1] for row in printed.rows[count:]]
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
