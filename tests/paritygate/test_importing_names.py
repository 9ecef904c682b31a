"""Which names a module of the user's may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paritygate.errors import UsageError
from paritygate.importing import load_object

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["json", "signal"])
def test_a_file_named_like_a_module_of_python_is_to_be_renamed(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("def load():\n    return None\n", encoding="utf-8")

    with pytest.raises(UsageError, match=f"module '{name}' of '{name}:load' is a module of Python itself") as caught:
        load_object(f"{name}:load", tmp_path)

    assert caught.value.hint == f"rename {name}.py, and name it by its new name"
