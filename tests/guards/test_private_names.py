"""A name with an underscore belongs to its module, every other name is for all of them: no list repeats that."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_PARTS = ("convert", "validate", "pipelines", "src/paritygate", "fixtures")
# What `help()` and the tests of the documentation read.
_WITH_A_LIST = {"src/paritygate/__init__.py", "src/paritygate/api/__init__.py", "src/paritygate/errors.py"}

# A list of names, or an import of a private one: only such a module is parsed.
_WORTH_PARSING = re.compile(r"__all__|import .*\b_[a-z]|^ +_[a-z]\w*,$", re.MULTILINE)


def private_imports(tree: ast.Module) -> list[str]:
    """Return the names with an underscore that a module takes from another of ours."""
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paritygate")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.endswith("__")
    ]


def lists_own_names(tree: ast.Module) -> bool:
    """Return whether `__all__` names nothing but what the module itself defines."""
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    if not lists:
        return False
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return any(not imported & set(ast.literal_eval(names)) for names in lists)


def test_no_module_takes_a_private_name_of_another_or_lists_its_own(project_root: Path) -> None:
    private: dict[str, list[str]] = {}
    listing = set()
    for path in (path for part in _PARTS for path in (project_root / part).rglob("*.py")):
        # No tree is kept, because a million nodes make Python's collector slow.
        name, text = str(path.relative_to(project_root)), path.read_text(encoding="utf-8")
        if not _WORTH_PARSING.search(text):
            continue
        tree = ast.parse(text)
        private[name] = private_imports(tree)
        if lists_own_names(tree):
            listing.add(name)

    assert {name: found for name, found in private.items() if found} == {}
    assert listing - _WITH_A_LIST == set()


def test_this_guard_sees_both() -> None:
    assert private_imports(ast.parse("from paritygate.text import _cut")) == ["paritygate.text._cut"]
    assert lists_own_names(ast.parse('__all__ = ["one"]\ndef one(): ...'))
    assert not lists_own_names(ast.parse('from paritygate.text import one\n__all__ = ["one"]'))
