"""No code reads what is said to people: no status, file or exit code hangs on how a sentence is worded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_SAID = frozenset({"detail", "message", "hint"})
_METHODS = frozenset(
    {"endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rpartition", "split"}
    | {"splitlines", "startswith"}
)
_OF_RE = frozenset({"findall", "finditer", "fullmatch", "match", "search", "split", "sub"})
# The renderer.
_RENDERER = ("src/paritygate/text.py", "pipelines/report/terminal/screen.py")
# Words of other people's programs, which say nothing otherwise; this list only gets shorter.
_OF_OTHERS = (
    "convert/tensorflow/savedmodel_to_tflite.py",
    "src/paritygate/engine/builder_log.py",
    "src/paritygate/models/torch/module.py",
    "convert/torch/torch_to_pt2.py",
)
ALLOWED = (*_RENDERER, *_OF_OTHERS)


def _is_said(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _SAID
    if isinstance(node, ast.Name):
        return node.id in _SAID
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and str(node.slice.value) in _SAID


def prose_read(text: str) -> Iterator[int]:
    """Yield the lines that read a sentence."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_method = node.func.attr in _METHODS and _is_said(node.func.value)
            is_re = node.func.attr in _OF_RE and any(map(_is_said, node.args))
            if is_method or is_re:
                yield node.lineno
        if isinstance(node, ast.Compare) and _compares_prose(node):
            yield node.lineno


def _compares_prose(node: ast.Compare) -> bool:
    if any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
        return any(map(_is_said, node.comparators))
    sides = (node.left, *node.comparators)
    return any(map(_is_said, sides)) and any(isinstance(each, ast.Constant) and each.value for each in sides)


def _files(root: Path) -> list[Path]:
    return [
        path
        for folder in ("convert", "validate", "pipelines", "src/paritygate")
        for path in (root / folder).rglob("*.py")
        if not path.is_symlink()
    ]


def test_no_code_reads_prose(project_root: Path) -> None:
    found = {
        str(path.relative_to(project_root)): list(prose_read(path.read_text(encoding="utf-8")))
        for path in _files(project_root)
    }
    wrong = {name: lines for name, lines in found.items() if lines and name not in ALLOWED}

    assert len(found) > 300
    assert wrong == {}


@pytest.mark.parametrize("name", _OF_OTHERS)
def test_a_place_that_reads_no_prose_is_taken_off_the_list(name: str, project_root: Path) -> None:
    assert list(prose_read((project_root / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "statement",
    [
        'check.detail.startswith("not measured")',
        'error.hint.partition(": ")',
        're.search("x", found.message)',
        "PAIR.match(check.detail)",
        '"rows" in data["detail"]',
        'message == "not asked for"',
    ],
)
def test_this_guard_sees_what_reads_prose(statement: str) -> None:
    assert list(prose_read(statement)) == [1]


@pytest.mark.parametrize("statement", ["check.status == 'fail'", "echo(check.detail)", "message == ''", "{**detail}"])
def test_this_guard_lets_facts_pass(statement: str) -> None:
    assert list(prose_read(statement)) == []
