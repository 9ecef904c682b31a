"""`repair` proposes a repair of a conversion that fails in FP32, and a spec that accepts it releases it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper, numpy_helper
from tests.pipelines.lost_column import losing_a_column
from tests.pipelines.repair.conftest import loud_desk

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx import grafts, onnx_to_onnx
from paritygate.convert.torch import torch_to_onnx

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_WIDE = 8


def _normalised() -> onnx.ModelProto:
    """Return two square layers with a normalisation and a leaky rectifier between them."""
    random = np.random.default_rng(3)
    weights = {
        "first": random.normal(size=(_WIDE, _WIDE)) * 0.4,
        "scale": 1 + 0.1 * random.normal(size=_WIDE),
        "second": random.normal(size=(_WIDE, 3)) * 0.4,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="first product"),
        helper.make_node("LayerNormalization", ["a", "scale"], ["b"], name="norm", epsilon=1e-5, axis=-1),
        helper.make_node("LeakyRelu", ["b"], ["c"], name="leak", alpha=0.2),
        helper.make_node("MatMul", ["c", "second"], ["output_0"], name="second product"),
    ]
    graph = helper.make_graph(
        nodes,
        "normalised",
        [helper.make_tensor_value_info("x", 1, ["batch", _WIDE])],
        [helper.make_tensor_value_info("output_0", 1, ["batch", 3])],
        [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _desk(folder: Path, **parts: object) -> Desk:
    desk = loud_desk(folder, targets=["onnx-fp32"], **parts)
    onnx.save(_normalised(), folder / "model.onnx")
    return desk


def _weight(model: onnx.ModelProto, name: str, new: Callable[[Any], Any]) -> None:
    tensor = next(item for item in model.graph.initializer if item.name == name)
    tensor.CopyFrom(numpy_helper.from_array(new(numpy_helper.to_array(tensor).copy()), name))


def _attribute(model: onnx.ModelProto, node: str, name: str, value: float) -> None:
    attributes = next(item for item in model.graph.node if item.name == node).attribute
    next(item for item in attributes if item.name == name).f = value


def _lose_a_column(model: onnx.ModelProto) -> None:
    _weight(model, "first", lambda values: values * (np.arange(_WIDE) != 1).astype(np.float32))


def _transpose(model: onnx.ModelProto) -> None:
    _weight(model, "first", np.transpose)


def _leak_more(model: onnx.ModelProto) -> None:
    _attribute(model, "leak", "alpha", 0.01)


def _replace_an_operator(model: onnx.ModelProto) -> None:
    node = next(item for item in model.graph.node if item.name == "leak")
    node.op_type = "Elu"


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[onnx.ModelProto], None]], None]:
    """Return a function by which the converter has a fault."""
    convert = onnx_to_onnx.convert

    def planted(fault: Callable[[onnx.ModelProto], None]) -> None:
        def wrong(job: ConversionJob) -> Conversion:
            made = convert(job)
            model = onnx.load(job.folder / made.main)
            fault(model)
            onnx.save(model, job.folder / made.main)
            return made

        monkeypatch.setattr(onnx_to_onnx, "convert", wrong)

    return planted


def _repair(desk: Desk) -> Called:
    assert desk.call("run", "spec.yaml", "--quiet", "--no-promote").code == 1
    return desk.json("repair", "--run", str(desk.run_folder), "--variant", "onnx-fp32", "--quiet")


@pytest.mark.parametrize(
    ("fault", "changed"),
    [
        (_lose_a_column, {"weights": [{"name": "first", "source": "first"}]}),
        (_transpose, {"weights": [{"name": "first", "source": "first"}]}),
        (_leak_more, {"attributes": [{"node": "leak", "name": "alpha", "value": 0.2}]}),
        (_replace_an_operator, {"grafts": [{"name": "c", "source": "c", "reads": {"b": "b"}}]}),
    ],
)
def test_a_proposal_takes_from_the_source_what_differs(
    tmp_path: Path,
    plant: Callable[[Callable[[onnx.ModelProto], None]], None],
    fault: Callable[[onnx.ModelProto], None],
    changed: dict[str, Any],
) -> None:
    plant(fault)
    desk = _desk(tmp_path)

    called = _repair(desk)

    assert called.code == 0, called
    assert (called.data["outcome"], called.data["accept"]) == ("proposed", {"changes": changed})
    assert called.data["held_out"]["verdict"] == "pass"
    assert called.data["held_out"]["rows"] + called.data["searched"]["rows"] == 240
    assert json.loads((desk.run_folder / "repaired/onnx-fp32/repair.json").read_text())["outcome"] == "proposed"
    # It is in no target's place.
    assert desk.call("promote", "--run", str(desk.run_folder)).code != 0


def test_what_no_weight_or_attribute_repairs_is_unrepaired(
    tmp_path: Path, plant: Callable[[Callable[[onnx.ModelProto], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grafts, "MOST_NODES", 0)
    plant(_replace_an_operator)

    called = _repair(_desk(tmp_path))

    assert called.code in {1, 4}, called
    assert (called.data["outcome"], called.data["file"], called.data["accept"]) == ("unrepaired", None, None)


def test_a_changed_file_is_repaired_by_the_same_conversion_done_again(tmp_path: Path) -> None:
    desk = _desk(tmp_path)
    with losing_a_column():
        assert desk.call("run", "spec.yaml", "--quiet", "--no-promote").code == 1

    called = desk.json("repair", "--run", str(desk.run_folder), "--variant", "onnx-fp32", "--quiet")

    assert (called.code, called.data["outcome"], called.data["accept"]) == (0, "proposed", None)
    assert len(called.data["attempts"]) == 1


def test_an_accepted_repair_is_released_and_named(
    tmp_path: Path, plant: Callable[[Callable[[onnx.ModelProto], None]], None]
) -> None:
    plant(_lose_a_column)
    desk = _desk(tmp_path)
    called = _repair(desk)
    accept = {**called.data["accept"], "author": "Ada", "reason": "the converter loses a column"}
    spec = yaml.safe_load((tmp_path / "spec.yaml").read_text(encoding="utf-8"))
    desk.spec(**{**spec, "repair": {"accept": {"onnx-fp32": accept}}, "targets": ["onnx-fp32", "onnx-fp16"]})

    again = desk.json("run", "spec.yaml", "--quiet")
    shown = desk.json("show", "tiny")

    assert again.code == 0, again
    repairs = shown.data["manifest"]["provenance"]["repairs"]
    assert {name: item["author"] for name, item in repairs.items()} == {"onnx-fp32": "Ada", "onnx-fp16": "Ada"}
    assert "the converter loses a column" in desk.call("show", "tiny").out


def test_a_proposal_holds_what_the_spec_accepts_already(
    tmp_path: Path, plant: Callable[[Callable[[onnx.ModelProto], None]], None]
) -> None:
    def two(model: onnx.ModelProto) -> None:
        _lose_a_column(model)
        _leak_more(model)

    plant(two)
    weights = [{"name": "first", "source": "first"}]
    who = {"author": "Ada", "reason": "the converter loses a column"}
    desk = _desk(tmp_path, repair={"accept": {"onnx-fp32": {"changes": {"weights": weights}, **who}}})

    called = _repair(desk)

    attributes = [{"node": "leak", "name": "alpha", "value": 0.2}]
    assert called.data["accept"] == {"changes": {"weights": weights, "attributes": attributes}}, called
    spec = yaml.safe_load((tmp_path / "spec.yaml").read_text(encoding="utf-8"))
    desk.spec(**{**spec, "repair": {"accept": {"onnx-fp32": {**called.data["accept"], **who}}}})
    assert desk.call("run", "spec.yaml", "--quiet", "--no-promote").code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": [{"name": "gone", "source": "first"}]},
        {"attributes": [{"node": "norm", "name": "axis", "value": -1.5}]},
        {"attributes": [{"node": "leak", "name": "alpha", "value": "large"}]},
    ],
)
def test_a_repair_that_does_not_fit_the_conversion_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    accept = {"changes": changes, "author": "Ada", "reason": "a test"}
    desk = _desk(tmp_path, repair={"accept": {"onnx-fp32": accept}})

    run = desk.json("run", "spec.yaml", "--quiet")

    assert run.data["runs"][0]["failures"]["onnx-fp32"]["exit_code"] == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"author": "AUTHOR"},
        {"reason": "REASON"},
        {"author": None},
        {"changes": {"weights": []}},
        {"changes": {"weights": [{"name": "first"}]}},
        {"changes": {"layers": [{"name": "first"}]}},
        {"changes": {"attributes": ["first"]}},
        {"changes": {"weights": [{"name": "first", "source": "first", "axis": [1, 0]}]}},
        {"changes": {"weights": [{"name": "first", "value": float("nan")}]}},
        {"changes": {"attributes": [{"node": "leak", "name": "alpha", "value": {"of": "the source"}}]}},
        {"changes": {"attributes": [{"node": "leak", "name": "alpha", "value": True}]}},
    ],
)
def test_a_repair_is_accepted_only_with_an_author_a_reason_and_changes(tmp_path: Path, wrong: dict[str, Any]) -> None:
    changes = {"weights": [{"name": "first", "source": "first"}]}
    accept = {"changes": changes, "author": "Ada", "reason": "a test", **wrong}
    desk = _desk(tmp_path, repair={"accept": {"onnx-fp32": {key: item for key, item in accept.items() if item}}})

    assert desk.call("run", "spec.yaml", "--quiet").code == 2


_TORCH = """
    import torch
    from torch import nn


    def load():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.LeakyReLU(0.2), nn.Linear(8, 3)).eval()
