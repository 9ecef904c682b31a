"""What the tool prints passes `paritygate.text`, where hidden characters are written out: nothing goes past it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

# The tables and the live line of rich, whose text is made fit to look at before.
DRAWS = {"pipelines/cli/console.py", "pipelines/report/terminal/printing.py"}
PRINTERS = {
    "print",
    "click.echo",
    "click.secho",
    "click.echo_via_pager",
    "sys.stdout.write",
    "sys.stderr.write",
    "traceback.print_exc",
    "traceback.print_exception",
}
# Child processes print into their logs, which messages quote by `printable` of `text`.
PRINT_INTO_A_LOG = ("pipelines/process/child_main.py", "pipelines/jobs/")


def calls_that_print(text: str) -> list[str]:
    """Return `line: call` of every call that prints by itself, and of rich where it is imported."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTERS:
            found.append(f"{node.lineno}: {ast.unparse(node.func)}")
        if isinstance(node, ast.ImportFrom) and node.module == "rich.console":
            found.append(f"{node.lineno}: rich")
    return found


def test_nothing_is_printed_but_by_the_one_function(project_root: Path) -> None:
    files = [*(project_root / "pipelines").rglob("*.py"), project_root / "src/paritygate/__main__.py"]
    names = [str(path.relative_to(project_root)) for path in files]
    wrong = [
        f"{name}:{call}"
        for name, path in zip(names, files, strict=True)
        if not name.startswith(PRINT_INTO_A_LOG)
        for call in calls_that_print(path.read_text(encoding="utf-8"))
        if not (name in DRAWS and call.endswith("rich"))
    ]

    assert len(files) > 100
    assert wrong == []


@pytest.mark.parametrize(
    "statement",
    [
        "print(name)",
        "click.echo(name, err=True)",
        "sys.stderr.write(name)",
        "def late():\n    traceback.print_exc()",
        "from rich.console import Console",
    ],
)
def test_this_guard_sees_what_prints(statement: str) -> None:
    assert len(calls_that_print(statement)) == 1


@pytest.mark.parametrize("statement", ["echo(name)", "stream.write(name)", "print_table(title, columns, rows)"])
def test_this_guard_lets_the_one_function_pass(statement: str) -> None:
    assert calls_that_print(statement) == []
