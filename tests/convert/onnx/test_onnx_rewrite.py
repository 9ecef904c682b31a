"""Rewriting the interface of an ONNX graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from paritygate.convert.onnx.operators import unknown_operators
from paritygate.convert.onnx.rewrite import lower_ir_version, rename_values

_BRANCHES = """
< ir_version: 8, opset_import: ["" : 17] >
branches (bool flag, float[N] x) => (float[N] y)
<float[1] one = {1}, float[N] inner>
{
    inner = Add (x, one)
    y = If (flag) <
        then_branch = then_graph () => (float[N] t) { t = Mul (inner, x) },
        else_branch = else_graph () => (float[N] e) { e = Sub (inner, one) }
    >
}
"""


def _scalar_flag(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.input[0].type.tensor_type.shape.SetInParent()
    return model


@pytest.mark.parametrize(
    "names",
    [
        {"x": "input", "y": "output"},
        {"x": "inner", "y": "one"},
        {"x": "y", "y": "x"},
        {"x": "t"},
    ],
)
@pytest.mark.parametrize("flag", [True, False])
def test_renaming_reaches_into_branches_and_does_not_change_the_result(names: dict[str, str], flag: bool) -> None:  # noqa: FBT001 - a case of the test
    model = _scalar_flag(onnx.parser.parse_model(_BRANCHES))
    x = np.array([1, 2, 3], np.float32)
    rename_values(model, names)
    onnx.checker.check_model(model, full_check=True)
    (actual,) = ReferenceEvaluator(model).run(None, {"flag": np.array(flag), names["x"]: x})
    assert [value.name for value in model.graph.output] == [names.get("y", "y")]
    np.testing.assert_array_equal(actual, (x + 1) * x if flag else x)


def test_unknown_operators_are_found_inside_branches() -> None:
    model = onnx.parser.parse_model(_BRANCHES.replace("Mul (inner, x)", "Strange (inner, x)"))
    rows = unknown_operators(model, reason_of=lambda _: None, hint="none")
    assert [(row[0], row[1]) for row in rows] == [("Strange", "t")]


def test_a_function_that_the_model_brings_along_is_no_unknown_operator() -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17, "mine" : 1] >
    uses (float[N] x) => (float[N] y) { y = mine.Double (x) }
    < opset_import: ["" : 17], domain: "mine" >
    Double (a) => (b) { b = Add (a, a) }
    """
    assert unknown_operators(onnx.parser.parse_model(text), reason_of=lambda _: None, hint="none") == []


@pytest.mark.parametrize(("opset", "before", "after"), [(18, 10, 10), (18, 12, 10), (18, 8, 8), (23, 12, 11)])
def test_the_ir_version_is_lowered_no_further_than_the_opset_allows(opset: int, before: int, after: int) -> None:
    text = f"""
    < ir_version: {before}, opset_import: ["" : {opset}] >
    same (float[N] x) => (float[N] y) {{ y = Relu (x) }}
    """
    model = onnx.parser.parse_model(text)
    note = lower_ir_version(model)
    assert model.ir_version == after
    assert (note is None) == (before == after)
