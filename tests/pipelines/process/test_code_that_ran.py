"""A model whose loading ran code of its author is said to have, also where it did not load."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench


def _touching(path: Path) -> bytes:
    """Return a pickle that makes a file."""
    return f"cpathlib\nPath\n(S'{path}'\ntRp0\n0cbuiltins\ngetattr\n(g0\nS'touch'\ntR(tR.".encode()


@pytest.mark.torch
@pytest.mark.children
def test_a_program_that_does_not_load_after_code_ran_says_so(bench: Bench, tmp_path: Path) -> None:
    import torch

    class Linear(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    path, ran = tmp_path / "good.pt2", tmp_path / "ran"
    torch.export.save(torch.export.export(Linear(), (torch.ones(2, 4),)), str(path))
    forged = tmp_path / "forged.pt2"
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(forged, "w") as bad:
        names = [name for name in good.namelist() if "sample_inputs" in name]
        for name in good.namelist():
            bad.writestr(name, _touching(ran) if name in names else good.read(name))
    assert names, "this PyTorch keeps its sample inputs elsewhere"

    outcome = bench.compare(bench.linear("a"), str(forged), "--samples", bench.samples())

    assert outcome.code == 2, outcome.err
    assert ran.exists()
    assert outcome.result["candidate"]["executes_code"] is True
    assert outcome.result["reference"]["executes_code"] is False
    assert any("forged.pt2" in note for note in outcome.result["notes"])


def test_a_side_that_was_not_opened_executes_what_its_kind_does(bench: Bench) -> None:
    (bench.folder / "code.py").write_text("def load():\n    raise RuntimeError('no weights')\n", encoding="utf-8")

    outcome = bench.compare(bench.linear("a"), "code:load", "--samples", bench.samples())

    assert outcome.code != 0
    assert outcome.result["candidate"]["executes_code"] is True
