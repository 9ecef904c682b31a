"""Runners that say that they may be called from several threads at once answer there as one after another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.runners.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path

_CALLS = 200


def _onnx(folder: Path) -> Runner:
    import onnx
    from onnx import helper

    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Softmax", ["product"], ["scores"], axis=-1),
        helper.make_node("MatMul", ["scores", "weight"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(folder / "model.onnx"))
    return open_runner(LoadedModel(ref=parse_source("model.onnx", folder)))


def _torch(folder: Path) -> Runner:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Softmax(-1), torch.nn.Linear(64, 64))
    specs = [TensorSpec(name=name, dtype="float32", shape=("batch", 64)) for name in ("x", "y")]
    signature = Signature(inputs=(specs[0],), outputs=(specs[1],))
    source = ModelRef(text="m:f", folder=folder, kind=SourceKind.TORCH)
    return open_runner(LoadedModel(ref=replace(source, signature=signature), model=module))


@pytest.mark.parametrize("make", [_onnx, pytest.param(_torch, marks=pytest.mark.torch)])
def test_calls_at_once_are_answered_as_one_after_another(tmp_path: Path, make: object) -> None:
    runner: Runner = make(tmp_path)  # type: ignore[operator]
    random = np.random.default_rng(1)
    batches = [random.standard_normal((1 + at % 17, 64)).astype(np.float32) for at in range(_CALLS)]
    serial = [runner.run({"x": batch})["y"] for batch in batches]

    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(lambda batch: runner.run({"x": batch})["y"], batches))

    assert runner.facts.may_be_called_at_once
    for first, second in zip(serial, at_once, strict=True):
        np.testing.assert_allclose(second, first, rtol=0, atol=1e-6)


def test_graph_optimisations_can_be_turned_off(tmp_path: Path) -> None:
    optimised = _onnx(tmp_path)
    plain = open_runner(LoadedModel(ref=parse_source("model.onnx", tmp_path), is_optimised=False))

    assert (optimised.facts.optimisation, plain.facts.optimisation) == ("all", "disable_all")
    x = np.ones((3, 64), dtype=np.float32)
    np.testing.assert_allclose(plain.run({"x": x})["y"], optimised.run({"x": x})["y"], atol=1e-5)
