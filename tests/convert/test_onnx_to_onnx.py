"""ONNX as it is, through the checks that every conversion ends with."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from paritygate.convert.onnx_load import highest_ir_version
from paritygate.errors import ConversionError, InputFileError, UnsupportedOperatorsError, UsageError
from tests.convert.conftest import Bench, assert_near, sign

SUM_AND_DIFFERENCE = """
< ir_version: 8, opset_import: ["" : 17] >
both (float[N, 4] a, float[N, 4] b) => (float[N, 4] sum, float[N, 4] difference) {
    sum = Add (a, b)
    difference = Sub (a, b)
}
"""


def test_a_model_is_copied_byte_for_byte(onnx_file, make_job, sign):
    path = onnx_file(SUM_AND_DIFFERENCE)
    job = make_job(path, kind="onnx")
    conversion = convert_and_check(job, "onnx")
    assert (job.folder / conversion.main).read_bytes() == path.read_bytes()
    assert conversion.signature == sign(
        {"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[N, 4]", "difference": "float32[N, 4]"}
    )
    assert conversion.notes == ()
    assert conversion.facts["opset"] == 17


def test_names_order_and_dims_become_those_of_the_signature(onnx_file, make_job, sign, run_onnx, assert_near):
    signature = sign(
        {"b": "float32[batch, 4]", "left": "float32[batch, 4]"},
        {"minus": "float32[batch, 4]", "sum": "float32[batch, 4]"},
        batch=(1, 2, 8),
    )
    job = make_job(
        onnx_file(SUM_AND_DIFFERENCE),
        kind="onnx",
        signature=signature,
        rename={"a": "left", "difference": "minus"},
    )
    conversion = convert_and_check(job, "onnx")
    assert conversion.signature == signature
    left, b = np.full((3, 4), 5, np.float32), np.ones((3, 4), np.float32)
    actual = run_onnx(job, conversion, {"left": left, "b": b})
    assert list(actual) == ["minus", "sum"]
    assert_near(actual["minus"], left - b)
    assert_near(actual["sum"], left + b)


def test_names_may_be_swapped(onnx_file, make_job, run_onnx, assert_near):
    rename = {"sum": "difference", "difference": "sum"}
    job = make_job(onnx_file(SUM_AND_DIFFERENCE), kind="onnx", rename=rename)
    conversion = convert_and_check(job, "onnx")
    a, b = np.full((3, 4), 5, np.float32), np.ones((3, 4), np.float32)
    assert_near(run_onnx(job, conversion, {"a": a, "b": b})["sum"], a - b)


def test_open_dims_without_names_and_scalars_stay(onnx_file, make_job, sign):
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    scaled (float[?, ?] x, float scale) => (float[?, ?] y) { y = Mul (x, scale) }
    """
    path = onnx_file(text)
    model = onnx.load(str(path))
    model.graph.input[1].type.tensor_type.shape.SetInParent()
    onnx.save_model(model, str(path))
    conversion = convert_and_check(make_job(path, kind="onnx"), "onnx")
    assert conversion.signature == sign({"x": "float32[?, ?]", "scale": "float32[]"}, {"y": "float32[?, ?]"})