"""


@pytest.mark.torch
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("is_of_one_exporter", "accept"),
    [
        (True, {"exporter": "torchscript"}),
        (False, {"changes": {"attributes": [{"node": "node_leaky_relu", "name": "alpha", "value": 0.2}]}}),
    ],
)
def test_a_pytorch_module_is_exported_otherwise_or_gives_its_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: dict[str, Any], *, is_of_one_exporter: bool
) -> None:
    convert = torch_to_onnx.convert

    def wrong(job: ConversionJob) -> Conversion:
        made = convert(job)
        if made.facts["exporter"] == "dynamo" or not is_of_one_exporter:
            model = onnx.load(job.folder / made.main)
            node = next(item for item in model.graph.node if item.op_type == "LeakyRelu")
            _attribute(model, node.name, "alpha", 0.01)
            onnx.save(model, job.folder / made.main)
        return made

    monkeypatch.setattr(torch_to_onnx, "convert", wrong)
    outputs = {"logits": {"dtype": "float32", "shape": ["batch", 3]}}
    inputs = {"x": {"dtype": "float32", "shape": ["batch", _WIDE]}}
    model = {"name": "tiny", "source": "leaky_net:load", "inputs": inputs, "outputs": outputs}
    # An exporter that the spec accepts already is not put in the place of each one tried.
    who = {"author": "Ada", "reason": "a test"}
    parts = {"repair": {"accept": {"onnx-fp32": {"exporter": "dynamo", **who}}}} if is_of_one_exporter else {}
    desk = _desk(tmp_path, model=model, **parts)
    desk.module("leaky_net", _TORCH)

    called = _repair(desk)

    assert (called.code, called.data["accept"]) == (0, accept), called
