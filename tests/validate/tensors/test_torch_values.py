"""The operators of a PyTorch model, as it runs, are the reference of an ONNX file made by other means."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import paritygate
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.result import CANNOT_TELL, EQUAL, LIKELY, LOCATED, POSSIBLE, Divergence
from paritygate.validate.tensors.inner_values import read_inner
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.opening import open_graph, open_graphs
from paritygate.validate.tensors.tensor_graph import TensorGraph

pytestmark = pytest.mark.torch

_CODE = """
import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        query = self.query(x)
        weights = functional.softmax(query @ x.transpose(1, 2) / 2, dim=-1)
        mixed = functional.gelu(self.out(weights @ x))
        return self.norm(mixed + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Written(nn.Module):
    def forward(self, x):
        y = x * 2
        part = y[:, 0]
        part.add_(3)
        return functional.scaled_dot_product_attention(y, y, y)


class Steps(nn.Module):
    def forward(self, x):
        normal = functional.layer_norm(x * 0.01, (8,), eps=1e-5)
        return functional.softmax(3 * functional.gelu(normal), dim=-1)


def load():
    torch.manual_seed(3)
    return Net().eval()


def steps():
    return Steps().eval()


def written():
    return Written().eval()


class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.x = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return {"score": torch.sigmoid(self.score(x * self.x))}


def scored():
    torch.manual_seed(3)
    return Scored().eval()
"""
_FEEDS = [{"x": np.random.default_rng(at).normal(size=(2, 4, 8)).astype(np.float32)} for at in range(3)]
_Array = NDArray[Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the code of the models."""
    place = tmp_path_factory.mktemp("recorded")
    (place / "recorded_net.py").write_text(_CODE)
    return place


@pytest.fixture(scope="module")
def source(folder: Path) -> ModelRef:
    """Return the reference."""
    return parse_source("recorded_net:load", folder)


def _onnx_of(net: Any) -> onnx.ModelProto:  # noqa: ANN401 - of the code above
    """Return the network as an exporter could write it: other names, GELU and normalization in small operators."""
    nodes, weights = [], []

    def constant(values: Any) -> str:  # noqa: ANN401 - a tensor or a number
        array = values.detach().numpy() if hasattr(values, "detach") else np.asarray(values, np.float32)
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array), f"c{len(weights)}"))
        return weights[-1].name

    def node(operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401 - of any operator
        name = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}_{len(nodes)}", **attributes))
        return name

    def linear(x: str, part: Any) -> str:  # noqa: ANN401 - a torch.nn.Linear
        return node("Add", node("MatMul", x, constant(part.weight.T)), constant(part.bias))

    x = "x"
    for layer in net.layers:
        scores = node("MatMul", linear(x, layer.query), node("Transpose", x, perm=[0, 2, 1]))
        mixed = node("MatMul", node("Softmax", node("Mul", scores, constant(0.5)), axis=-1), x)
        out = linear(mixed, layer.out)
        erf = node("Add", node("Erf", node("Mul", out, constant(2**-0.5))), constant(1.0))
        total = node("Add", node("Mul", node("Mul", out, constant(0.5)), erf), x)
        off = node("Sub", total, node("ReduceMean", total, axes=[-1]))
        spread = node("ReduceMean", node("Mul", off, off), axes=[-1])
        scaled = node("Div", off, node("Sqrt", node("Add", spread, constant(1e-5))))
        x = node("Add", node("Mul", scaled, constant(layer.norm.weight)), constant(layer.norm.bias))
    pooled = node("ReduceMean", x, axes=[1], keepdims=0)
    node("Gemm", pooled, constant(net.head.weight), constant(net.head.bias), transB=1, output="logits")
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 4, 8])]
    outputs = [helper.make_tensor_value_info("logits", 1, ["n", 3])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def exported(source: ModelRef) -> onnx.ModelProto:
    """Return the ONNX model that computes what the network does."""
    sys.path.insert(0, str(source.folder))
    try:
        import recorded_net
    finally:
        sys.path.pop(0)
    return _onnx_of(recorded_net.load())


def _located(source: ModelRef, model: onnx.ModelProto, folder: Path) -> Divergence:
    onnx.save(model, folder / "candidate.onnx")
    candidate = ModelRef(text="candidate.onnx", folder=folder, kind=SourceKind.ONNX)
    return locate_in(*open_graphs(source, candidate, _FEEDS), _FEEDS)


def _nodes(model: onnx.ModelProto, operator: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == operator]


def _weight(model: onnx.ModelProto, name: str, change: Callable[[_Array], _Array]) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor).copy())), name))


def _operator(model: onnx.ModelProto, old: str, new: str, at: int) -> None:
    _nodes(model, old)[at].op_type = new


