"""The operator at which two ONNX models part is named, whatever the tensors are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper

from paritygate.pipelines.selftest.mutations.mutation import MutationContext, NotApplicable, mutate
from paritygate.validate.divergence.locate import locate, locate_in
from paritygate.validate.divergence.result import CANNOT_TELL, CONTRACT, EQUAL, LOCATED, POSSIBLE, PROVEN, Divergence
from paritygate.validate.tensors.emulated_values import EmulatedValues
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.onnx_values import read_tensor_graph
from paritygate.validate.tensors.tensor_graph import TensorGraph

_WIDTH, _LAYERS = 16, 5
_Array = NDArray[Any]


def _model() -> onnx.ModelProto:
    """Return layers of MatMul, Add, LayerNormalization and GELU by Erf, with a residual around each."""
    random = np.random.default_rng(4)
    nodes, weights = [], []

    def constant(name: str, values: ArrayLike) -> str:
        weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def node(op_type: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op_type, inputs, [output], name=f"node_{output}", **attributes))
        return output

    one, half, root = constant("one", 1.0), constant("half", 0.5), constant("root", 2**0.5)
    x = "x"
    for at in range(_LAYERS):
        weight = constant(f"w{at}", random.normal(size=(_WIDTH, _WIDTH)) * 0.4)
        product = node("MatMul", [x, weight], f"product{at}")
        total = node("Add", [product, constant(f"b{at}", random.normal(size=_WIDTH))], f"total{at}")
        scale, shift = constant(f"g{at}", 1 + 0.1 * random.normal(size=_WIDTH)), constant(f"s{at}", np.zeros(_WIDTH))
        normal = node("LayerNormalization", [total, scale, shift], f"normal{at}", epsilon=1e-5)
        erf = node("Erf", [node("Div", [normal, root], f"scaled{at}")], f"erf{at}")
        gate = node("Mul", [normal, node("Add", [erf, one], f"raised{at}")], f"gated{at}")
        x = node("Add", [node("Mul", [gate, half], f"gelu{at}"), x], f"sum{at}")
    node("Softmax", [x], "y", axis=-1)
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, ["n", _WIDTH])] for name in "xy")
    graph = helper.make_graph(nodes, "layers", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


_FEEDS = [{"x": np.random.default_rng(at).normal(size=(6, _WIDTH)).astype(np.float32)} for at in range(4)]


def _scrambled(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with other names for all inner tensors and nodes, which end in the old one's place."""
    found = mutate(model, "tensors-renamed", MutationContext(random=np.random.default_rng(0)))
    assert not isinstance(found, NotApplicable)
    return found[0]


def _node(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if output in node.output)


def _weight(model: onnx.ModelProto, name: str, change: Callable[[_Array], _Array]) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))


def _without(model: onnx.ModelProto, output: str) -> None:
    """Take the node out; its first input goes on in place of its output."""
    lost = _node(model, output)
    for node in model.graph.node:
        node.input[:] = [lost.input[0] if name == output else name for name in node.input]
    model.graph.node.remove(lost)


def _diagnosed(tmp_path: Path, change: Callable[[onnx.ModelProto], object]) -> tuple[Divergence, onnx.ModelProto]:
    reference, candidate = _model(), _model()
    change(candidate)
    candidate = _scrambled(candidate)
    onnx.save(reference, tmp_path / "reference.onnx")
    onnx.save(candidate, tmp_path / "candidate.onnx")
    return locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS), candidate


def _first_row_lost(values: _Array) -> _Array:
    values[0] = 0
    return values


_CHANGES: Mapping[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "operator": (lambda model: setattr(_node(model, "erf2"), "op_type", "Tanh"), "node_erf2"),
    "attribute": (lambda model: setattr(_node(model, "normal1").attribute[0], "f", 0.1), "node_normal1"),
    "row": (lambda model: _weight(model, "w3", _first_row_lost), "node_product3"),
    "transposed": (lambda model: _weight(model, "w2", lambda values: values.T.copy()), "node_product2"),
    "constant": (lambda model: _weight(model, "b1", lambda values: values * 1.01), "node_total1"),
    "input": (lambda model: _node(model, "sum3").input.__setitem__(1, "sum1"), "node_sum3"),
    "lost": (lambda model: _without(model, "total2"), "node_total2"),
}


@pytest.mark.parametrize("name", _CHANGES)
def test_the_changed_node_is_named_and_proven(tmp_path: Path, name: str) -> None:
    change, changed = _CHANGES[name]

    found, _ = _diagnosed(tmp_path, change)

    assert found.outcome == LOCATED
    assert changed in {node for place in found.located for node in place.reference_nodes}
    assert len(found.located) == 1
    assert found.located[0].proven


