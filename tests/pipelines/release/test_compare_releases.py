"""A released variant as a side of `compare`: what was declared when it was released holds there as well."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_GRAPH = """
    < ir_version: 8, opset_import: ["" : 17] >
    g (float[batch, time] x) => (float[batch] y) {
        long_ones = Constant <value_ints = [%d]> ()
        first = Constant <value_ints = [0]> ()
        at = Constant <value_ints = [1]> ()
        kept = Slice (x, first, long_ones, at)
        axes = Constant <value_ints = [1]> ()
        y = ReduceSum <keepdims = 0> (kept, axes)
    }
    """


_NET = """
    import torch


    class Sum(torch.nn.Module):
        def forward(self, x):
            return {"y": x.sum(1)}


    def load():
        return Sum().eval()
    """


def _write(desk: Desk, name: str, *, longest: int) -> None:
    onnx.save(onnx.parser.parse_model(_GRAPH % longest), str(desk.folder / name))


@pytest.fixture
def released(desk: Desk) -> Desk:
    """A release whose dim `time` may be 32, of samples that are 8 long; and a file that is wrong above 8."""
    _write(desk, "model.onnx", longest=1000)
    _write(desk, "short.onnx", longest=8)
    values = np.random.default_rng(0).standard_normal((120, 8)).astype(np.float32)
    np.savez(desk.folder / "inputs.npz", x=values)
    dims = {"batch": {"min": 1, "opt": 8, "max": 64}, "time": {"min": 1, "opt": 8, "max": 32}}
    desk.spec(
        model={"name": "sums", "source": "model.onnx", "dims": dims, "rename": {"y": "sum"}},
        decisions={},
    )
    called = desk.call("run", "spec.yaml")
    assert called.code == 0, str(called)
    return desk


def test_sizes_that_the_release_declares_have_to_hold(released: Desk) -> None:
    words = ("short.onnx", "--samples", "inputs.npz", "--map", "y=sum", "--probes", "shapes")

    called = released.json("compare", "sums@1/onnx-fp32", *words)

    assert called.code == 1, str(called)
    (command,) = {failure["again"] for failure in called.data["probes"]["asked"]["shapes"]["failures"]}
    assert "sums@1/onnx-fp32" in command
    again = released.call(*shlex.split(command)[1:])
    assert again.code == 1, str(again)


@pytest.mark.torch
@pytest.mark.thorough
def test_a_released_copy_of_the_source_is_written_by_its_name_as_well(released: Desk) -> None:
    released.module("net", _NET)
    dims = {"batch": {"min": 1, "opt": 8, "max": 64}, "time": {"min": 1, "opt": 8, "max": 32}}
    inputs = {"x": {"dtype": "float32", "shape": ["batch", "time"]}}
    outputs = {"y": {"dtype": "float32", "shape": ["batch"]}}
    model = {"name": "copied", "source": "net:load", "inputs": inputs, "outputs": outputs, "dims": dims}
    released.spec(model=model, decisions={}, targets=["torch-fp32"])
    assert released.call("run", "spec.yaml").code == 0
    words = ("copied@1/torch-fp32", "short.onnx", "--samples", "inputs.npz", "--probes", "shapes")

    called = released.json("compare", *words)

    assert called.code == 1, str(called)
    (command,) = {failure["again"] for failure in called.data["probes"]["asked"]["shapes"]["failures"]}
    assert "copied@1/torch-fp32" in command
    assert "--repository artifacts/repository " in command
    again = released.call(*shlex.split(command)[1:])
    assert again.code == 1, str(again)


def test_a_right_file_passes_at_those_sizes(released: Desk) -> None:
    _write(released, "other.onnx", longest=2000)

    called = released.json("compare", "sums@1/onnx-fp32", "other.onnx", "--samples", "inputs.npz", "--map", "y=sum")

    assert called.code == 0, str(called)
    assert called.data["edge_findings"] == []
