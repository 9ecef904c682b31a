"""Which names a module of the user's may have."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from paritygate.errors import UsageError
from paritygate.importing import load_object, place_in_users_code

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["json", "signal"])
def test_a_file_named_like_a_module_of_python_is_to_be_renamed(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("def load():\n    return None\n", encoding="utf-8")

    with pytest.raises(UsageError, match=f"module '{name}' of '{name}:load' is a module of Python itself") as caught:
        load_object(f"{name}:load", tmp_path)

    assert caught.value.hint == f"rename {name}.py, and name it by its new name"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import json\n\ndef load():\n    return json.loads('{')\n", 4),
        ("def load():\n    return 1 / 0\n", 2),
        ("def load():\n    try:\n        1 / 0\n    finally:\n        {}['x']\n", 5),
    ],
)
def test_the_line_of_the_users_code_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "raising", raising=False)
    (tmp_path / "raising.py").write_text(text)

    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the code raises
        load_object("raising:load", tmp_path)()

    assert place_in_users_code(caught.value) == f"raising.py:{line}"
    sys.modules.pop("raising", None)


@pytest.mark.parametrize(
    ("text", "line"), [("x = 1\ndef load(:\n", 2), ("import no_such_module_here\ndef load(): pass\n", 1)]
)
def test_code_that_cannot_be_imported_is_wrong_usage_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "raising.py").write_text(text)

    with pytest.raises(UsageError, match=rf"raising\.py:{line}"):
        load_object("raising:load", tmp_path)


def test_an_error_of_another_package_has_no_line_of_the_users() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        int("x")

    assert not place_in_users_code(caught.value.with_traceback(None))