def test_a_difference_between_rounding_and_a_fault_is_not_said_to_be_none(tmp_path: Path) -> None:
    found, _ = _diagnosed(tmp_path, lambda model: _weight(model, "g4", lambda values: values * (1 + 2e-5)))

    assert found.error is not None
    assert 5e-6 < found.error < 5e-5
    assert (found.outcome, found.located) == (CANNOT_TELL, ())
    assert found.matched


def test_two_faults_are_both_named(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        _weight(model, "w1", _first_row_lost)
        _node(model, "erf3").op_type = "Tanh"

    found, _ = _diagnosed(tmp_path, change)

    assert {node for place in found.located for node in place.reference_nodes} == {"node_product1", "node_erf3"}
    assert all(place.proven for place in found.located)


def _in_series(slope: float, last: str) -> onnx.ModelProto:
    """Return a chain in which each node hides what is wrong before it."""
    random = np.random.default_rng(11)
    weights = [numpy_helper.from_array(random.normal(size=(4, 4)).astype(np.float32), name) for name in ("v", "w")]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["first"], name="first"),
        helper.make_node("LeakyRelu", ["first"], ["leaky"], name="leaky", alpha=slope),
        helper.make_node("MatMul", ["leaky", "w"], ["second"], name="second"),
        helper.make_node(last, ["second"], ["bent"], name="bent"),
        helper.make_node("Neg", ["bent"], ["y"], name="negated"),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, ["n", 4])] for name in "xy")
    graph = helper.make_graph(nodes, "series", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("slope", "last", "wrong"),
    [(0.2, "Softsign", ["leaky", "bent"]), (0.2, "Tanh", ["leaky"]), (0.01, "Softsign", ["bent"])],
)
def test_a_fault_is_not_hidden_by_a_later_one(tmp_path: Path, slope: float, last: str, wrong: list[str]) -> None:
    onnx.save(_in_series(0.01, "Tanh"), tmp_path / "reference.onnx")
    onnx.save(_scrambled(_in_series(slope, last)), tmp_path / "candidate.onnx")
    feeds = [{"x": np.random.default_rng(at).normal(size=(6, 4)).astype(np.float32)} for at in range(3)]

    found = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", feeds)

    assert [place.reference_nodes for place in found.located] == [(name,) for name in wrong]
    assert all(place.proven for place in found.located)


