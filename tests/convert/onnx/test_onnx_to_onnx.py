"""ONNX as it is, through the checks that every conversion ends with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.convert.conftest import Bench, assert_near, sign

from paritygate.convert.onnx.check_onnx import highest_ir_version
from paritygate.errors import ConversionError, InputFileError, UnsupportedOperatorsError, UsageError

_SUM_AND_DIFFERENCE = """
< ir_version: 8, opset_import: ["" : 17] >
both (float[N, 4] a, float[N, 4] b) => (float[N, 4] sum, float[N, 4] difference) {
    sum = Add (a, b)
    difference = Sub (a, b)
}
"""
_A_AND_B = {"a": "float32[N, 4]", "b": "float32[N, 4]"}
_FIVES, _ONES = np.full((3, 4), 5, np.float32), np.ones((3, 4), np.float32)


def test_a_model_is_copied_byte_for_byte(bench: Bench) -> None:
    path = bench.onnx_file(_SUM_AND_DIFFERENCE)
    converted = bench.convert("onnx", path)
    assert converted.files == {"model.onnx": path.read_bytes()}
    outputs = {"sum": "float32[N, 4]", "difference": "float32[N, 4]"}
    assert converted.conversion.signature == sign(_A_AND_B, outputs)
    assert converted.conversion.notes == ()
    assert converted.conversion.facts["opset"] == 17


def test_names_order_and_dims_become_those_of_the_signature(bench: Bench) -> None:
    signature = sign(
        {"b": "float32[batch, 4]", "left": "float32[batch, 4]"},
        {"minus": "float32[batch, 4]", "sum": "float32[batch, 4]"},
        batch=(1, 2, 8),
    )
    rename = {"a": "left", "difference": "minus"}
    converted = bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), signature=signature, rename=rename)
    assert converted.conversion.signature == signature
    actual = converted.run({"left": _FIVES, "b": _ONES})
    assert list(actual) == ["minus", "sum"]
    assert_near(actual["minus"], _FIVES - _ONES)
    assert_near(actual["sum"], _FIVES + _ONES)


def test_names_may_be_swapped(bench: Bench) -> None:
    rename = {"sum": "difference", "difference": "sum"}
    converted = bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), rename=rename)
    assert_near(converted.run({"a": _FIVES, "b": _ONES})["sum"], _FIVES - _ONES)


def test_open_dims_without_names_and_scalars_stay(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    scaled (float[?, ?] x, float scale) => (float[?, ?] y) { y = Mul (x, scale) }
    """
    path = bench.onnx_file(text)
    model = onnx.load(str(path))
    model.graph.input[1].type.tensor_type.shape.SetInParent()
    onnx.save_model(model, str(path))
    expected = sign({"x": "float32[?, ?]", "scale": "float32[]"}, {"y": "float32[?, ?]"})
    assert bench.convert("onnx", path).conversion.signature == expected


def test_open_dims_without_names_get_those_of_the_signature(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    same (float[?, ?] x) => (float[?, ?] y) { y = Relu (x) }
    """
    signature = sign({"x": "float32[batch, width]"}, {"y": "float32[batch, width]"})
    assert bench.convert("onnx", bench.onnx_file(text), signature=signature).conversion.signature == signature


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"a": "float32[batch, 4]", "b": "float32[rows, 4]"}, {"sum": "float32[batch, 4]"}, "one dim 'N' where"),
        (_A_AND_B, {"sum": "float32[N, 5]"}, "fixed at 4, expected 5"),
        (_A_AND_B, {"sum": "float32[N, w]"}, "fixed at 4, expected w"),
        (_A_AND_B, {"sum": "float32[3, 4]"}, "is N, expected 3"),
        (_A_AND_B, {"sum": "float32[4]"}, "has rank 2, expected rank 1"),
        (_A_AND_B | {"a": "float64[N, 4]"}, {"sum": "float32[N, 4]"}, "'a' is float32, expected float64"),
    ],
)
def test_a_signature_that_the_model_contradicts_is_an_error(
    bench: Bench, inputs: dict[str, str], outputs: dict[str, str], message: str
) -> None:
    with pytest.raises(ConversionError, match=message):
        bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), signature=sign(inputs, outputs))


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        ({"a": "float32[N, 4]"}, "sum", "the model needs the input 'b'"),
        ({"x": "float32[N, 4]", "b": "float32[N, 4]"}, "sum", r"no input 'x' \(it has: a, b\)"),
        (_A_AND_B, "q", r"no output 'q' \(it has: sum, difference\)"),
    ],
)
def test_names_that_the_model_does_not_have_are_refused(
    bench: Bench, inputs: dict[str, str], output: str, message: str
) -> None:
    signature = sign(inputs, {output: "float32[N, 4]"})
    with pytest.raises(UsageError, match=message):
        bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), signature=signature)


def test_renaming_what_the_model_does_not_have_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"rename names 'c', .* \(it has: a, b, sum, difference\)"):
        bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), rename={"c": "a"})


def test_outputs_that_are_not_in_the_signature_are_left_out_and_noted(bench: Bench) -> None:
    signature = sign(_A_AND_B, {"difference": "float32[N, 4]"})
    conversion = bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), signature=signature).conversion
    assert conversion.signature == signature
    assert conversion.notes == ("outputs not in the signature were left out: sum",)


def _external_model(path: Path) -> Path:
    """Write a model whose weights lie in weights/part.bin."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])
    weight = onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32) * 3, "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value], [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path.parent / "weights").mkdir()
    onnx.save_model(model, str(path), save_as_external_data=True, location="weights/part.bin", size_threshold=16)
    return path