def _zero_row(values: _Array) -> _Array:
    values[2] = 0
    return values


def _lost_bias(model: onnx.ModelProto) -> None:
    """Take the bias of the first layer's last linear out."""
    lost = model.graph.node[8]
    assert lost.op_type == "Add"
    for node in model.graph.node:
        node.input[:] = [lost.input[0] if name == lost.output[0] else name for name in node.input]
    model.graph.node.remove(lost)


_FAULTS: dict[str, tuple[Callable[[onnx.ModelProto], object], str, str]] = {
    "GELU by Tanh": (lambda model: _operator(model, "Erf", "Tanh", 1), "layers.1.gelu", "gelu"),
    "Softmax along another axis": (
        lambda model: model.graph.node[5].attribute[0].CopyFrom(helper.make_attribute("axis", 1)),
        "layers.0.softmax",
        "softmax",
    ),
    "epsilon": (lambda model: _weight(model, "c8", lambda values: values * 1000), "layers.0.norm", "layer_norm"),
    "weight transposed": (lambda model: _weight(model, "c0", lambda values: values.T), "layers.0.query", "linear"),
    "row of a weight zero": (lambda model: _weight(model, "c3", _zero_row), "layers.0.out", "linear"),
    "bias lost": (_lost_bias, "layers.0.out", "linear"),
    "sum by Sub": (lambda model: _operator(model, "Add", "Sub", 3), "layers.0.add", "add"),
    "head": (lambda model: _weight(model, "c22", lambda values: values * 2), "head", "linear"),
}  # fmt: skip


_CHEAP = ("GELU by Tanh", "bias lost", "weight transposed")


@pytest.mark.parametrize(
    "fault", [fault if fault in _CHEAP else pytest.param(fault, marks=pytest.mark.thorough) for fault in _FAULTS]
)
def test_a_fault_is_named_by_module_operator_and_line(
    fault: str, source: ModelRef, exported: onnx.ModelProto, tmp_path: Path
) -> None:
    change, name, operator = _FAULTS[fault]
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    change(model)

    found = _located(source, model, tmp_path)

    assert found.outcome == LOCATED
    (place,) = found.located
    assert place.reference_nodes == (name,)
    assert place.reference_op_types == (operator,)
    assert place.proven
    line = _CODE.splitlines()[int(place.reference_code[0].removeprefix("recorded_net.py:")) - 1]
    assert name.rpartition(".")[2] in line or operator in line or "mixed + x" in line


def test_a_right_export_is_equal(source: ModelRef, exported: onnx.ModelProto, tmp_path: Path) -> None:
    assert _located(source, exported, tmp_path).outcome == EQUAL


def test_what_the_candidate_adds_is_named_and_the_reference_has_nothing(
    source: ModelRef, exported: onnx.ModelProto, tmp_path: Path
) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    softmax = model.graph.node[5]
    added = helper.make_node("Tanh", [softmax.input[0]], ["added"], name="added")
    softmax.input[0] = "added"
    model.graph.node.insert(5, added)

    (place,) = _located(source, model, tmp_path).located

    assert place.candidate_nodes == ("added",)
    assert place.proven


_STEPS = """<ir_version: 9, opset_import: ["": 20]> steps (float[n,4,8] x) => (float[n,4,8] logits)
<float[8] one = {1, 1, 1, 1, 1, 1, 1, 1}, float three = {3}, float small = {0.01}> {
  a = Mul(x, small) b = LayerNormalization<epsilon = EPSILON>(a, one) c = Gelu<approximate = "APPROXIMATE">(b)
  d = Mul(c, three) logits = Softmax<axis = AXIS>(d) }"""


@pytest.mark.parametrize(
    ("changed", "name", "nodes"),
    [
        ({"EPSILON": "0.001"}, "epsilon", ("LayerNormalization", "layer_norm")),
        ({"APPROXIMATE": "tanh"}, "approximate", ("Gelu", "gelu")),
        ({"AXIS": "1"}, "axis", ("Softmax", "softmax")),
        ({"AXIS": "2"}, "", ()),
    ],
)
def test_an_attribute_that_differs_is_named_with_both_values(
    folder: Path, tmp_path: Path, changed: dict[str, str], name: str, nodes: tuple[str, ...]
) -> None:
    text = _STEPS
    for word, value in {"EPSILON": "0.00001", "APPROXIMATE": "none", "AXIS": "-1", **changed}.items():
        text = text.replace(word, value)

    found = _located(parse_source("recorded_net:steps", folder), onnx.parser.parse_model(text), tmp_path)

    named = [(*place.op_types, *place.reference_op_types) for place in found.located]
    assert named == ([nodes] if name else [])
    if name:
        (sentence,) = found.located[0].words
        assert (sentence.key, sentence.values["name"]) == ("divergence.attribute", name)
        assert found.located[0].proven