def test_an_output_that_reads_another_tensor_is_not_proven(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        _node(model, "y").input[0] = "sum2"

    found, _ = _diagnosed(tmp_path, change)

    assert [place.op_types for place in found.located] == [("Softmax",)]
    assert [place.certainty for place in found.located] == ["likely"]


@pytest.mark.parametrize("passing", [{"op_type": "Identity"}, {"op_type": "Cast", "to": 1}])
def test_what_passes_on_an_output_makes_no_proof(tmp_path: Path, passing: dict[str, Any]) -> None:
    def change(model: onnx.ModelProto) -> None:
        last = _node(model, "y")
        last.input[0], last.output[0] = "sum2", "values"
        model.graph.node.append(helper.make_node(inputs=["values"], outputs=["y"], name="passing", **passing))

    found, _ = _diagnosed(tmp_path, change)

    assert [(place.op_types, place.certainty) for place in found.located] == [(("Softmax",), "likely")]


def test_a_small_fault_after_a_large_one_is_proven_too(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        _node(model, "erf1").op_type = "Sign"
        _weight(model, "w4", lambda values: values * np.float32(1.0005))

    found, _ = _diagnosed(tmp_path, change)

    assert {place.reference_nodes for place in found.located} == {("node_erf1",), ("node_product4",)}
    assert all(place.proven for place in found.located)


@pytest.mark.parametrize("seed", [3, 8])
def test_pairs_of_faults_in_series_are_proven_together_or_not_at_all(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = sorted(random.choice(_LAYERS, size=2, replace=False).tolist())

    def change(model: onnx.ModelProto) -> None:
        _weight(model, f"w{first}", lambda values: values * np.float32(1.01))
        _weight(model, f"b{second}", _first_row_lost)

    found, _ = _diagnosed(tmp_path, change)
    proven = {node for place in found.located if place.proven for node in place.reference_nodes}

    assert proven == {f"node_product{first}", f"node_total{second}"}


_NORM = """<ir_version: 9, opset_import: ["": 17]> norm (float[n,16] x) => (float[n,16] y) {
    m = ReduceMean <axes=[1]> (x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean <axes=[1]> (s)
    %s r = Sqrt(u) y = Div(d, r) }"""
_EPSILON = "e = Constant <value_float = {}> () u = Add(v, e)"


@pytest.mark.parametrize(
    ("candidate", "key"),
    [
        (_EPSILON.format("0.0"), "divergence.constant"),
        (_EPSILON.replace("Add(v, e)", "Add(e, v)").format("0.0"), "divergence.constant"),
        ("u = Identity(v)", "divergence.constant_there"),
    ],
)
@pytest.mark.parametrize("size", [1e-3, 0.0])
def test_an_epsilon_of_zero_is_a_constant_that_differs(tmp_path: Path, candidate: str, key: str, size: float) -> None:
    for name, text in (("reference", _EPSILON.format("0.00001")), ("candidate", candidate)):
        onnx.save(onnx.parser.parse_model(_NORM % text), tmp_path / f"{name}.onnx")
    feeds = [{"x": np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32) * np.float32(size)}]

    (place,) = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", feeds).located

    assert place.proven
    assert place.reference_op_types == ("Add",)
    assert [sentence.key for sentence in place.words] == [key]


_FILLED = """<ir_version: 9, opset_import: ["": 17]> masked (float[n,16] x) => (float[n,16] y) {
    c = Constant <value_float = %s> ()
    [neg] d = Neg(x) [relu] r = Relu(x) [mul] m = Mul(r, c) [add] a = Add(d, m) [softmax] y = Softmax(a) }"""


def test_a_node_that_a_constant_of_zero_hides_is_not_called_missing(tmp_path: Path) -> None:
    for name, value in (("reference", "-10000.0"), ("candidate", "0.0")):
        onnx.save(onnx.parser.parse_model(_FILLED % value), tmp_path / f"{name}.onnx")

    (place,) = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS).located

    assert (place.candidate_nodes, place.reference_nodes) == (("mul",), ("mul",))
    assert [sentence.key for sentence in place.words] == ["divergence.constant"]
    assert place.proven


def test_a_node_that_keeps_values_is_not_blamed_with_a_lost_one(tmp_path: Path) -> None:
    reference = _model()
    at = next(at for at, node in enumerate(reference.graph.node) if "total2" in node.output)
    reference.graph.node[at].output[0] = "raw"
    reference.graph.node.insert(at + 1, helper.make_node("Identity", ["raw"], ["total2"], name="kept"))
    candidate = _model()
    _without(candidate, "total2")
    onnx.save(reference, tmp_path / "reference.onnx")
    onnx.save(_scrambled(candidate), tmp_path / "candidate.onnx")

    (place,) = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS).located

    assert place.reference_nodes == ("node_total2",)
    assert place.proven


def test_rounding_of_all_weights_is_one_place(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        for at in range(_LAYERS):
            _weight(model, f"w{at}", lambda values: (values.view(np.uint32) & 0xFFFF0000).view(np.float32))

    found, _ = _diagnosed(tmp_path, change)

    assert len(found.located) == 1
    assert set(found.located[0].reference_nodes) == {f"node_product{at}" for at in range(_LAYERS)}
    assert found.located[0].proven


@pytest.mark.parametrize("name", ["layernorm-unfused", "identities-added", "constants-folded", "operators-fused"])
def test_an_equivalent_rewrite_is_not_blamed(tmp_path: Path, name: str) -> None:
    reference = _model()
    rewritten = mutate(_model(), name, MutationContext(random=np.random.default_rng(0)))
    assert not isinstance(rewritten, NotApplicable)
    onnx.save(reference, tmp_path / "reference.onnx")
    onnx.save(rewritten[0], tmp_path / "candidate.onnx")

    assert locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS).outcome == EQUAL


def test_a_fault_behind_fused_operators_is_named(tmp_path: Path) -> None:
    candidate = _model()
    _weight(candidate, "w3", _first_row_lost)
    rewritten = mutate(candidate, "layernorm-unfused", MutationContext(random=np.random.default_rng(0)))
    assert not isinstance(rewritten, NotApplicable)
    onnx.save(_model(), tmp_path / "reference.onnx")
    onnx.save(_scrambled(rewritten[0]), tmp_path / "candidate.onnx")

    found = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS)

    assert [place.reference_nodes for place in found.located] == [("node_product3",)]


