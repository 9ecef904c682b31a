"""Inlining local functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from paritygate.errors import ConversionError
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import nodes_in

_MODEL = """
< ir_version: 10, opset_import: ["" : 17, "own" : 1] >
calls (float[N] x, bool flag) => (float[N] y) {
    z = own.outer <alpha = 0.5> (x)
    w = If (flag) <
        then_branch = yes () => (float[N] t) { t = own.outer (z) },
        else_branch = no () => (float[N] e) { q = Neg (z) e = Abs (q) }
    >
    y, unused = own.branching (w, flag)
}
< domain: "own", opset_import: ["" : 15] >
inner (a) => (b) { q = Exp (a) b = Neg (q) }
< domain: "own", opset_import: ["" : 17, "own" : 1] >
outer <alpha: float = 0.25> (a) => (b) {
    q = Tanh (a)
    r = LeakyRelu <alpha: float = @alpha> (q)
    b = own.inner (r)
}
< domain: "own", opset_import: ["" : 17, "own" : 1] >
branching (a, c) => (b, d) {
    d = Identity (a)
    b = If (c) <
        then_branch = yes () => (z) { q = Exp (a) z = own.inner (q) },
        else_branch = no () => (z) { z = Abs (a) }
    >
}
"""


def _model(text: str = _MODEL) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def _outputs(model: onnx.ModelProto, *, flag: bool) -> Sequence[NDArray[Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([-1.5, 0.25, 2.0], np.float32)
    found: Sequence[NDArray[Any]] = session.run(None, {"x": x, "flag": np.array(flag)})
    return found


@pytest.mark.parametrize("flag", [True, False])
def test_an_inlined_model_computes_the_same(flag: bool) -> None:  # noqa: FBT001 - a value of the model's input
    model = _model()
    expected = _outputs(_model(), flag=flag)
    inline_functions(model)
    assert not model.functions
    assert {node.domain for node in nodes_in(model.graph)} == {""}
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(_outputs(model, flag=flag)[0], expected[0])


def test_an_attribute_comes_from_the_call_or_else_from_the_functions_default() -> None:
    model = _model()
    inline_functions(model)
    found = {node.name: node.attribute[0].f for node in nodes_in(model.graph) if node.op_type == "LeakyRelu"}
    assert sorted(found.values()) == [0.25, 0.5]


def test_inlined_nodes_are_named_after_the_calls_they_come_from() -> None:
    model = _model()
    model.graph.node[0].name = "encoder"
    model.functions[0].node[0].name = "exponential"
    inline_functions(model)
    assert {"encoder/Tanh", "encoder/inner/exponential"} <= {node.name for node in model.graph.node}


def test_an_output_that_is_an_input_is_passed_on() -> None:
    model = _model(
        '< ir_version: 10, opset_import: ["" : 17, "own" : 1] > g (float[N] x) => (float[N] y, float[N] z)'
        "{ y, z = own.both (x) }"
        '< domain: "own", opset_import: ["" : 17] > both (a) => (b, a) { b = Neg (a) }'
    )
    inline_functions(model)
    assert [node.op_type for node in model.graph.node] == ["Neg", "Identity"]
    onnx.checker.check_model(model, full_check=True)


def test_a_function_of_an_opset_in_which_its_operators_differ_stays_a_call() -> None:
    model = _model(
        '< ir_version: 10, opset_import: ["" : 18, "own" : 1] > g (float[N,4] x) => (y) { y = own.mean (x) }'
        '< domain: "own", opset_import: ["" : 17] > mean (a) => (b) { b = ReduceMean <axes = [1]> (a) }'
    )
    inline_functions(model)
    assert [node.op_type for node in model.graph.node] == ["mean"]
    assert len(model.functions) == 1


def test_a_function_that_calls_itself_is_refused() -> None:
    model = _model(
        '< ir_version: 10, opset_import: ["" : 17, "own" : 1] > g (float[N] x) => (y) { y = own.f (x) }'
        '< domain: "own", opset_import: ["" : 17, "own" : 1] > f (a) => (b) { b = own.f (a) }'
    )
    with pytest.raises(ConversionError, match=r"function 'f' of domain 'own' calls itself"):
        inline_functions(model)
