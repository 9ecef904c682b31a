"""Walking graphs: nodes inside subgraphs, names, inferred types."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from paritygate.models.onnx.graph import (
    NOT_A_TENSOR,
    UniqueNames,
    element_types,
    graphs_in,
    infer_value_types,
    name_nodes,
    names_in,
    nodes_in,
)

_NESTED = """
< ir_version: 8, opset_import: ["" : 17] >
nested (bool flag, float[N] x) => (float[N] y) {
    z = Exp (x)
    y = If (flag) <
        then_branch = outer () => (t) {
            t = If (flag) <
                then_branch = inner () => (i) { n = Neg (z) i = Abs (n) },
                else_branch = other () => (o) { o = Neg (z) }
            >
        },
        else_branch = last () => (e) { e = Exp (z) }
    >
}
"""


def _parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def test_nodes_of_nested_graphs_are_walked_outer_ones_first() -> None:
    model = _parsed(_NESTED)
    assert [graph.name for graph in graphs_in(model.graph)] == ["nested", "outer", "inner", "other", "last"]
    assert [node.op_type for node in nodes_in(model.graph)] == ["Exp", "If", "If", "Neg", "Abs", "Neg", "Exp"]
    assert {"z", "n", "i", "o", "e", "t", "y", "x", "flag"} <= set(names_in(model.graph))


def test_a_unique_name_is_never_handed_out_twice_nor_one_that_is_taken() -> None:
    names = UniqueNames(["a", "a_1"])
    assert [names.new("a"), names.new("a"), names.new("b"), names.new("a_1")] == ["a_2", "a_3", "b", "a_1_1"]


def test_nodes_without_a_name_get_the_same_names_every_time() -> None:
    first, second = _parsed(_NESTED), _parsed(_NESTED)
    name_nodes(first.graph)
    name_nodes(second.graph)
    names = [node.name for node in nodes_in(first.graph)]
    assert names == ["Exp", "If", "If_1", "Neg", "Abs", "Neg_1", "Exp_1"]
    assert names == [node.name for node in nodes_in(second.graph)]


def test_of_nodes_that_share_a_name_the_first_keeps_it() -> None:
    model = _parsed(_NESTED)
    for node in nodes_in(model.graph):
        node.name = "same"
    name_nodes(model.graph)
    assert [node.name for node in nodes_in(model.graph)][:3] == ["same", "same_1", "same_2"]


def test_types_are_inferred_in_subgraphs_too_and_stated_ones_stay() -> None:
    model = _parsed(_NESTED)
    infer_value_types(model)
    graphs = {graph.name: graph for graph in graphs_in(model.graph)}
    assert element_types(graphs["nested"])["z"] == TensorProto.FLOAT
    assert element_types(graphs["inner"]) == {"n": TensorProto.FLOAT, "i": TensorProto.FLOAT}
    assert element_types(graphs["outer"])["t"] == TensorProto.FLOAT


def test_a_sequence_has_no_element_type_of_a_tensor() -> None:
    model = _parsed(
        '< ir_version: 8, opset_import: ["" : 17] > g (float[N] x) => (float[N] y)'
        "{ s = SequenceConstruct (x, x) i = Constant <value = int64 {0}> () y = SequenceAt (s, i) }"
    )
    infer_value_types(model)
    assert element_types(model.graph)["s"] == NOT_A_TENSOR


def test_what_an_unknown_operator_makes_stays_untyped() -> None:
    model = _parsed(
        '< ir_version: 8, opset_import: ["" : 17, "my" : 1] > g (float[N] x) => (float[N] y)'
        "{ a = my.Thing (x) b = Exp (a) y = Neg (x) }"
    )
    infer_value_types(model)
    assert element_types(model.graph).keys() == {"x", "y"}


def test_inference_does_not_touch_weights() -> None:
    model = _parsed(
        '< ir_version: 8, opset_import: ["" : 17] > g (float[N,2000] x) => (float[N,3] y) { y = MatMul (x, w) }'
    )
    weights = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2000, 3], raw_data=b"\x01" * 24000)
    model.graph.initializer.append(weights)
    infer_value_types(model)
    assert model.graph.initializer[0] == weights
