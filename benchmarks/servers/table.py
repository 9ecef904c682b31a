"""Write the table of docs/results-servers.md from what the tests of `make servers-test` found: `table.py`.

Nothing is written by hand: a server of which nothing was found stands there as not run, with the reason.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ENVIRONMENTS", "FOUND", "NAMES", "table"]

ENVIRONMENTS = Path(".venv-servers")
FOUND = Path("build/servers")
_PAGE = Path("docs/results-servers.md")
NAMES = {
    "fastapi": "FastAPI",
    "litserve": "LitServe",
    "bentoml": "BentoML",
    "mlserver": "MLServer",
    "kserve": "KServe",
    "ray": "Ray Serve",
}
_HEAD = (
    "| server | version | protocol | what was loaded | rows | largest difference | verdict | describes the model "
    "| another model in its place |\n|---|---|---|---|---|---|---|---|---|\n"
)
# The table as it stands in the page.
_TABLE = re.compile(r"^\| server \| version .*\n(?:\|.*\n)*", re.MULTILINE)


def table(found: Mapping[str, Mapping[str, Any]], reasons: Mapping[str, str]) -> str:
    """Return the table.

    Args:
        found: What was found of each server that was run, by its name.
        reasons: Why each of the others was not.
    """
    rows = [_row(NAMES[name], found[name]) if name in found else _not_run(name, reasons[name]) for name in NAMES]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, said: Mapping[str, Any]) -> tuple[str, ...]:
    other = said["other_model"]
    return (
        name,
        said["version"],
        f"V2: {', '.join(said['protocols'])}",
        said["loaded"],
        str(said["rows"]),
        f"{said['max_abs_diff']:.1e}",
        said["verdict"],
        "yes" if said["is_described"] else "no",
        f"{other['verdict']}: off by {other['max_abs_diff']:.1f}; other bytes: {said['other_bytes']}",
    )


def _not_run(name: str, reason: str) -> tuple[str, ...]:
    return (NAMES[name], f"not run: {reason}", *[""] * 7)


def main() -> None:
    """Write the table into the page.

    Raises:
        SystemExit: The page has no table.
    """
    found = {path.stem: json.loads(path.read_text()) for path in sorted(FOUND.glob("*.json"))}
    reasons = {}
    for name in NAMES:
        is_installed = (ENVIRONMENTS / name / ".installed").is_file()
        reasons[name] = "its test did not pass" if is_installed else f"there is no {ENVIRONMENTS}/{name}"
    text, count = _TABLE.subn(lambda _: table(found, reasons), _PAGE.read_text())
    if count != 1:
        sys.exit(f"{_PAGE} holds {count} tables of servers, and is to hold one")
    _PAGE.write_text(text)


if __name__ == "__main__":
    main()