def test_open_dims_without_names_get_those_of_the_signature(onnx_file, make_job, sign):
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    same (float[?, ?] x) => (float[?, ?] y) { y = Relu (x) }
    """
    signature = sign({"x": "float32[batch, width]"}, {"y": "float32[batch, width]"})
    assert convert_and_check(make_job(onnx_file(text), kind="onnx", signature=signature), "onnx").signature == signature


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"a": "float32[batch, 4]", "b": "float32[rows, 4]"}, {"sum": "float32[batch, 4]"}, "one dim 'N' where"),
        ({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[N, 5]"}, "fixed at 4, promised is 5"),
        ({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[N, w]"}, "fixed at 4, promised is w"),
        ({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[3, 4]"}, "is N, promised is 3"),
        ({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[4]"}, "has rank 2, promised is rank 1"),
        ({"a": "float64[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[N, 4]"}, "'a' is float32, promised is float64"),
    ],
)
def test_a_signature_that_the_model_contradicts_is_an_error(onnx_file, make_job, sign, inputs, outputs, message):
    job = make_job(onnx_file(SUM_AND_DIFFERENCE), kind="onnx", signature=sign(inputs, outputs))
    with pytest.raises(ConversionError, match=message):
        convert_and_check(job, "onnx")


@pytest.mark.parametrize(
    ("inputs", "outputs", "rename", "message"),
    [
        ({"a": "float32[N, 4]"}, {"sum": "float32[N, 4]"}, {}, "the model needs the input 'b'"),
        ({"x": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[N, 4]"}, {}, r"no input 'x' \(it has: a, b\)"),
        (
            {"a": "float32[N, 4]", "b": "float32[N, 4]"},
            {"q": "float32[N, 4]"},
            {},
            r"no output 'q' \(it has: sum, diff",
        ),
        ({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"sum": "float32[N, 4]"}, {"c": "a"}, "rename names 'c'"),
    ],
)
def test_names_that_the_model_does_not_have_are_refused(onnx_file, make_job, sign, inputs, outputs, rename, message):
    job = make_job(onnx_file(SUM_AND_DIFFERENCE), kind="onnx", signature=sign(inputs, outputs), rename=rename)
    with pytest.raises(UsageError, match=message):
        convert_and_check(job, "onnx")


def test_outputs_that_are_not_in_the_signature_are_left_out_and_noted(onnx_file, make_job, sign):
    signature = sign({"a": "float32[N, 4]", "b": "float32[N, 4]"}, {"difference": "float32[N, 4]"})
    job = make_job(onnx_file(SUM_AND_DIFFERENCE), kind="onnx", signature=signature)
    conversion = convert_and_check(job, "onnx")
    assert conversion.signature == signature
    assert conversion.notes == ("outputs not in the signature were left out: sum",)


def external_model(path):
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
def test_external_data_comes_along_under_its_relative_name(tmp_path, make_job, run_onnx, assert_near, rename):
    job = make_job(external_model(tmp_path / "source.onnx"), kind="onnx", rename=rename)
    conversion = convert_and_check(job, "onnx")
    (tmp_path / "weights" / "part.bin").unlink()
    assert (job.folder / "weights" / "part.bin").stat().st_size >= 64 * 64 * 4
    x = np.ones((2, 64), np.float32)
    assert_near(run_onnx(job, conversion, {rename.get("x", "x"): x})["y"], 3 * x)


def test_external_data_that_is_missing_is_an_input_error(tmp_path, make_job):
    path = external_model(tmp_path / "source.onnx")
    (tmp_path / "weights" / "part.bin").unlink()
    with pytest.raises(InputFileError, match="external data that is missing: 'weights/part.bin'"):
        convert_and_check(make_job(path, kind="onnx"), "onnx")


def test_external_data_of_the_copys_own_name_is_refused(tmp_path, make_job):
    path = tmp_path / "sub" / "source.onnx"
    path.parent.mkdir()
    external_model(path)
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "model.onnx"
    (path.parent / "weights" / "part.bin").rename(path.parent / "model.onnx")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ConversionError, match="keeps its external data in a file named model.onnx"):
        convert_and_check(make_job(path, kind="onnx"), "onnx")


def test_a_corrupt_file_is_an_input_error(tmp_path, make_job):
    path = tmp_path / "corrupt.onnx"
    path.write_bytes(b"\x08\x07\x12\xff not a model")
    with pytest.raises(InputFileError, match="is not an ONNX model"):
        convert_and_check(make_job(path, kind="onnx"), "onnx")


def test_a_model_that_the_checker_refuses_is_an_error(onnx_file, make_job):
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    wrong (float[N, 4] x) => (float[N, 5] y) { y = Relu (x) }
    """
    with pytest.raises(ConversionError, match="the converted model is unsound: .* is not valid ONNX"):
        convert_and_check(make_job(onnx_file(text), kind="onnx"), "onnx")


def test_an_ir_version_that_onnxruntime_does_not_read_is_lowered_and_noted(onnx_file, make_job, run_onnx):
    limit = highest_ir_version()
    assert limit is not None
    if limit >= onnx.IR_VERSION:
        pytest.skip(f"ONNX Runtime reads IR version {limit}, and onnx writes no newer one")
    job = make_job(onnx_file(SUM_AND_DIFFERENCE.replace("ir_version: 8", f"ir_version: {limit + 1}")), kind="onnx")
    conversion = convert_and_check(job, "onnx")
    assert conversion.facts["ir_version"] == limit
    assert conversion.notes[0].startswith(f"the IR version was lowered from {limit + 1} to {limit}")


def test_another_opset_is_refused(onnx_file, make_job):
    with pytest.raises(ConversionError, match="opset 18 was asked for, .* with opset 17"):
        convert_and_check(make_job(onnx_file(SUM_AND_DIFFERENCE), kind="onnx", opset=18), "onnx")


def test_operators_that_onnx_does_not_have_come_as_one_table(onnx_file, make_job):
    text = """
    < ir_version: 8, opset_import: ["" : 17, "my.operators" : 1] >
    strange (float[N, 4] x) => (float[N, 4] y) {
        [first] a = Erfc (x)
        b = my.operators.Twist (a)
        [last] y = Erfc (b)
    }
    """
    with pytest.raises(UnsupportedOperatorsError, match="Erfc, my.operators::Twist") as caught:
        convert_and_check(make_job(onnx_file(text), kind="onnx"), "onnx")
    assert [row[:2] for row in caught.value.rows] == [("Erfc", "first"), ("my.operators::Twist", "b"), ("Erfc", "last")]
    assert caught.value.rows[1][2] == "no runtime knows the operator domain 'my.operators'"


@pytest.mark.parametrize(
    ("dtype", "call", "operator"),
    [
        ("float", "com.microsoft.NoSuchOperator", "com.microsoft::NoSuchOperator"),
        ("bfloat16", "Sqrt", "Sqrt"),
    ],
)
def test_operators_that_onnxruntime_does_not_implement_come_as_a_table(onnx_file, make_job, dtype, call, operator):
    text = f"""
    < ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1] >
    strange ({dtype}[N] x) => ({dtype}[N] y) {{ [inner] y = {call} (x) }}
    """
    with pytest.raises(UnsupportedOperatorsError, match="ONNX Runtime .* does not have this operator") as caught:
        convert_and_check(make_job(onnx_file(text), kind="onnx"), "onnx")
    ((found, node, reason, hint),) = caught.value.rows
    assert (found, node) == (operator, "inner")
    assert "does not implement it" in reason
    assert hint
