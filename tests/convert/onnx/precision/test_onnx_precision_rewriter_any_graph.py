"""What holds of the rewriter for any graph and any set of nodes to keep."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from paritygate.convert.onnx.onnx_to_low_precision import rewrite_precision
from paritygate.models.onnx.graph import element_types, infer_value_types
from paritygate.precision import Precision

_UNARY = ("Neg", "Abs", "Tanh", "Relu", "Identity", "Sigmoid")
_BINARY = ("Add", "Mul", "Max", "Sub")
_LOW = {Precision.FP16: TensorProto.FLOAT16, Precision.BF16: TensorProto.BFLOAT16}


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[str]]:
    """Draw a graph of up to twelve nodes whose values fan out at will, and names of nodes to keep."""
    values = ["x", "w"]
    nodes = []
    for number in range(draw(st.integers(1, 12))):
        operator = draw(st.sampled_from(_UNARY + _BINARY))
        inputs = [draw(st.sampled_from(values)) for _ in range(1 + (operator in _BINARY))]
        nodes.append(onnx.helper.make_node(operator, inputs, [f"v{number}"], name=f"n{number}"))
        values.append(f"v{number}")
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in outputs],
        [onnx.numpy_helper.from_array(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return model, draw(st.lists(st.sampled_from([node.name for node in nodes]), unique=True))


@settings(max_examples=60, deadline=None)
@given(_graphs(), st.sampled_from([Precision.FP16, Precision.BF16]))
def test_kept_nodes_and_no_others_are_fp32_and_nothing_is_cast_twice(
    drawn: tuple[onnx.ModelProto, list[str]], precision: Precision
) -> None:
    model, keep = drawn
    result = rewrite_precision(model, precision=precision, kept=dict.fromkeys(keep, "kept as asked"))
    onnx.checker.check_model(result.model, full_check=True)
    infer_value_types(result.model)
    types = element_types(result.model.graph)
    made_by = {node.output[0]: node for node in result.model.graph.node}
    casts = []
    for node in result.model.graph.node:
        if node.op_type == "Cast":
            casts.append((node.input[0], node.attribute[0].i))
            source = made_by.get(node.input[0])
            assert source is None or source.op_type != "Cast", f"{node.input[0]} is cast there and back"
            continue
        wanted = TensorProto.FLOAT if node.name in keep else _LOW[precision]
        assert {types[name] for name in (*node.input, *node.output)} == {wanted}, node.name
    assert len(set(casts)) == len(casts) == result.casts_added
    assert "w" not in {name for name, _ in casts}
    assert {node.name for node in result.nodes_kept} == set(keep)
    assert set(result.nodes_converted) == {node.name for node in model.graph.node} - set(keep)


@settings(max_examples=40, deadline=None)
@given(_graphs())
def test_onnxruntime_runs_any_of_them_in_fp16(drawn: tuple[onnx.ModelProto, list[str]]) -> None:
    import onnxruntime

    model, keep = drawn
    result = rewrite_precision(model, precision=Precision.FP16, kept=dict.fromkeys(keep, "kept as asked"))
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    outputs = []
    for each in (result.model, model):
        session = onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs.append(session.run(None, {"x": x}))
    for actual, expected in zip(*outputs, strict=True):
        scale = max(1.0, float(np.abs(expected).max()))
        assert np.abs(actual - expected).max() < 2e-2 * scale
