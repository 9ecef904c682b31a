"""A command on a repository that a message prints is made in one place, which names the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Those that take --repository, and have no run folder that says which repository is meant.
COMMAND = re.compile(
    r"convert-and-validate (alias|list|rollback|show|verify|triton|kserve|tfserving|ovms|tune|views)\b"
)


def commands_written_out(text: str) -> Iterator[int]:
    """Yield the lines of a module on which a text holds such a command; docstrings are not printed as messages."""
    tree = ast.parse(text)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if is_text and COMMAND.search(str(node.value)):  # type: ignore[attr-defined]  # a constant has a value
            yield node.lineno  # type: ignore[attr-defined]  # and a line


def test_no_message_writes_such_a_command_out(project_root: Path) -> None:
    found = {
        f"{path.relative_to(project_root)}:{line}"
        for folder in ("src/paritygate", "pipelines", "convert", "validate")
        for path in (project_root / folder).rglob("*.py")
        # Parsing takes long, and few modules name the tool.
        if "convert-and-validate" in (text := path.read_text(encoding="utf-8"))
        for line in commands_written_out(text)
    }

    assert found == set(), "use command_on of pipelines/release/repository/commands.py"


def test_the_guard_sees_texts_and_no_docstrings() -> None:
    text = (
        '"""convert-and-validate show x"""\n'
        'hint = f"see: convert-and-validate show {x}"\n'
        'def f():\n    """convert-and-validate list"""\n'
    )
    assert list(commands_written_out(text)) == [2]
