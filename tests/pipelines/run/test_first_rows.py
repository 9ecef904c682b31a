"""A conversion tries its model with the first batch of the samples, and goes on without where they cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.artifact import Artifact
from paritygate.pipelines.compare.first_rows import first_rows
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Desk

_NET = """
import numpy as np
import torch

from paritygate.batch import Batch


class Net(torch.nn.Module):
    def __init__(self, least):
        super().__init__()
        self.least = least
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        # As a loader of pictures that refuses what is none.
        if float(x.min()) < self.least:
            raise ValueError("this is not a row")
        return self.linear(x)


def picky():
    torch.manual_seed(0)
    return Net(100.0).eval()


def any_rows():
    torch.manual_seed(0)
    return Net(-float("inf")).eval()


def rows():
    for part in range(3):
        x = np.random.default_rng(part).uniform(100, 200, (8, 4)).astype(np.float32)
        yield Batch(inputs={"x": x}, ids=[f"{part}-{row}" for row in range(8)])


def broken():
    raise RuntimeError("no connection to the store")
"""


def _spec(desk: Desk, source: str, samples: str) -> None:
    desk.module("first_rows_net", _NET)
    model = {
        "name": "tiny",
        "source": f"first_rows_net:{source}",
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": {"y": {"dtype": "float32", "shape": ["batch", 3]}},
        "dims": {"batch": {"min": 1, "opt": 4, "max": 16}},
    }
    desk.spec(model=model, samples={"source": samples}, decisions={}, targets=["torchscript-fp32"])


def _notes(desk: Desk) -> tuple[str, ...]:
    made: dict[str, Any] = dict(Artifact.load(desk.run_folder / "torchscript-fp32").made_by)
    return tuple(made["notes"])


@pytest.mark.torch
def test_a_module_that_takes_real_rows_only_is_converted_with_them(desk: Desk) -> None:
    _spec(desk, "picky", "first_rows_net:rows")
    called = desk.call("export", "spec.yaml", "--quiet")
    assert called.code == 0, str(called)
    assert not [note for note in _notes(desk) if "made-up" in note]


@pytest.mark.torch
def test_samples_that_cannot_be_read_stop_no_conversion_and_that_is_said(desk: Desk) -> None:
    _spec(desk, "any_rows", "first_rows_net:broken")
    called = desk.call("export", "spec.yaml", "--quiet")
    assert called.code == 0, str(called)
    assert sum("no connection to the store" in note for note in _notes(desk)) == 1


def test_only_the_first_batch_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.arange(20.0).reshape(10, 2))
    found = first_rows(SampleSource(text="inputs.npz", folder=tmp_path, batch_size=4))
    assert np.array_equal(found.inputs["x"], np.arange(8.0).reshape(4, 2))
    assert found.note is None


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = first_rows(SampleSource(text="absent.npz", folder=tmp_path))
    assert not found.inputs
    assert found.note is not None
    assert "absent.npz" in found.note
