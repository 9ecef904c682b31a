"""The command `diagnose`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from paritygate.pipelines.cli.app import cli


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a model, one with another operator in it, and rows into the current folder."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    for name, operator in (("model", "Sigmoid"), ("wrong", "HardSigmoid")):
        weights = [
            numpy_helper.from_array(np.random.default_rng(at).normal(size=(8, 8)).astype(np.float32), f"w{at}")
            for at in range(2)
        ]
        nodes = [
            helper.make_node("MatMul", ["x", "w0"], [f"{name}_a"], name="first"),
            helper.make_node(operator, [f"{name}_a"], [f"{name}_b"], name=f"{name}_gate"),
            helper.make_node("MatMul", [f"{name}_b", "w1"], ["y"], name="last"),
        ]
        inputs, outputs = ([helper.make_tensor_value_info(each, TensorProto.FLOAT, ["n", 8])] for each in "xy")
        graph = helper.make_graph(nodes, name, inputs, outputs, weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{name}.onnx")
    np.savez("rows.npz", x=random.normal(size=(20, 8)).astype(np.float32))
    return tmp_path


def test_the_operator_that_differs_is_in_the_json(models: Path) -> None:
    result = CliRunner().invoke(
        cli,
        ["diagnose", "model.onnx", "wrong.onnx", "--samples", "rows.npz", "--json", "out.json", "--quiet"],
        standalone_mode=False,
    )

    data = json.loads((models / "out.json").read_text())
    assert result.return_value == 1
    assert data["outcome"] == "located"
    assert [place["candidate_nodes"] for place in data["located"]] == [["wrong_gate"]]
    assert data["located"][0]["reference_nodes"] == ["model_gate"]
    assert data["located"][0]["op_types"] == ["HardSigmoid"]
    assert data["located"][0]["proven"] is True


def test_equal_outputs_are_no_divergence(models: Path) -> None:
    (models / "failures").mkdir()
    for name in ("batches-3.actual", "batches-3.expected", "batches-3"):
        (models / f"failures/{name}.npz").touch()

    result = CliRunner().invoke(
        cli,
        ["diagnose", "model.onnx", "model.onnx", "--samples", "rows.npz", "--json", "out.json", "--quiet"],
        standalone_mode=False,
    )

    assert result.return_value == 0
    assert "failures/batches-3.npz" in result.output
    assert json.loads((models / "out.json").read_text())["outcome"] == "equal"


@pytest.mark.usefixtures("models")
def test_a_comparison_that_fails_names_the_command_that_diagnoses_it() -> None:
    call = ["compare", "model.onnx", "wrong.onnx", "--samples", "rows.npz", "--probes", "none"]

    failed = CliRunner().invoke(cli, call, standalone_mode=False)
    in_eights = CliRunner().invoke(cli, [*call, "--batch-size", "8"], standalone_mode=False)
    passed = CliRunner().invoke(cli, [*call[:2], "model.onnx", *call[3:]], standalone_mode=False)

    words = shlex.split(in_eights.stderr.partition("next:")[2].replace("\\\n", " "))
    assert "diagnose model.onnx wrong.onnx --samples rows.npz" in failed.stderr
    assert words[1:] == ["diagnose", "model.onnx", "wrong.onnx", "--samples", "rows.npz", "--batch-size", "8"]
    assert "diagnose" not in passed.stderr


@pytest.mark.usefixtures("models")
def test_a_candidate_that_refuses_a_batch_is_not_diagnosed() -> None:
    wrong = onnx.load("wrong.onnx")
    wrong.graph.node[0].input[0] = "fixed"
    wrong.graph.node.insert(0, helper.make_node("Reshape", ["x", "shape"], ["fixed"]))
    wrong.graph.initializer.append(numpy_helper.from_array(np.array([8, 8]), "shape"))
    onnx.save(wrong, "refusing.onnx")
    call = ["compare", "model.onnx", "refusing.onnx", "--samples", "rows.npz", "--batch-size", "8"]

    # The batches that it accepts differ.
    failed = CliRunner().invoke(cli, [*call, "--json", "out.json"], standalone_mode=False)

    checks = json.loads(Path("out.json").read_text())["checks"]
    assert "accepts_inputs" in {check["name"] for check in checks if check["status"] == "fail"}
    assert failed.return_value == 1
    assert "diagnose" not in failed.stderr


@pytest.mark.usefixtures("models")
def test_a_failure_on_generated_inputs_is_diagnosed_on_these() -> None:
    head = '<ir_version: 9, opset_import: ["": 17]> norm (float[n,8] x) => (float[n,8] y)'
    for name, epsilon in (("norm", 1e-5), ("other", 0.0)):
        body = f"e = Constant<value_float = {epsilon:f}>() m = ReduceMean<axes = [1]>(x) d = Sub(x, m) s = Mul(d, d)"
        body += "v = ReduceMean<axes = [1]>(s) u = Add(v, e) r = Sqrt(u) y = Div(d, r)"
        onnx.save(onnx.parser.parse_model(f"{head} {{ {body} }}"), f"{name}.onnx")
    call = ["compare", "norm.onnx", "other.onnx", "--samples", "rows.npz", "--probes", "values", "--min-rows", "20"]

    failed = CliRunner().invoke(cli, [*call, "--failures", "kept"], standalone_mode=False)
    words = shlex.split(failed.stderr.partition("next:")[2].replace("\\\n", " "))
    found = CliRunner().invoke(cli, [*words[1:], "--json", "out.json", "--quiet"], standalone_mode=False)

    assert failed.return_value == found.return_value == 1
    (place,) = json.loads(Path("out.json").read_text())["located"]
    assert [sentence["key"] for sentence in place["words"]] == ["divergence.constant"]


@pytest.mark.parametrize(
    ("reference", "is_named"),
    [
        pytest.param("net_of_test:load", True, marks=[pytest.mark.torch, pytest.mark.thorough]),
        # A function has no inner tensors.
        ("service_of_test:answer", False),
    ],
)
def test_a_reference_in_python_is_diagnosed_if_it_is_a_model(models: Path, reference: str, is_named: bool) -> None:  # noqa: FBT001
    (models / "service_of_test.py").write_text("def answer(inputs):\n    return {'y': inputs['x'] * 2}\n")
    net = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return {'y': torch.sigmoid(x)}\n"
    (models / "net_of_test.py").write_text(f"import torch\n\n\n{net}\n\ndef load():\n    return Net()\n")
    call = ["compare", reference, "wrong.onnx", "--samples", "rows.npz", "--probes", "none"]

    failed = CliRunner().invoke(cli, call, standalone_mode=False)

    assert failed.return_value == 1, failed.output
    assert (f"diagnose {reference} wrong.onnx --samples rows.npz" in failed.stderr) is is_named


def test_the_nodes_of_two_graphs_are_matched(models: Path) -> None:
    call = ["graph-diff", "model.onnx", "wrong.onnx", "--samples", "rows.npz", "--json", "out.json", "--quiet"]

    code = CliRunner().invoke(cli, call, standalone_mode=False).return_value
    data = json.loads((models / "out.json").read_text())
    same = CliRunner().invoke(cli, [*call[:2], "model.onnx", *call[3:]], standalone_mode=False).return_value

    assert (code, same) == (1, 0)
    assert [(pair["a"]["name"], pair["b"]["name"]) for pair in data["matched"]] == [("first", "first")]
    assert [node["name"] for node in data["only_in_a"]] == ["model_gate", "last"]
    assert [node["name"] for node in data["only_in_b"]] == ["wrong_gate", "last"]
    assert [node["op_type"] for node in data["first"]["b"]] == ["HardSigmoid"]


def test_a_stage_is_named_where_both_sides_are_lists_of_stages(models: Path) -> None:
    code = "def make(by):\n    return [('scale', lambda x: x['x'] / by), ('sum', lambda x: x.sum(axis=1))]\n"
    (models / "steps_of_two.py").write_text(f"{code}\n\ndef right():\n    return make(2)\n\n\nwrong = make(3)\n")
    call = ["steps_of_two:right", "steps_of_two:wrong", "--samples", "rows.npz", "--json", "out.json", "--quiet"]

    result = CliRunner().invoke(cli, ["diagnose", *call], standalone_mode=False)
    data = json.loads((models / "out.json").read_text())

    assert result.return_value == 1
    assert [place["candidate_nodes"] for place in data["located"]] == [["scale"]]
    assert data["located"][0]["proven"] is True
    assert data["reference"] == "steps_of_two:right"