def test_another_shape_of_the_output_is_the_contract(tmp_path: Path) -> None:
    candidate = _model()
    candidate.graph.node.append(helper.make_node("ReduceMean", ["y"], ["z"], axes=[1]))
    candidate.graph.output[0].name = "z"
    onnx.save(_model(), tmp_path / "reference.onnx")
    onnx.save(candidate, tmp_path / "candidate.onnx")

    assert locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS).outcome == CONTRACT


def _labelled(shift: float) -> onnx.ModelProto:
    """Return a classifier whose outputs are labels (text) and probabilities (a sequence of maps)."""
    random = np.random.default_rng(6)
    weights = [numpy_helper.from_array(random.normal(size=(4, 3)).astype(np.float32), "w")]
    weights.append(numpy_helper.from_array(np.asarray([0, shift, 0], np.float32), "b"))
    labels = helper.make_tensor("names", onnx.TensorProto.STRING, [3], [b"cat", b"dog", b"owl"])
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["logits"], name="scores"),
        helper.make_node("ArgMax", ["logits"], ["at"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "at"], ["label"], name="label_of"),
        helper.make_node("Softmax", ["logits"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["cat", "dog", "owl"]),
    ]
    kind = helper.make_map_type_proto(onnx.TensorProto.STRING, helper.make_tensor_type_proto(1, None))
    outputs = [
        helper.make_tensor_value_info("label", onnx.TensorProto.STRING, ["n"]),
        helper.make_value_info("maps", helper.make_sequence_type_proto(kind)),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 4])]
    graph = helper.make_graph(nodes, "labelled", inputs, outputs, [*weights, labels])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("shift", "outcome"), [(0.0, EQUAL), (0.5, LOCATED)])
def test_labels_and_maps_are_compared_by_value(tmp_path: Path, shift: float, outcome: str) -> None:
    onnx.save(_labelled(0.0), tmp_path / "reference.onnx")
    onnx.save(_labelled(shift), tmp_path / "candidate.onnx")
    feeds = [{"x": np.random.default_rng(at).normal(size=(9, 4)).astype(np.float32)} for at in range(2)]

    found = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", feeds)

    assert found.outcome == outcome
    assert [place.candidate_nodes for place in found.located] == ([("scores",)] if shift else [])
    assert found.not_located == ()


def test_another_label_is_a_difference(tmp_path: Path) -> None:
    candidate = _labelled(0.0)
    candidate.graph.initializer[2].string_data[1] = b"wolf"
    onnx.save(_labelled(0.0), tmp_path / "reference.onnx")
    onnx.save(candidate, tmp_path / "candidate.onnx")
    feeds = [{"x": np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)}]

    found = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", feeds)

    assert found.outcome == LOCATED
    assert [place.candidate_nodes for place in found.located] == [("label_of",)]


def _branched(gate: str = "Relu", by: float = 1.0, remark: str = "", shown: float = 0.0) -> onnx.ModelProto:
    """Return a model whose `If` has the node of a gate inside, and reads a weight of the model."""
    inner = [
        helper.make_node("MatMul", ["bent", "w"], ["product"], doc_string=remark),
        helper.make_node(gate, ["product"], ["part"]),
    ]
    branch = helper.make_graph(inner, "branch", [], [helper.make_tensor_value_info("part", 1, ["n", _WIDTH])])
    nodes = [
        helper.make_node("Tanh", ["x"], ["bent"], name="tanh"),
        helper.make_node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["is_positive"], name="greater"),
        helper.make_node("If", ["is_positive"], ["branched"], name="if", then_branch=branch, else_branch=branch),
        helper.make_node("Shape", ["branched"], ["shape"], name="shape"),
        helper.make_node(
            "ConstantOfShape", ["shape"], ["filled"], name="fill", value=numpy_helper.from_array(np.float32([shown]))
        ),
        helper.make_node("Add", ["branched", "filled"], ["y"], name="add"),
    ]
    weight = np.eye(_WIDTH, dtype=np.float32)[::-1] * np.float32(by)
    weights = [numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(weight.copy(), "w")]
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, ["n", _WIDTH])] for name in "xy")
    graph = helper.make_graph(nodes, "branched", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("candidate", "node", "names"),
    [
        ({"gate": "Neg"}, "if", ["else_branch", "then_branch"]),
        ({"by": 2.0}, "if", ["else_branch", "then_branch"]),
        ({"shown": 3.0, "remark": "a line"}, "fill", ["value"]),
    ],
)
def test_graphs_and_tensors_in_attributes_are_compared(
    tmp_path: Path, candidate: dict[str, Any], node: str, names: list[str]
) -> None:
    onnx.save(_branched(), tmp_path / "reference.onnx")
    onnx.save(_branched(**candidate), tmp_path / "candidate.onnx")

    (place,) = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS).located

    assert place.candidate_nodes == (node,)
    attributes = [each for each in place.words if each.key == "divergence.attribute"]
    assert [each.values["name"] for each in attributes] == names
    assert "equal" not in place.what


