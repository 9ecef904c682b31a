"""TorchScript files whose operators are of another package, as those of torchvision are."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

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


class _Relu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file with such an operator, saved by another process, with the package beside it."""
    (tmp_path / "drawn_ops.py").write_text(_OPERATORS, encoding="utf-8")
    (tmp_path / "save.py").write_text(_SAVE, encoding="utf-8")
    subprocess.run([sys.executable, "save.py"], cwd=tmp_path, check=True)
    return tmp_path / "model.pt"


@pytest.fixture
def saved_by_a_later_version(tmp_path: Path) -> Path:
    """A file with an operator of PyTorch's own that this version does not have."""
    path = tmp_path / "later.pt"
    torch.jit.save(torch.jit.script(_Relu()), path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content.replace(b"torch.relu(", b"torch.elur("))
    return path


def test_an_operator_of_pytorch_is_of_no_other_package(saved_by_a_later_version: Path) -> None:
    with pytest.raises(InputFileError, match="Unknown builtin op: aten::elur") as refused:
        load_torchscript(saved_by_a_later_version)

    assert refused.value.hint == "save it again with torch.jit.save, with this version of PyTorch"


def test_a_package_that_does_not_import_is_not_hidden_by_another_hint(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (saved.parent / "drawn_ops.py").write_text("raise RuntimeError('no GPU here')", encoding="utf-8")
    monkeypatch.syspath_prepend(saved.parent)

    with pytest.raises(InputFileError, match="no GPU here") as refused:
        load_torchscript(saved)
    assert str(refused.value.hint).startswith("drawn_ops::twice is from the package drawn_ops")


def test_the_package_of_an_operator_is_named_and_imported_where_it_is(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputFileError, match="Unknown builtin op: drawn_ops::twice") as refused:
        load_torchscript(saved)
    assert str(refused.value.hint).startswith("drawn_ops::twice is from the package drawn_ops: install it")

    monkeypatch.syspath_prepend(saved.parent)
    assert load_torchscript(saved)(torch.ones(2)).tolist() == [2, 2]
