"""Check that a demo printed what the README shows: the same variants, rows, mismatches, evidence and verdicts.

    python .ci/check_demo.py README.md demo.txt

Differences, speeds and the variant that was released are not compared: they differ from machine to machine. So does
what a processor can run at all: a variant that the demo lists as `not run here` is listed, and no more is asked of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_TITLE = "klue-sts: parity with its"
_NOT_RUN, _EMULATED = "not run here", "emulated"
_COMPARED = ("variant", "output", "rows", "mismatches", "evidence", "verdict")


def parity_rows(text: str) -> list[tuple[str, ...]]:
    """Return the rows of the parity table in a text, as far as they are compared; none where there is no such table."""
    lines = iter(text.splitlines())
    if not any(line.startswith(_TITLE) for line in lines):
        return []
    next(lines)
    columns = _cells(next(lines), "┃")
    found = []
    for line in lines:
        if line.startswith("└"):
            break
        if line.startswith("│"):
            row = dict(zip(columns, _cells(line, "│"), strict=True))
            found.append(tuple(row[name] for name in _COMPARED))
    return found


def _cells(line: str, border: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip(border).split(border)]


def main(readme: str, demo: str) -> int:
    """Print how the two differ and return 1; return 0 if they do not."""
    shown = parity_rows(Path(readme).read_text(encoding="utf-8"))
    printed = parity_rows(Path(demo).read_text(encoding="utf-8"))
    if not shown:
        print(f"{readme} shows no table {_TITLE!r}: there is nothing to hold the demo against", file=sys.stderr)
        return 1
    not_run = {row[0] for row in printed if row[-1] == _NOT_RUN} & {row[0] for row in shown}
    # What stands for such a variant as emulated ran all the same.
    shown, printed = (
        [row for row in rows if row[0] not in not_run or row[-2] == _EMULATED] for rows in (shown, printed)
    )
    if shown == printed:
        print(f"the demo printed the {len(shown)} rows that {readme} shows")
        return 0
    for row in shown:
        if row not in printed:
            print(f"only in {readme}: {' | '.join(row)}", file=sys.stderr)
    for row in printed:
        if row not in shown:
            print(f"only in the demo: {' | '.join(row)}", file=sys.stderr)
    print(f"the demo printed {len(printed)} rows, {readme} shows {len(shown)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