def _masked(scale: float) -> onnx.ModelProto:
    """Return a product plus a bias of a mask, which is all zeros where nothing is masked."""
    weights = [numpy_helper.from_array(np.random.default_rng(7).normal(size=(4, 4)).astype(np.float32) * scale, "w")]
    weights.append(numpy_helper.from_array(np.float32(-1e4), "low"))
    nodes = [
        helper.make_node("Cast", ["mask"], ["floats"], to=1, name="cast"),
        helper.make_node("Mul", ["floats", "low"], ["bias"], name="mask_bias"),
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Add", ["product", "bias"], ["sum"], name="sum"),
        helper.make_node("Softmax", ["sum"], ["y"], name="softmax"),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 4]), helper.make_tensor_value_info("mask", 9, ["n", 4])]
    outputs = [helper.make_tensor_value_info("y", 1, ["n", 4])]
    graph = helper.make_graph(nodes, "masked", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_tensor_of_equal_values_is_not_blamed(tmp_path: Path) -> None:
    onnx.save(_masked(1.0), tmp_path / "reference.onnx")
    onnx.save(_scrambled(_masked(1.3)), tmp_path / "candidate.onnx")
    feeds = [{"x": np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32), "mask": np.zeros((5, 4), bool)}]

    found = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", feeds)

    assert [place.reference_nodes for place in found.located] == [("product",)]


def _squares(*, is_half: bool) -> onnx.ModelProto:
    """Return the sum of squares of a tensor that is rounded to FP16, which ends at 65,504, or not."""
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=10 if is_half else 1, name="lower"),
        helper.make_node("Cast", ["h"], ["back"], to=1, name="raise"),
        helper.make_node("Mul", ["back", "back"], ["squares"], name="square"),
        helper.make_node("ReduceSum", ["squares"], ["y"], name="sum"),
    ]
    inputs, outputs = [helper.make_tensor_value_info("x", 1, ["n", 4])], [helper.make_tensor_value_info("y", 1, [1, 1])]
    graph = helper.make_graph(nodes, "squares", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("size", "blamed"), [(1e5, [("lower",)]), (1.0, [])])
def test_an_overflow_is_named_and_rounding_is_not(tmp_path: Path, size: float, blamed: list[tuple[str, ...]]) -> None:
    for is_half in (False, True):
        onnx.save(_squares(is_half=is_half), tmp_path / f"{is_half}.onnx")
    feeds = [{"x": np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32) * np.float32(size)}]

    found = locate(tmp_path / "False.onnx", tmp_path / "True.onnx", feeds)

    assert found.outcome == (LOCATED if blamed else CANNOT_TELL)
    assert [place.candidate_nodes for place in found.located] == blamed


_HALF = '<ir_version: 8, opset_import: ["": 17]> half (float[n,8] x) => (float[n,8] y) %s'
_OPENED = "{ h = Cast<to = TO>(x) "
_CLOSED = " y = Cast<to = 1>(d) }"
# An infinite mean of squares divides to 0, so no output shows the overflow; the other sum is infinite at once.
_HIDDEN = "s = Mul(h, h) m = ReduceMean<axes = [1]>(s) r = Sqrt(m) d = Div(h, r)"
_SHOWN = "s = Mul(h, h) d = Add(s, h)"
_SCALED = "k = Constant<value_float = {}>() c = Cast<to = TO>(k) s = Mul(h, c) a = Abs(s) e = Sqrt(a) d = Neg(e)"
_MASKED = (
    "z = Constant<value_float = 0.0>() k = Constant<value_float = -1e9>() w = Constant<value_float = 0.0>() "
    "g = Greater(x, z) f = Where(g, w, k) b = Cast<to = TO>(f) v = {}(h) q = Add(v, b) d = Softmax(q)"
)