def test_of_several_faults_none_is_proven_without_the_others(
    source: ModelRef, exported: onnx.ModelProto, tmp_path: Path
) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    _weight(model, "c3", _zero_row)
    _operator(model, "Erf", "Tanh", 0)
    wrong = {node.name for node in model.graph.node if "c3" in node.input or node.op_type == "Tanh"}

    found = _located(source, model, tmp_path)

    assert found.located
    proven = {name for place in found.located if place.proven for name in place.candidate_nodes}
    assert not proven or wrong <= proven
    assert wrong <= {name for place in found.located for name in place.candidate_nodes}
    # A run names the first one, and only the others may be right.
    assert [place.certainty for place in found.located] == [LIKELY, POSSIBLE]


def test_two_differences_in_one_operator_are_both_described(
    source: ModelRef, exported: onnx.ModelProto, tmp_path: Path
) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    _weight(model, "c9", _zero_row)
    _weight(model, "c8", lambda values: values * 1000)

    (place,) = _located(source, model, tmp_path).located

    assert {sentence.key for sentence in place.words} >= {"divergence.constant", "divergence.attribute"}


def test_rows_beyond_the_budget_claim_nothing(source: ModelRef, exported: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(exported, tmp_path / "candidate.onnx")
    candidate = ModelRef(text="candidate.onnx", folder=tmp_path, kind=SourceKind.ONNX)

    found = locate_in(*open_graphs(source, candidate, _FEEDS, 1), _FEEDS)

    assert found.outcome == CANNOT_TELL
    assert found.is_partial


def _graph(name: str, folder: Path) -> TensorGraph:
    return open_graph(parse_source(f"recorded_net:{name}", folder), _FEEDS, Meter())


def test_memory_that_is_written_to_through_a_view_is_another_tensor(folder: Path) -> None:
    graph = _graph("written", folder)
    operators = [node.op_type for node in graph.nodes]
    read = dict(read_inner(graph, graph.inner(), _FEEDS[:1]))
    written = _FEEDS[0]["x"] * 2
    before = read[graph.nodes[0].output[0]][0].copy()
    written[:, 0] += 3

    assert np.array_equal(before, _FEEDS[0]["x"] * 2)
    alias = next(node for node in graph.nodes if node.op_type == "alias")
    assert np.array_equal(read[alias.output[0]][0], written)
    # Attention is recorded in its steps.
    assert "scaled_dot_product_attention" not in operators
    assert any("softmax" in operator for operator in operators)


def test_values_are_put_into_a_recorded_model(source: ModelRef) -> None:
    graph = open_graph(source, _FEEDS, Meter())
    zero = np.zeros((2, 8), np.float32)

    (_, forced), *_ = read_inner(graph, graph.outputs, _FEEDS[:1], {"mean": [zero]})

    assert np.allclose(forced[0], graph.weights["head.bias"].load(), atol=1e-6)


def test_a_module_and_a_weight_may_have_the_names_of_an_output_and_an_input(folder: Path) -> None:
    graph = _graph("scored", folder)

    read = dict(read_inner(graph, graph.inner(), _FEEDS[:1]))

    assert [node.name for node in graph.nodes] == ["mul", "score", "sigmoid"]
    assert len(set(graph.inner())) == len(graph.inner()) == len(graph.nodes)
    inner = read[graph.producers["score"].input[0]][0]
    np.testing.assert_allclose(read["score"][0], 1 / (1 + np.exp(-inner)), rtol=1e-5)


def test_a_wrong_operator_of_a_candidate_that_makes_its_output_is_proven(
    source: ModelRef, exported: onnx.ModelProto, tmp_path: Path
) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(exported)
    _weight(changed, "c22", lambda values: values * 2)
    onnx.save(changed, tmp_path / "reference.onnx")
    reference = ModelRef(text="reference.onnx", folder=tmp_path, kind=SourceKind.ONNX)

    found = locate_in(*open_graphs(reference, source, _FEEDS), _FEEDS)

    assert [(place.candidate_nodes, place.proven) for place in found.located] == [(("head",), True)]


def test_code_in_a_folder_beside_the_package_is_named(folder: Path) -> None:
    file = Path(paritygate.__file__).parents[2].parent / "beside" / "net.py"
    (folder / "beside_net.py").write_text(f"exec(compile({_CODE!r}, {str(file)!r}, 'exec'))\n")
    graph = open_graph(parse_source("beside_net:steps", folder), _FEEDS, Meter())

    assert {node.doc_string.partition(":")[0] for node in graph.nodes} == {"net.py"}
