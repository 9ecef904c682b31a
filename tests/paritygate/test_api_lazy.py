"""Importing `paritygate` costs nothing, and type checkers see what it offers all the same."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import paritygate as pg
import paritygate.api

_PROGRAM = """
import json, sys
before = set(sys.modules)
import paritygate
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_the_package_imports_nothing_else() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)

    assert json.loads(ran.stdout) == ["paritygate"]


def test_what_the_package_offers_is_there_and_nothing_else() -> None:
    offered = {name for name in pg.__all__ if name != "__version__"}

    assert offered == set(paritygate.api.__all__)
    assert all(getattr(pg, name) is getattr(paritygate.api, name) for name in offered)
    assert offered <= set(dir(pg))
    with pytest.raises(AttributeError, match="module 'paritygate' has no attribute 'comparee'"):
        _ = pg.comparee  # type: ignore[attr-defined]


def test_type_checkers_are_shown_every_name(project_root: Path) -> None:
    package = project_root / "src/paritygate"
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    (imported,) = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert imported.module == "paritygate.api"
    assert {alias.name for alias in imported.names} == set(pg.__all__) - {"__version__"}
    assert (package / "py.typed").is_file()
