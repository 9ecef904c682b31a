"""Which values of a graph are rounded, and what becomes of the rest of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from paritygate.errors import BackendError, UsageError
from paritygate.models.onnx.graph import graphs_in, nodes_in
from paritygate.precision import Precision
from paritygate.validate.emulation.graph import EmulatedGraph, emulate

_FLOAT, _FLOAT16, _BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
_NOWHERE = Path("nowhere")


def _model(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, NDArray[Any]] | None = None,
    *,
    element: int = _FLOAT,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", element, ["batch", 3])],
        [helper.make_tensor_value_info(name, element, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _emulated(model: onnx.ModelProto, precision: Precision = Precision.FP16) -> EmulatedGraph:
    return emulate(model, _NOWHERE, precision)


def _casts_to(graph: EmulatedGraph, element: int) -> list[str]:
    """Return what is cast to the element type, the canary left out."""
    casts = [node for node in nodes_in(graph.model.graph) if node.op_type == "Cast"]
    return [
        node.input[0] for node in casts if node.attribute[0].i == element and graph.canary_input not in node.input[0]
    ]


def _weight(graph: EmulatedGraph, name: str) -> NDArray[np.generic]:
    return numpy_helper.to_array(next(tensor for tensor in graph.model.graph.initializer if tensor.name == name))


def test_every_result_and_input_of_a_float32_original_is_rounded() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    graph = _emulated(_model(nodes))
    assert (graph.is_original, graph.rounded, graph.unrounded) == (True, 3, 0)
    assert len(_casts_to(graph, _FLOAT16)) == 4
    assert graph.inputs["x"] != "x"


@pytest.mark.parametrize(("precision", "element"), [(Precision.FP16, _FLOAT16), (Precision.BF16, _BFLOAT16)])
def test_only_what_an_artifact_has_in_lower_precision_is_rounded(precision: Precision, element: int) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["low"], to=element),
        helper.make_node("Mul", ["low", "low"], ["square"]),
        helper.make_node("Cast", ["square"], ["wide"], to=_FLOAT),
        helper.make_node("Sqrt", ["wide"], ["y"]),
    ]
    graph = _emulated(_model(nodes), precision)
    assert (graph.is_original, graph.rounded, graph.unrounded, graph.inputs) == (False, 2, 3, {"x": "x"})
    assert len(_casts_to(graph, element)) == 2


def test_no_operator_but_casts_is_left_in_lower_precision() -> None:
    value = numpy_helper.from_array(np.array([2.0, 3.0, 4.0], dtype=np.float16))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=value),
        helper.make_node("RandomUniformLike", ["x"], ["r"], dtype=_FLOAT16),
        helper.make_node("Mul", ["c", "w"], ["cw"]),
        helper.make_node("Add", ["cw", "r"], ["y"]),
    ]
    model = _model(nodes, {"w": np.ones(3, dtype=np.float16)}, element=_FLOAT16)
    graph = _emulated(model)
    typed = onnx.shape_inference.infer_shapes(graph.model, check_type=True, strict_mode=True).graph
    low = {value.name for value in typed.value_info if value.type.tensor_type.elem_type != _FLOAT}
    made_by_casts = {name for node in typed.node if node.op_type == "Cast" for name in node.output}
    assert low
    assert low <= made_by_casts
    assert {value.type.tensor_type.elem_type for value in (*typed.input, *typed.output)} == {_FLOAT}


def test_weights_of_an_original_are_rounded_and_brought_into_range() -> None:
    weights = {"w": np.array([1.0 + 2.0**-12, -1e9, -np.inf], dtype=np.float32)}
    graph = _emulated(_model([helper.make_node("Add", ["x", "w"], ["y"])], weights))
    assert _weight(graph, "w").tolist() == [1.0, -65504.0, -np.inf]
    assert graph.clamped == {"w": 1}


def test_weights_of_an_artifact_are_taken_as_they_are_stored() -> None:
    weights = {"w": np.array([1.5, -np.inf, 6e-8], dtype=np.float16)}
    graph = _emulated(_model([helper.make_node("Add", ["x", "w"], ["y"])], weights, element=_FLOAT16))
    np.testing.assert_array_equal(_weight(graph, "w"), weights["w"].astype(np.float32))
    assert graph.clamped == {}


@pytest.mark.parametrize("attribute", ["value", "value_float", "value_floats"])
def test_constants_in_attributes_are_rounded(attribute: str) -> None:
    exact = 1.0 + 2.0**-12
    tensor = numpy_helper.from_array(np.array([exact], dtype=np.float32))
    given: Any = {"value": tensor, "value_float": exact, "value_floats": [exact, -1e9]}[attribute]
    nodes = [
        helper.make_node("Constant", [], ["c"], None, None, None, None, **{attribute: given}),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    graph = _emulated(_model(nodes))
    constant = next(node for node in graph.model.graph.node if node.op_type == "Constant")
    found = helper.get_attribute_value(constant.attribute[0])
    values = numpy_helper.to_array(found) if attribute == "value" else np.atleast_1d(found)
    assert values.tolist() == ([1.0, -65504.0] if attribute == "value_floats" else [1.0])


def test_large_weights_leave_the_graph_rounded() -> None:
    weights: dict[str, NDArray[Any]] = {"w": np.full((3, 1000), 1.0 + 2.0**-12, dtype=np.float32)}
    weights["i"] = np.arange(3000, dtype=np.int64)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Gather", ["a", "i"], ["y"], axis=1)]
    graph = _emulated(_model(nodes, weights))
    assert graph.weights.keys() == {"w", "i"}
    assert np.all(graph.weights["w"] == 1.0)
    assert graph.model.ByteSize() < 3000


def test_operators_that_only_move_values_cost_no_pair() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Concat", ["r", "t"], ["y"], axis=0),
    ]
    graph = _emulated(_model(nodes))
    assert _casts_to(graph, _FLOAT16) == [graph.inputs["x"]]
    assert graph.rounded == 3


def test_a_clip_whose_bounds_are_attributes_is_rounded() -> None:
    graph = _emulated(_model([helper.make_node("Clip", ["x"], ["y"], min=-1e-9, max=1e-9)], opset=8))
    assert len(_casts_to(graph, _FLOAT16)) == 2


def test_types_left_behind_by_another_tool_are_not_believed() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    model = _model(nodes, element=_FLOAT16)
    model.graph.value_info.append(helper.make_tensor_value_info("a", _FLOAT, ["batch", 3]))
    assert _emulated(model).rounded == 2


def test_results_of_operators_of_onnxruntime_are_rounded() -> None:
    nodes = [
        helper.make_node("FastGelu", ["x"], ["a"], domain="com.microsoft"),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("BiasGelu", ["b", "w"], ["y"], domain="com.microsoft"),
    ]
    graph = _emulated(_model(nodes, {"w": np.ones(3, dtype=np.float32)}))
    assert (graph.rounded, len(_casts_to(graph, _FLOAT16))) == (3, 4)


@pytest.mark.parametrize(("precision", "element"), [(Precision.FP16, _FLOAT16), (Precision.BF16, _BFLOAT16)])
def test_results_that_onnx_does_not_infer_have_the_type_of_their_input(precision: Precision, element: int) -> None:
    nodes = [
        helper.make_node("Cast", ["w"], ["low_w"], to=element),
        helper.make_node("GroupNormalization", ["x", "low_w", "low_w"], ["a"], num_groups=1),
        helper.make_node("Exp", ["a"], ["y"]),
    ]
    graph = _emulated(_model(nodes, {"w": np.ones(3, dtype=np.float32)}, element=element, opset=21), precision)
    assert (graph.rounded, len(_casts_to(graph, element))) == (3, 3)


def test_a_result_of_unknown_type_is_refused() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["a"], domain="local"), helper.make_node("Exp", ["a"], ["y"])]
    with pytest.raises(BackendError, match="the type of 'a', made by operator local::Mystery, is not known"):
        _emulated(_model(nodes))


def test_a_result_of_unknown_type_is_accepted_where_the_file_says_it() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["a"], domain="local"), helper.make_node("Exp", ["a"], ["y"])]
    model = _model(nodes)
    model.graph.value_info.append(helper.make_tensor_value_info("a", _FLOAT, ["batch", 3]))
    assert _emulated(model).rounded == 2


def test_values_inside_subgraphs_and_functions_are_rounded() -> None:
    branch = helper.make_graph(
        [helper.make_node("Square", ["x"], ["s"], domain="local"), helper.make_node("Exp", ["s"], ["e"])],
        "branch",
        [],
        [helper.make_tensor_value_info("e", _FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["i"])], "other", [], [helper.make_tensor_value_info("i", _FLOAT, None)]
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["is_true"], to=TensorProto.BOOL),
        helper.make_node("If", ["is_true"], ["y"], then_branch=branch, else_branch=other),
    ]
    model = _model(nodes)
    body = [helper.make_node("Mul", ["v", "v"], ["m"]), helper.make_node("Neg", ["m"], ["w"])]
    model.functions.append(helper.make_function("local", "Square", ["v"], ["w"], body, [helper.make_opsetid("", 17)]))
    graph = _emulated(model)
    then = next(inner for inner in graphs_in(graph.model.graph) if inner.name == "branch")
    low = [node for node in then.node if node.op_type == "Cast" and node.attribute[0].i == _FLOAT16]
    assert len(low) == 2
    assert not graph.model.functions
    assert then.output[0].name == "e"


def test_scales_of_a_resize_stay_as_they_are() -> None:
    scales = np.array([1.0, 1.0 / 3.0 + 1.0], dtype=np.float32)
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["a"]), helper.make_node("Mul", ["a", "scales"], ["y"])]
    graph = _emulated(_model(nodes, {"scales": scales}))
    resize = next(node for node in graph.model.graph.node if node.op_type == "Resize")
    np.testing.assert_array_equal(_weight(graph, resize.input[2]), scales)
    np.testing.assert_array_equal(_weight(graph, "scales"), scales.astype(np.float16).astype(np.float32))


def test_an_input_that_is_a_weight_as_well_is_a_weight() -> None:
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones(3, dtype=np.float32)})
    model.graph.input.append(helper.make_tensor_value_info("w", _FLOAT, [3]))
    graph = _emulated(model)
    assert graph.inputs.keys() == {"x"}
    assert len(graph.model.graph.input) == 2  # x and the canary


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32, Precision.INT8])
def test_other_precisions_are_refused(precision: Precision) -> None:
    with pytest.raises(UsageError, match=rf"'{precision}' cannot be emulated \(allowed: fp16, bf16, mixed\)"):
        _emulated(_model([helper.make_node("Exp", ["x"], ["y"])]), precision)


def test_an_artifact_of_another_precision_is_refused() -> None:
    model = _model([helper.make_node("Exp", ["x"], ["y"])], element=_FLOAT16)
    with pytest.raises(UsageError, match="the model has tensors of fp16, so bf16 cannot be emulated") as raised:
        _emulated(model, Precision.BF16)
    assert raised.value.hint == "emulate fp16, or give the float32 original"


def test_an_artifact_of_both_precisions_is_emulated_as_mixed() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=_FLOAT16),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["c"], to=_BFLOAT16),
        helper.make_node("Exp", ["c"], ["d"]),
        helper.make_node("Cast", ["d"], ["y"], to=_FLOAT),
    ]
    with pytest.raises(UsageError, match="the model has tensors of fp16 and bf16, so fp16 cannot be emulated"):
        _emulated(_model(nodes))
    graph = _emulated(_model(nodes), Precision.MIXED)
    assert (len(_casts_to(graph, _FLOAT16)), len(_casts_to(graph, _BFLOAT16))) == (2, 2)
    assert graph.canary_outputs.keys() == {Precision.FP16, Precision.BF16}


def test_mixed_says_nothing_of_a_float32_original() -> None:
    with pytest.raises(UsageError, match="no tensor of fp16 or bf16"):
        _emulated(_model([helper.make_node("Exp", ["x"], ["y"])]), Precision.MIXED)


def test_a_model_without_float32_is_refused() -> None:
    model = _model([helper.make_node("Exp", ["x"], ["y"])], element=TensorProto.DOUBLE)
    with pytest.raises(UsageError, match="no float32 tensor, so there is nothing to be rounded to fp16"):
        _emulated(model)


def test_bf16_needs_an_opset_that_has_it() -> None:
    with pytest.raises(BackendError, match=r"opset 12 has no Cast to bfloat16 \(needed: at least 13\)"):
        _emulated(_model([helper.make_node("Exp", ["x"], ["y"])], opset=12), Precision.BF16)


def test_operators_on_bits_are_refused() -> None:
    nodes = [helper.make_node("BitCast", ["x"], ["y"], name="bits", to=TensorProto.INT32)]
    with pytest.raises(BackendError, match="node 'bits' is a BitCast"):
        _emulated(_model(nodes))


def test_a_function_that_calls_itself_is_refused() -> None:
    model = _model([helper.make_node("Endless", ["x"], ["y"], domain="local")])
    body = [helper.make_node("Endless", ["v"], ["w"], domain="local")]
    model.functions.append(helper.make_function("local", "Endless", ["v"], ["w"], body, [helper.make_opsetid("", 17)]))
    with pytest.raises(BackendError, match="'Endless' of domain 'local' calls itself"):
        _emulated(model)


def test_a_function_of_another_opset_is_refused() -> None:
    model = _model([helper.make_node("Halves", ["x"], ["y"], domain="local")])
    body = [helper.make_node("ReduceMax", ["v"], ["w"], keepdims=1)]
    model.functions.append(helper.make_function("local", "Halves", ["v"], ["w"], body, [helper.make_opsetid("", 18)]))
    with pytest.raises(BackendError, match="local function 'Halves' was written for another operator set"):
        _emulated(model)


def test_operators_with_values_inside_are_named() -> None:
    weights = {"w": np.ones((1, 4, 3), dtype=np.float32), "r": np.ones((1, 4, 1), dtype=np.float32)}
    nodes = [
        helper.make_node("Unsqueeze", ["x", "zero"], ["u"]),
        helper.make_node("LSTM", ["u", "w", "r"], ["", "y"], hidden_size=1),
    ]
    model = _model(nodes, {**weights, "zero": np.array([0])})
    assert _emulated(model).with_values_inside == ("LSTM",)