@pytest.mark.parametrize(
    ("bodies", "size", "blamed", "key"),
    [
        ((_HIDDEN, _HIDDEN), 300.0, ("Mul",), "divergence.overflow"),
        ((_SHOWN, _SHOWN), 300.0, ("Mul",), "divergence.overflow"),
        # The constant is wrong, and its values overflow for that reason alone.
        ((_SCALED.format("3.0"), _SCALED.format("300.0")), 300.0, ("Mul",), "divergence.constant"),
        # A mask becomes minus infinity on purpose.
        ((_MASKED.format("Sigmoid"), _MASKED.format("HardSigmoid")), 1.0, ("HardSigmoid",), "divergence.operator"),
    ],
)
def test_values_beyond_fp16_are_an_overflow_and_no_lost_node(
    tmp_path: Path, bodies: tuple[str, str], size: float, blamed: tuple[str, ...], key: str
) -> None:
    for name, text, to in (("reference", bodies[0], "1"), ("candidate", bodies[1], "10")):
        whole = _HALF % f"{_OPENED}{text}{_CLOSED}".replace("TO", to)
        onnx.save(onnx.parser.parse_model(whole), tmp_path / f"{name}.onnx")
    feeds = [
        {"x": np.random.default_rng(at).normal(size=(6, 8)).astype(np.float32) * np.float32(size)} for at in (1, 2)
    ]
    theirs, ours = (read_tensor_graph(tmp_path / f"{name}.onnx", Meter()) for name in ("reference", "candidate"))

    # ONNX Runtime computes most of FP16 in FP32, so the device is emulated.
    emulated = replace(ours, values=EmulatedValues(ours.model, ours.path))
    (place,) = locate_in(theirs, emulated, feeds).located

    assert (place.op_types, place.words[0].key) == (blamed, key)
    if key == "divergence.overflow":
        assert place.reference_op_types == blamed
        largest = max(float((feed["x"] ** 2).max()) for feed in feeds)
        assert place.words[0].values["largest"] == pytest.approx(largest, rel=1e-2)


def test_a_budget_ends_the_search(tmp_path: Path) -> None:
    candidate = _model()
    _weight(candidate, "w3", _first_row_lost)
    onnx.save(_model(), tmp_path / "reference.onnx")
    onnx.save(candidate, tmp_path / "candidate.onnx")
    whole = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS)
    assert not whole.is_partial

    parts = [
        locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS, most_tensors=most)
        for most in (1, whole.computed - 1, whole.computed)
    ]

    assert [part.is_partial for part in parts] == [True, True, False]
    assert parts[0].outcome == CANNOT_TELL
    assert all(part.computed <= whole.computed for part in parts)


def test_an_operator_lost_before_two_readers_is_one_proven_place(tmp_path: Path) -> None:
    norm = _NORM.replace("d = Sub(x, m)", "d = Sub(w, m)").replace(
        "ReduceMean <axes=[1]> (x)", "ReduceMean <axes=[1]> (w)"
    )
    for name, first in (("reference", "w = Tanh(x)"), ("candidate", "w = Identity(x)")):
        text = norm.replace("m = ReduceMean", f"{first} m = ReduceMean") % _EPSILON.format("0.00001")
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    feeds = [{"x": np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)}]

    (place,) = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", feeds).located

    assert place.reference_nodes == ("Tanh",)
    assert place.proven


_CHAIN = """<ir_version: 9, opset_import: ["": 17]> chain (float[n,16] x) => (float[n,16] y) {
    v0 = Sin(x) %s y = Neg(v%d) }"""


@pytest.mark.parametrize(
    ("operators", "sizes", "certainty"),
    [
        (("Softplus Atan Sigmoid Erf Elu", "Softsign Cos Exp Sqrt Tanh"), (4, 5), PROVEN),
        (("Softplus Atan Sigmoid Erf", "Softsign Cos Exp Sqrt"), (5, 5), POSSIBLE),
        (("Softplus Atan", "Softsign Cos Exp Sqrt Tanh"), (3, 6), PROVEN),
    ],
)
def test_a_place_of_more_than_four_nodes_on_both_sides_is_possible_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operators: tuple[str, str],
    sizes: tuple[int, int],
    certainty: str,
) -> None:
    # Only places of two frameworks have several nodes on both sides.
    monkeypatch.setattr(TensorGraph, "framework", property(lambda graph: graph.path.stem))
    for name, chain in zip(("candidate", "reference"), operators, strict=True):
        nodes = [f"v{at + 1} = {operator}(v{at})" for at, operator in enumerate(chain.split())]
        text = _CHAIN % (" ".join(nodes), len(nodes))
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")

    (place,) = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _FEEDS).located

    assert (len(place.candidate_nodes), len(place.reference_nodes)) == sizes
    assert place.certainty == certainty
