"""The minimal models of a place show its fault alone, and hold no weights or inputs that it does not need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.diagnose.drawing import input_draws
from paritygate.pipelines.diagnose.node_data import holds_data

_Array = NDArray[Any]
_Weights = dict[str, _Array]


def _weights() -> _Weights:
    random = np.random.default_rng(5)
    sizes = {"v": (8, 8), "w": (8, 8), "b": (8,), "u": (8, 8)}
    return {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}


def _save(path: str, weights: Mapping[str, _Array], *, gate: str = "Sigmoid", has_bias: bool = True) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["x1"], name="secret_first", doc_string="a secret line of code"),
        helper.make_node(gate, ["x1"], ["gated"], name="gate"),
        helper.make_node("MatMul", ["gated", "w"], ["product"], name="second"),
        helper.make_node("Add", ["product", "b" if has_bias else "zeros"], ["sum"], name="bias"),
        helper.make_node("Tanh", ["sum" if has_bias else "product"], ["bent"], name="tanh"),
        helper.make_node("MatMul", ["bent", "u"], ["y"], name="secret_last"),
    ]
    kept = [node for node in nodes if has_bias or node.name != "bias"]
    inputs, outputs = ([helper.make_tensor_value_info(each, 1, ["n", 8])] for each in "xy")
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(kept, "model", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _row_lost(weights: _Weights) -> _Weights:
    weights["w"][3] = 0
    return weights


_FAULTS: Mapping[str, tuple[Callable[[], None], int, int]] = {
    "operator": (lambda: _save("candidate.onnx", _weights(), gate="HardSigmoid"), 1, 1),
    "row": (lambda: _save("candidate.onnx", _row_lost(_weights())), 1, 1),
    "lost": (lambda: _save("candidate.onnx", _weights(), has_bias=False), 1, 2),
}


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Array:
    """Write the reference and rows into the current folder, and return the rows."""
    monkeypatch.chdir(tmp_path)
    _save("reference.onnx", _weights())
    rows = np.random.default_rng(3).normal(size=(12, 8)).astype(np.float32)
    np.savez("rows.npz", x=rows)
    return rows


def _exported(*options: str) -> dict[str, Any]:
    call = ["diagnose", "reference.onnx", "candidate.onnx", "--samples", "rows.npz", "--json", "out.json", "--quiet"]
    CliRunner().invoke(cli, [*call, "--export-minimal", "small", *options], standalone_mode=False)
    data: dict[str, Any] = json.loads(Path("out.json").read_text())
    return data


def _answers() -> list[_Array]:
    inputs = dict(np.load("small/inputs.npz"))
    files = ("small/reference.onnx", "small/candidate.onnx")
    return [onnxruntime.InferenceSession(file).run(["y"], inputs)[0] for file in files]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("name", _FAULTS)
def test_the_fault_shows_without_weights_and_inputs_of_the_user(name: str) -> None:
    plant, candidate_nodes, reference_nodes = _FAULTS[name]
    plant()

    minimal = _exported()["minimal"]
    models = [onnx.load(f"small/{each}.onnx") for each in ("candidate", "reference")]
    stored = [numpy_helper.to_array(tensor) for model in models for tensor in model.graph.initializer]
    stored += list(np.load("small/inputs.npz").values())

    actual, expected = _answers()
    assert np.abs(actual - expected).max() > 1e-3
    assert [len(model.graph.node) for model in models] == [candidate_nodes, reference_nodes]
    assert (minimal["candidate_nodes"], minimal["reference_nodes"]) == (candidate_nodes, reference_nodes)
    assert not any(np.isin(values[values != 0], real).any() for values in stored for real in _weights().values())
    assert all(constant["is_drawn"] for constant in minimal["constants"])
    assert not any(node.doc_string or "secret" in node.name for model in models for node in model.graph.node)
    assert "compare reference.onnx candidate.onnx" in Path("small/README.md").read_text()
    for model in models:
        onnx.checker.check_model(model, full_check=True)


def test_real_inputs_are_stored_only_if_wanted(rows: _Array) -> None:
    _FAULTS["operator"][0]()
    # The nodes read the product of the rows and the first weight.
    real = rows @ _weights()["v"]

    drawn = _exported()["minimal"]
    is_drawn_real = np.allclose(np.load("small/inputs.npz")["x0"], real, atol=1e-5)
    wanted = _exported("--with-inputs")["minimal"]

    assert (drawn["has_real_inputs"], is_drawn_real) == (False, False)
    assert wanted["has_real_inputs"]
    assert np.allclose(np.load("small/inputs.npz")["x0"], real, atol=1e-5)


@pytest.mark.parametrize(
    "real",
    [
        np.full((12, 1), 0.880101, np.float32),
        np.array([[0.880101]] * 11 + [[0.880102]], np.float32),
        np.array([[5.5, 1000.25]] * 12, np.float32),
        np.full((12, 1), 880101, np.int64),
        np.full((12, 1), -7, np.int8),
        np.full((1, 1), 255, np.uint8),
    ],
)
def test_no_real_value_is_drawn(real: _Array) -> None:
    for (drawn,) in input_draws([real], np.random.default_rng(1)):
        assert drawn.dtype == real.dtype
        assert not np.isin(drawn, real).any()


@pytest.mark.parametrize(("operators", "is_shown"), [(("Equal", "Less"), True), (("Equal", "Greater"), False)])
def test_a_constant_input_is_never_stored_as_a_drawn_one(
    rows: _Array,
    operators: tuple[str, str],
    is_shown: bool,  # noqa: FBT001
) -> None:
    secret = np.full((12, 1), 880101, np.int64)
    np.savez("rows.npz", x=rows, k=secret)
    for path, operator in zip(("reference.onnx", "candidate.onnx"), operators, strict=True):
        inputs = [helper.make_tensor_value_info("x", 1, ["n", 8]), helper.make_tensor_value_info("k", 7, ["n", 1])]
        nodes = [
            helper.make_node(operator, ["k", "secret"], ["e"]),
            helper.make_node("Cast", ["e"], ["c"], to=1),
            helper.make_node("Add", ["x", "c"], ["y"]),
        ]
        initial = [numpy_helper.from_array(secret[:1], "secret")]
        graph = helper.make_graph(nodes, "m", inputs, [helper.make_tensor_value_info("y", 1, ["n", 8])], initial)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    words = _exported()["minimal"]["words"]

    assert [each["key"] for each in words] == ([] if is_shown else ["minimal.inputs"])
    if is_shown:
        assert not np.isin(np.load("small/inputs.npz")["x0"], secret).any()


def _save_if(path: str, gate: str) -> None:
    """Write a model whose branches hold a weight, and a remark of the exporter."""
    kept = numpy_helper.from_array(_weights()["w"], "w")
    inputs, outputs, part = ([helper.make_tensor_value_info(each, 1, ["n", 8])] for each in "xyp")
    inner = [
        helper.make_node("MatMul", ["a", "w"], ["m"], doc_string="a secret line of code"),
        helper.make_node(gate, ["m"], ["p"]),
    ]
    branch = helper.make_graph(inner, "branch", [], part, [kept])
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=branch),
    ]
    zero = [numpy_helper.from_array(np.float32(0), "zero")]
    graph = helper.make_graph(nodes, "model", inputs, outputs, zero)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.usefixtures("rows")
def test_nodes_whose_branches_hold_weights_are_not_exported() -> None:
    for path, gate in (("reference.onnx", "Relu"), ("candidate.onnx", "Neg")):
        _save_if(path, gate)

    found = _exported()

    assert found["located"][0]["op_types"] == ["If"]
    assert found["minimal"]["words"][0]["key"] == "minimal.holds"
    assert not Path("small/candidate.onnx").exists()


@pytest.mark.parametrize(
    ("node", "is_held"),
    [
        (helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 6), False),
        (helper.make_node("ConstantOfShape", ["x"], ["y"], value=numpy_helper.from_array(np.zeros(1))), False),
        (helper.make_node("Other", ["x"], ["y"], domain="own", table=numpy_helper.from_array(np.zeros(9))), True),
        (helper.make_node("Other", ["x"], ["y"], domain="own", blob=b"0" * 99), True),
        (helper.make_node("TfIdfVectorizer", ["x"], ["y"], pool_strings=["word"] * 9), True),
        (helper.make_node("LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=[0.5, 0.25]), True),
        (helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a", "b"]), True),
    ],
)
def test_attributes_that_hold_weights_or_tables_are_known(node: onnx.NodeProto, is_held: bool) -> None:  # noqa: FBT001
    assert holds_data(node) == is_held


@pytest.mark.usefixtures("rows")
def test_equal_models_have_no_minimal_ones() -> None:
    _save("candidate.onnx", _weights())

    assert _exported()["minimal"] is None
    assert not Path("small/reference.onnx").exists()


def test_a_folder_of_others_is_not_changed(rows: _Array) -> None:
    _FAULTS["operator"][0]()
    Path("small").mkdir()
    np.savez("small/inputs.npz", x=rows)

    call = ["diagnose", "reference.onnx", "candidate.onnx", "--samples", "rows.npz", "--export-minimal", "small"]
    result = CliRunner().invoke(cli, call)

    assert result.exit_code != 0
    assert np.load("small/inputs.npz").files == ["x"]
