"""Imports go downwards only: pipelines > convert, validate > ground floor; fixtures stand on the ground floor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# From a part to the parts that its modules may import; the ground floor is open to all.
MAY_IMPORT = {
    "ground floor": set[str](),
    "convert": {"convert"},
    "validate": {"validate"},
    "fixtures": {"fixtures"},
    "pipelines": {"pipelines", "convert", "validate"},
}
PARTS = set(MAY_IMPORT) - {"ground floor"}
# The command starts here and is found here by `python -m paritygate`; nothing imports it.
ENTRANCE = "__main__.py"


def modules_imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of every module that may be imported, wherever in the file; a relative one with its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def upward_imports(text: str, part: str) -> list[str]:
    """Return the imports in a file of `part` that go up, sideways or by a relative name, as `line: module`."""
    found: dict[int, str] = {}
    for line, module in modules_imported(ast.parse(text)):
        names = module.split(".")
        is_relative = module.startswith(".")
        is_of_part = names[0] == "paritygate" and len(names) > 1 and names[1] in PARTS
        if is_relative or (is_of_part and names[1] not in MAY_IMPORT[part]):
            found.setdefault(line, module)
    return [f"{line}: {module}" for line, module in found.items()]


def files_of(project_root: Path, part: str) -> list[Path]:
    """Return the Python files of a part, or of the ground floor without the command's entrance."""
    if part == "ground floor":
        folder = project_root / "src/paritygate"
        return [path for path in (*folder.glob("*.py"), *folder.glob("engine/*.py")) if path.name != ENTRANCE]
    return list((project_root / part).rglob("*.py"))


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_it_stands_on(project_root: Path, part: str) -> None:
    files = files_of(project_root, part)

    assert files
    assert [
        f"{path.relative_to(project_root)}:{found}"
        for path in files
        for found in upward_imports(path.read_text(encoding="utf-8"), part)
    ] == []


@pytest.mark.parametrize(
    ("part", "statement"),
    [
        ("ground floor", "from paritygate.validate import metrics"),
        ("ground floor", "import paritygate.pipelines.cli.app"),
        ("convert", "from paritygate import validate"),
        ("convert", "from paritygate.validate.runners.runner import open_runner"),
        ("validate", "def late():\n    from paritygate.convert import conversion"),
        ("fixtures", "if TYPE_CHECKING:\n    from paritygate.pipelines.spec.schema import Spec"),
        ("pipelines", "import paritygate.fixtures.sts"),
        ("pipelines", "from . import spec"),
        ("validate", "from .statistics import update"),
    ],
)
def test_this_guard_sees_an_import_that_goes_up_or_sideways(part: str, statement: str) -> None:
    assert len(upward_imports(statement, part)) == 1


@pytest.mark.parametrize(
    ("part", "statement"),
    [
        ("ground floor", "from paritygate.errors import UsageError"),
        ("convert", "from paritygate.convert.conversion import Conversion\nfrom paritygate import errors"),
        ("pipelines", "from paritygate.convert import conversion\nimport paritygate.validate.gate.verdict"),
        ("validate", "import validate_email"),
    ],
)
def test_this_guard_lets_an_import_down_pass(part: str, statement: str) -> None:
    assert upward_imports(statement, part) == []
