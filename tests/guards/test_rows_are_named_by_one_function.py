"""An id of a row in a message is quoted, since what hides ids finds them by their quotes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

_BEFORE = re.compile(r"\b(rows?|ids?) $")


def ids_without_quotes(text: str) -> list[int]:
    """Return the lines where an f-string names a row and does not quote its id."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for before, value in zip(node.values, node.values[1:], strict=False):
            if (
                isinstance(before, ast.Constant)
                and _BEFORE.search(str(before.value))
                and isinstance(value, ast.FormattedValue)
                and value.conversion != ord("r")
                and re.search(r"\bids\b|\brow_ids?\b", ast.unparse(value.value))
            ):
                found.append(value.lineno)
    return found


def test_every_message_quotes_the_ids_of_rows(project_root: Path) -> None:
    files = [path for folder in ("convert", "validate", "pipelines") for path in (project_root / folder).rglob("*.py")]
    wrong = [
        f"{path.relative_to(project_root)}:{line}"
        for path in files
        for line in ids_without_quotes(path.read_text(encoding="utf-8"))
    ]

    assert len(files) > 300
    assert wrong == []


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        ('f"row {rows.ids[0]} alone"', [1]),
        ('f"rows {row_id}"', [1]),
        ('f"row {row_id!r}"', []),
        ('f"row {count} of the batch"', []),
        ('f"{row_name(row_id)} alone"', []),
    ],
)
def test_this_guard_sees_an_id_without_quotes(statement: str, lines: list[int]) -> None:
    assert ids_without_quotes(statement) == lines
