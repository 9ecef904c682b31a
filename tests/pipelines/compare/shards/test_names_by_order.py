"""A module with outputs without names, against files that name them: by order, and only where nothing is mixed up."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_MODEL = """
    import torch


    class Two(torch.nn.Module):
        def forward(self, x):
            return x * 2.0, x + 1.0


    def load():
        return Two().eval()
    """
_SHAPE = {"logits": ("float", ["batch", 4]), "embedding": ("float", ["batch", 4])}


@pytest.fixture
def files(desk: Desk, bench: Bench) -> Desk:
    """The module, and files with its outputs: in its order, swapped, and one alone."""
    desk.module("two", _MODEL)
    desk.samples(rows=40)
    nodes = [helper.make_node("Mul", ["x", "two"], ["logits"]), helper.make_node("Add", ["x", "one"], ["embedding"])]
    weights = {"two": np.full(1, 2, dtype=np.float32), "one": np.ones(1, dtype=np.float32)}
    for name, outputs in (("right", [*_SHAPE]), ("swapped", [*_SHAPE][::-1]), ("one", ["logits"])):
        shapes = {output: _SHAPE[output] for output in outputs}
        path = bench.model(name, nodes, inputs={"x": ("float", ["batch", 4])}, outputs=shapes, weights=weights)
        (desk.folder / f"{name}.onnx").write_bytes(Path(path).read_bytes())
    return desk


@pytest.mark.parametrize(("name", "code"), [("right", 0), ("swapped", 1), ("one", 1)])
def test_an_openvino_file_has_the_outputs_in_the_order_of_the_module(files: Desk, name: str, code: int) -> None:
    openvino = pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'paritygate[openvino]'")
    model = openvino.convert_model(str(files.folder / f"{name}.onnx"))
    openvino.save_model(model, str(files.folder / "model.xml"), compress_to_fp16=False)

    called = files.json("compare", "two:load", "model.xml", "--samples", "inputs.npz", "--probes", "fresh")

    assert called.code == code, str(called)
    if not code:
        # A process of its own asks the candidate afresh: it is to have the same names there.
        assert called.data["probes"]["asked"]["fresh"]["error"] == ""


def test_names_that_the_user_gives_are_not_completed(files: Desk) -> None:
    assert files.call("record", "two:load", "--samples", "inputs.npz", "--out", "reference").code == 0
    given = ("--map", "logits=output_0")

    assert files.call("compare", "reference", "right.onnx", "--samples", "inputs.npz", *given).code == 1


@pytest.mark.parametrize(("name", "code"), [("right", 0), ("swapped", 1)])
def test_the_command_that_a_shard_of_a_callable_names_works(files: Desk, name: str, code: int) -> None:
    options = ("--samples", "inputs.npz", "--batch-size", "8")
    refused = files.call("compare", "two:load", f"{name}.onnx", *options, "--shard", "1/2", "--out", "part-1.json")
    assert refused.code == 2
    command = next(line for line in refused.err.splitlines() if "convert-and-validate record" in line)
    assert files.call(*shlex.split(command)[1:]).code == 0, command

    for part in (1, 2):
        place = ("--shard", f"{part}/2", "--out", f"part-{part}.json")
        called = files.call("compare", "reference", f"{name}.onnx", *options, *place)
        assert called.code == 0, str(called)
    merged = files.json("merge", "part-1.json", "part-2.json")

    assert merged.code == code, str(merged)