@pytest.mark.parametrize("rename", [{}, {"x": "renamed"}])
def test_external_data_comes_along_under_its_relative_name(bench: Bench, rename: dict[str, str]) -> None:
    converted = bench.convert("onnx", _external_model(bench.folder / "source.onnx"), rename=rename)
    (bench.folder / "weights" / "part.bin").unlink()
    assert sorted(converted.files) == ["model.onnx", "weights/part.bin"]
    x = np.ones((2, 64), np.float32)
    assert_near(converted.run({rename.get("x", "x"): x})["y"], 3 * x)


def test_external_data_that_is_missing_is_an_input_error(bench: Bench) -> None:
    path = _external_model(bench.folder / "source.onnx")
    (bench.folder / "weights" / "part.bin").unlink()
    with pytest.raises(InputFileError, match=r"external data that is missing: 'weights/part\.bin'"):
        bench.convert("onnx", path)


def test_external_data_of_the_copys_own_name_is_refused(bench: Bench) -> None:
    path = _external_model(bench.folder / "source.onnx")
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "model.onnx"
    path.write_bytes(model.SerializeToString())
    (bench.folder / "weights" / "part.bin").rename(bench.folder / "model.onnx")
    with pytest.raises(ConversionError, match=r"external data is in a file named model\.onnx"):
        bench.convert("onnx", path)


def test_a_corrupt_file_is_an_input_error(bench: Bench) -> None:
    path = bench.folder / "corrupt.onnx"
    path.write_bytes(b"\x08\x07\x12\xff not a model")
    with pytest.raises(InputFileError, match="is not an ONNX model"):
        bench.convert("onnx", path)


def test_a_model_that_the_checker_refuses_is_an_error(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    wrong (float[N, 4] x) => (float[N, 5] y) { y = Relu (x) }
    """
    with pytest.raises(ConversionError, match=r"the converted model is unsound: .* is not valid ONNX"):
        bench.convert("onnx", bench.onnx_file(text))


def test_an_ir_version_that_onnxruntime_does_not_read_is_lowered_and_noted(bench: Bench) -> None:
    limit = highest_ir_version()
    assert limit is not None
    if limit >= onnx.IR_VERSION:
        pytest.skip(f"ONNX Runtime reads IR version {limit}, and onnx writes no newer one")
    text = _SUM_AND_DIFFERENCE.replace("ir_version: 8", f"ir_version: {limit + 1}")
    conversion = bench.convert("onnx", bench.onnx_file(text)).conversion
    assert conversion.facts["ir_version"] == limit
    assert conversion.notes[0].startswith(f"the IR version was lowered from {limit + 1} to {limit}")


def test_another_opset_is_refused(bench: Bench) -> None:
    with pytest.raises(ConversionError, match=r"opset 18 was requested, .* with opset 17"):
        bench.convert("onnx", bench.onnx_file(_SUM_AND_DIFFERENCE), opset=18)


def test_operators_that_onnx_does_not_have_come_as_one_table(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17, "my.operators" : 1] >
    strange (float[N, 4] x) => (float[N, 4] y) {
        [first] a = Erfc (x)
        b = my.operators.Twist (a)
        [last] y = Erfc (b)
    }
    """
    with pytest.raises(UnsupportedOperatorsError, match=r"Erfc, my\.operators::Twist") as caught:
        bench.convert("onnx", bench.onnx_file(text))
    assert [row[:2] for row in caught.value.rows] == [("Erfc", "first"), ("my.operators::Twist", "b"), ("Erfc", "last")]
    assert caught.value.rows[1][2] == "no runtime knows the operator domain 'my.operators'"


@pytest.mark.parametrize(
    ("dtype", "call", "operator"),
    [
        ("float", "com.microsoft.NoSuchOperator", "com.microsoft::NoSuchOperator"),
        ("bfloat16", "Sqrt", "Sqrt"),
    ],
)
def test_operators_that_onnxruntime_does_not_implement_come_as_a_table(
    bench: Bench, dtype: str, call: str, operator: str
) -> None:
    text = f"""
    < ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1] >
    strange ({dtype}[N] x) => ({dtype}[N] y) {{ [inner] y = {call} (x) }}
    """
    with pytest.raises(UnsupportedOperatorsError, match=r"ONNX Runtime .* does not have this operator") as caught:
        bench.convert("onnx", bench.onnx_file(text))
    ((found, node, reason, hint),) = caught.value.rows
    assert (found, node) == (operator, "inner")
    assert "does not implement it" in reason
    assert hint


def test_a_locale_that_this_machine_lacks_is_to_be_installed(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    lower (string[N] x) => (string[N] y) {
        y = StringNormalizer <case_change_action = "LOWER", locale = "xx_XX.UTF-8"> (x)
    }
    """
    with pytest.raises(ConversionError, match="Failed to construct locale") as caught:
        bench.convert("onnx", bench.onnx_file(text))
    assert caught.value.hint.startswith("install the locale xx_XX.UTF-8, ")
