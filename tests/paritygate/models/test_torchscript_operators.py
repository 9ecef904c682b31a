"""TorchScript files whose operators are of another package, as those of torchvision are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paritygate.errors import InputFileError
from paritygate.models.torch.torchscript_file import load_torchscript

_OPERATORS = """
import torch

library = torch.library.Library("drawn_ops", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
"""
_SAVE = """
import drawn_ops
import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return torch.ops.drawn_ops.twice(x)


torch.jit.save(torch.jit.script(Model()), "model.pt")
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file with such an operator, saved by another process, with the package beside it."""
    (tmp_path / "drawn_ops.py").write_text(_OPERATORS, encoding="utf-8")
    (tmp_path / "save.py").write_text(_SAVE, encoding="utf-8")
    subprocess.run([sys.executable, "save.py"], cwd=tmp_path, check=True)
    return tmp_path / "model.pt"


def test_the_package_of_an_operator_is_named_and_imported_where_it_is(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    with pytest.raises(InputFileError, match="Unknown builtin op: drawn_ops::twice") as refused:
        load_torchscript(saved)
    assert str(refused.value.hint).startswith("drawn_ops::twice is of the package drawn_ops: install it")

    monkeypatch.syspath_prepend(saved.parent)
    assert load_torchscript(saved)(torch.ones(2)).tolist() == [2, 2]
