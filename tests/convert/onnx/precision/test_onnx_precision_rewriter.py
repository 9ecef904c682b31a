"""Rewriting ONNX models to FP16 and BF16: which nodes, which dtypes, how many casts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from paritygate.convert.onnx.onnx_to_low_precision import RewriteResult, rewrite_precision
from paritygate.errors import ConversionError, UsageError
from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.graph import element_types, infer_value_types, nodes_in
from paritygate.precision import Precision

_X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def _model(body: str, *, opset: int = 17, signature: str = "(float[N,4] x) => (float[N,4] y)") -> onnx.ModelProto:
    """Return a model of ONNX's text form, whose nodes go by their operator and a number, as they have no names."""
    version = f'ir_version: 8, opset_import: ["" : {opset}, "own" : 1]'
    model: onnx.ModelProto = onnx.parser.parse_model(f"< {version} > g {signature} {{ {body} }}")
    del model.opset_import[1 if "own." not in body else 2 :]
    return model


def _with_weights(model: onnx.ModelProto, **weights: Any) -> onnx.ModelProto:  # noqa: ANN401 - anything numpy takes
    for name, values in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    return model


def _float32(values: Any) -> NDArray[np.float32]:  # noqa: ANN401 - anything numpy takes
    return np.asarray(values, np.float32)


def _fp16(model: onnx.ModelProto, **options: Any) -> RewriteResult:  # noqa: ANN401 - any option of the rewriter
    return rewrite_precision(model, precision=Precision.FP16, **options)


def _run(model: onnx.ModelProto, **inputs: NDArray[Any]) -> Sequence[NDArray[Any]]:
    """Return the outputs of ONNX Runtime, after the checks that each model here has to pass."""
    import onnxruntime

    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Sequence[NDArray[Any]] = session.run(None, inputs)
    return found


def _really_run(model: onnx.ModelProto, **inputs: NDArray[Any]) -> Sequence[NDArray[Any]]:
    """Return the outputs of a runtime that computes FP16 in FP16, as ONNX Runtime's CPU provider does not."""
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, inputs)
    assert isinstance(found, list)
    return found


def _casts(model: onnx.ModelProto) -> list[str]:
    """Return the values that casts are applied to."""
    return [node.input[0] for node in nodes_in(model.graph) if node.op_type == "Cast"]


def _dtypes(model: onnx.ModelProto) -> Mapping[str, int]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    infer_value_types(copy)
    return element_types(copy.graph)


def _kept(result: RewriteResult) -> dict[str, str]:
    return {node.name: node.reason for node in result.nodes_kept}


def _perceptron(opset: int = 17) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    body = "a = MatMul (x, w) b = Add (a, c) d = Relu (b) e = MatMul (d, v) y = Softmax (e)"
    weights = {"w": (4, 8), "c": (8,), "v": (8, 4)}
    arrays = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in weights.items()}
    return _with_weights(_model(body, opset=opset), **arrays)


def _skip_unless_runtime_reads(opset: int) -> None:
    try:
        _run(_perceptron(opset), x=_X)
    except Exception as err:
        if "is under development" in str(err):
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not read opset {opset} yet")
        raise


@pytest.mark.parametrize("opset", range(13, 25))
def test_weights_are_lowered_and_inputs_and_outputs_stay(opset: int) -> None:
    model = _perceptron(opset)
    _skip_unless_runtime_reads(opset)
    result = _fp16(model)
    assert {tensor.data_type for tensor in result.model.graph.initializer} == {TensorProto.FLOAT16}
    assert [value.type.tensor_type.elem_type for value in (*result.model.graph.input, *result.model.graph.output)] == [
        TensorProto.FLOAT,
        TensorProto.FLOAT,
    ]
    assert result.nodes_converted == ("MatMul", "Add", "Relu", "MatMul_1", "Softmax")
    assert (result.nodes_kept, result.casts_added, opset_of(result.model)) == ((), 2, opset)
    assert np.abs(_run(result.model, x=_X)[0] - _run(model, x=_X)[0]).max() < 2e-3


@pytest.mark.parametrize("opset", range(13, 25))
def test_a_bf16_model_is_valid_and_its_weights_are_rounded_to_nearest(opset: int) -> None:
    import ml_dtypes

    model = _perceptron(opset)
    result = rewrite_precision(model, precision=Precision.BF16)
    onnx.checker.check_model(result.model, full_check=True)
    assert opset_of(result.model) == opset
    for before, after in zip(model.graph.initializer, result.model.graph.initializer, strict=True):
        assert after.data_type == TensorProto.BFLOAT16
        expected = onnx.numpy_helper.to_array(before).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(np.frombuffer(after.raw_data, np.uint16), expected.view(np.uint16).reshape(-1))


def test_the_model_given_is_not_changed() -> None:
    model = _perceptron()
    before = model.SerializeToString(deterministic=True)
    _fp16(model)
    assert model.SerializeToString(deterministic=True) == before


def test_exactly_the_nodes_named_stay_in_fp32() -> None:
    result = _fp16(_perceptron(), kept=dict.fromkeys(["Add"], "kept as asked"))
    assert _kept(result) == {"Add": "kept as asked"}
    assert result.nodes_converted == ("MatMul", "Relu", "MatMul_1", "Softmax")
    # x down, a up, b down, y up: one for each value that changes hands.
    assert sorted(_casts(result.model)) == sorted(["x", "a", "b", "y_fp16"])
    dtypes = _dtypes(result.model)
    assert (dtypes["a"], dtypes["b"], dtypes["c"], dtypes["d"]) == (10, 1, 1, 10)
    _run(result.model, x=_X)


def test_another_precision_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"cannot be rewritten to int8 \(allowed: fp16, bf16\)"):
        rewrite_precision(_perceptron(), precision=Precision.INT8)


def test_what_overflows_in_fp16_does_not_where_it_is_kept() -> None:
    model = _with_weights(
        _model("a = Mul (x, big) b = Mul (a, a) m = ReduceMean <axes = [1]> (b) r = Sqrt (m) y = Div (a, r)"),
        big=np.float32(1000),
    )
    expected = _run(model, x=_X)[0]
    assert np.abs(_really_run(_fp16(model).model, x=_X)[0] - expected).max() > 0.1
    # `b` is read by one kept node and `a` by two, next to converted ones: no value may pass through FP16 on its way.
    result = _fp16(model, kept=dict.fromkeys(["Mul_1", "ReduceMean", "Sqrt"], "kept as asked"))
    assert np.abs(_really_run(result.model, x=_X)[0] - expected).max() < 2e-3
    assert "b" not in _casts(result.model)


def test_a_value_is_cast_once_for_all_its_readers() -> None:
    body = "k = Exp (x) a = Neg (k) b = Abs (k) c = Add (k, a) d = Add (c, b) e = Sin (k) y = Add (d, e)"
    result = _fp16(_model(body), kept=dict.fromkeys(["Exp", "Sin"], "kept as asked"))
    assert sorted(_casts(result.model)) == ["e", "k", "y_fp16"]
    _run(result.model, x=_X)


def test_an_output_that_is_read_inside_is_cast_for_the_outside_only() -> None:
    model = _model(
        "logits = Neg (x) y = Softmax (logits)", signature="(float[N,4] x) => (float[N,4] logits, float[N,4] y)"
    )
    result = _fp16(model)
    assert [value.name for value in result.model.graph.output] == ["logits", "y"]
    assert result.casts_added == 3
    for actual, expected in zip(_run(result.model, x=_X), _run(model, x=_X), strict=True):
        assert actual.dtype == np.float32
        assert np.abs(actual - expected).max() < 1e-3


def test_an_input_that_is_an_output_stays_as_it_is() -> None:
    model = _model("y = Neg (x)", signature="(float[N,4] x) => (float[N,4] y, float[N,4] x)")
    np.testing.assert_array_equal(_run(_fp16(model).model, x=_X)[1], _X)


def test_constants_beyond_the_range_are_clamped_and_reported() -> None:
    lowest = np.finfo(np.float32).min
    model = _with_weights(_model("m = Mul (x, mask) y = Add (m, w)"), mask=[-1e9, 1e5, 1, lowest], w=np.float32(-1e9))
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array([-1e9, 1e5, 1, lowest], np.float32), "mask")
    )
    result = _fp16(model)
    assert [str(each) for each in result.clamps] == [
        "mask: 3 values, -3.40282e+38 became -65504",
        "w: 1 value, -1e+09 became -65504",
    ]
    values = {each.name: onnx.numpy_helper.to_array(each).tolist() for each in result.model.graph.initializer}
    assert values == {"mask": [-65504, 65504, 1, -65504], "w": -65504}


def test_the_lowest_float32_is_finite_in_bf16_too() -> None:
    model = _with_weights(_model("y = Mul (x, mask)"), mask=np.finfo(np.float32).min)
    result = rewrite_precision(model, precision=Precision.BF16)
    assert result.clamps[0].after == pytest.approx(-3.3895e38, rel=1e-4)


def test_a_mask_times_zero_is_not_nan() -> None:
    body = "m = Sub (one, x) n = Mul (m, lowest) y = Add (x, n)"
    model = _with_weights(_model(body), one=np.float32(1), lowest=np.finfo(np.float32).min)
    assert np.isfinite(_really_run(_fp16(model).model, x=np.ones((2, 4), np.float32))[0]).all()


def test_infinity_and_nan_stay_what_they_are() -> None:
    weights = np.array([-np.inf, np.inf, np.nan, 1], np.float32)
    result = _fp16(_with_weights(_model("y = Add (x, w)"), w=weights))
    assert result.clamps == ()
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(result.model.graph.initializer[0]), weights)


def test_values_that_become_zero_are_reported_and_an_epsilon_does_not() -> None:
    weights = np.array([1e-9, 1, -2e-8, 0], np.float32)
    result = _fp16(_with_weights(_model("a = Mul (x, w) y = Div (a, eps)"), w=weights, eps=np.float32(1e-12)))
    assert [str(each) for each in result.flushes] == [
        "w: 2 values, -2e-08 became -0",
        "eps: 1 value, 1e-12 became 5.96046e-08",
    ]
    values = {each.name: onnx.numpy_helper.to_array(each).tolist() for each in result.model.graph.initializer}
    assert values == {"w": [0, 1, 0, 0], "eps": 2**-24}


def test_a_constant_that_is_read_in_both_dtypes_exists_in_both() -> None:
    model = _with_weights(_model("a = Mul (x, w) y = Add (a, w)"), w=np.float32(1e5 + 0.125))
    result = _fp16(model, kept=dict.fromkeys(["Add"], "kept as asked"))
    tensors = {each.name: each for each in result.model.graph.initializer}
    assert {name: each.data_type for name, each in tensors.items()} == {"w": 1, "w_fp16": 10}
    assert onnx.numpy_helper.to_array(tensors["w"]).item() == 1e5 + 0.125
    assert onnx.numpy_helper.to_array(tensors["w_fp16"]).item() == 65504
    assert "w" not in _casts(result.model)


@pytest.mark.parametrize(
    "constant",
    [
        "Constant <value = float[1] {2.5}> ()",
        "Constant <value_float = 2.5> ()",
        "Constant <value_floats = [2.5, 1.5, 0.5, 1e9]> ()",
    ],
)
def test_constant_nodes_are_lowered_like_weights(constant: str) -> None:
    model = _model(f"c = {constant} a = Mul (x, c) y = Exp (a)")
    result = _fp16(model)
    assert [node.op_type for node in result.model.graph.node] == ["Cast", "Constant", "Mul", "Exp", "Cast"]
    assert "Constant" not in result.nodes_converted
    assert _dtypes(result.model)["c"] == TensorProto.FLOAT16
    assert [change.tensor for change in result.clamps] == (["c"] if "1e9" in constant else [])
    _run(result.model, x=_X)


@pytest.mark.parametrize(
    ("precision", "opset", "operators"),
    [
        (Precision.FP16, 17, ["ConstantOfShape"]),
        (Precision.BF16, 20, ["ConstantOfShape"]),
        (Precision.BF16, 17, ["ConstantOfShape", "Cast"]),
    ],
)
def test_a_filled_shape_is_clamped_and_made_in_the_lower_precision(
    precision: Precision, opset: int, operators: list[str]
) -> None:
    body = "s = Shape (x) c = ConstantOfShape <value = float[1] {-3.4028235e38}> (s) y = Mul (x, c)"
    result = rewrite_precision(_model(body, opset=opset), precision=precision)
    onnx.checker.check_model(result.model, full_check=True)
    fill = next(node for node in result.model.graph.node if node.op_type == "ConstantOfShape")
    assert np.isfinite(np.float32(result.clamps[0].after))
    assert float(onnx.numpy_helper.to_array(fill.attribute[0].t).astype(np.float32)[0]) == result.clamps[0].after
    names = [node.op_type for node in result.model.graph.node if node.op_type in {"ConstantOfShape", "Cast"}]
    # The casts of x and y are the first and the last one.
    assert names[1:-1] == operators


def test_a_cast_to_fp32_makes_the_lower_precision_itself() -> None:
    signature = "(int64[N,4] x) => (float[N,4] y)"
    result = _fp16(_model("f = Cast <to = 1> (x) y = Exp (f)", signature=signature))
    assert [node.op_type for node in result.model.graph.node] == ["Cast", "Exp", "Cast"]
    assert result.casts_added == 1
    assert result.nodes_converted == ("Cast", "Exp")


def test_comparisons_of_what_is_fp32_are_not_rounded() -> None:
    signature = "(int64[N] x) => (bool[N] y)"
    model = _with_weights(_model("f = Cast <to = 1> (x) y = Less (f, w)", signature=signature), w=np.float32(16777216))
    result = _fp16(model)
    ids = np.array([16777215, 16777216, 70000])
    assert _run(result.model, x=ids)[0].tolist() == [True, False, True]
    assert result.nodes_converted == ()
    assert "reads them unchanged" in _kept(result)["Less"]


def test_comparisons_of_what_is_lowered_need_no_cast() -> None:
    result = _fp16(
        _with_weights(_model("e = Erf (x) y = Less (e, w)", signature="(float[N] x) => (bool[N] y)"), w=np.float32(1))
    )
    assert result.nodes_converted == ("Erf", "Less")
    assert result.casts_added == 1


def test_arithmetic_on_sizes_stays_exact() -> None:
    body = (
        "s = Shape (x) f = Cast <to = 1> (s) h = Mul (f, two) i = Cast <to = 7> (h) "
        "e = Exp (x) n = ReduceSum <keepdims = 0> (f) y = Div (e, n)"
    )
    signature = "(float[N] x) => (int64[1] i, float[N] y)"
    result = _fp16(_with_weights(_model(body, signature=signature), two=np.float32(2)))
    size, quotient = _run(result.model, x=np.zeros(2049, np.float32))
    assert size.tolist() == [4098]
    assert np.abs(quotient - 1 / 2049).max() < 1e-6
    assert "sizes of tensors" in _kept(result)["Mul"]
    assert "Div" in result.nodes_converted


def test_a_mask_in_the_shape_of_a_size_is_no_size() -> None:
    body = "s = Shape (x) e = Expand (lowest, s) y = Add (x, e)"
    result = _fp16(_with_weights(_model(body), lowest=np.finfo(np.float32).min))
    assert result.nodes_converted == ("Expand", "Add")
    assert len(result.clamps) == 1


def test_coordinates_and_scales_of_resize_stay_fp32() -> None:
    body = 'y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, scales)'
    model = _model(body, signature="(float[1,1,8,8] x) => (float[1,1,M,K] y)")
    model = _with_weights(model, roi=_float32([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9]), scales=_float32([1, 1, 2, 2]))
    result = _fp16(model)
    assert result.nodes_converted == ("Resize",)
    assert {tensor.data_type for tensor in result.model.graph.initializer} == {TensorProto.FLOAT}
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    assert np.abs(_run(result.model, x=image)[0] - _run(model, x=image)[0]).max() < 1e-3


def test_classes_of_onehot_are_not_rounded() -> None:
    signature = "(float[N] x) => (float[N,K] y)"
    model = _model("e = Add (v, v) y = OneHot (x, depth, e)", signature=signature)
    result = _fp16(_with_weights(model, depth=np.float32(2050), v=_float32([0, 1])))
    assert result.nodes_converted == ("Add", "OneHot")
    # ONNX Runtime drops a cast there and back, so that what comes out is right in any case.
    assert _casts(result.model) == ["y_fp16"]
    assert _run(result.model, x=_float32([2049]))[0].argmax() == 2049


def test_a_normalization_stays_fp32_with_what_it_reports_beside_its_result() -> None:
    body = "e = Relu (x) z, mean = LayerNormalization (e, w) y = Relu (z)"
    model = _model(body, signature="(float[N,4] x) => (float[N,4] y, float[N,1] mean)")
    result = _fp16(_with_weights(model, w=np.ones(4, np.float32)))
    assert set(result.nodes_converted) == {"Relu", "Relu_1"}
    assert _kept(result) == {
        "LayerNormalization": "a normalisation in the lower precision scales whole features wrongly"
    }
    _run(result.model, x=_X)


def test_a_normalization_in_parts_stays_fp32_like_a_whole_one() -> None:
    body = (
        "e = Relu (x) s = Pow (e, two) m = ReduceMean <axes = [1]> (s) v = Add (m, tiny) r = Sqrt (v) "
        "i = Reciprocal (r) n = Mul (e, i) z = Mul (n, w) y = Relu (z)"
    )
    model = _with_weights(
        _model(body), two=np.float32(2), tiny=np.float32(1e-6), w=np.linspace(0.5, 2, 4, dtype=np.float32)
    )
    result = _fp16(model)
    assert set(_kept(result)) == {"Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul", "Mul_1"}
    # The square of 300 is beyond FP16.
    large = 300 * np.abs(_X) + 1
    assert np.abs(_run(result.model, x=large)[0] - _run(model, x=large)[0]).max() < 2e-3


def test_a_mean_of_squares_that_nothing_is_divided_by_is_no_normalization() -> None:
    result = _fp16(
        _with_weights(
            _model(
                "s = Mul (x, x) m = ReduceMean <axes = [1]> (s) y = Add (m, b)",
                signature="(float[N,4] x) => (float[N,1] y)",
            ),
            b=np.float32(1),
        )
    )
    assert result.nodes_kept == ()


def test_an_angle_that_is_computed_of_an_input_alone_is_not_rounded() -> None:
    # Sinusoids of a timestep, as in diffusion models, and a layer behind them.
    body = (
        "t = Unsqueeze (x, one) a = Mul (t, f) s = Sin (a) c = Cos (a) e = Concat <axis = 1> (s, c) y = MatMul (e, w)"
    )
    frequencies, weights = np.float32([[1, 0.7, 0.3]]), np.ones((6, 2), np.float32)
    model = _with_weights(
        _model(body, signature="(float[N] x) => (float[N,2] y)", opset=13), one=np.array([1]), f=frequencies, w=weights
    )
    result = _fp16(model)
    steps = np.float32([997.3, 2049.0, 4001.7])
    angles = steps.astype(np.float64)[:, None] * frequencies
    expected = (np.sin(angles) + np.cos(angles)).sum(1)
    assert np.abs(_run(result.model, x=steps)[0] - expected[:, None]).max() < 5e-3
    assert set(_kept(result)) == {"Unsqueeze", "Mul", "Sin", "Cos"}
    assert "MatMul" in result.nodes_converted


def test_a_bound_on_an_input_is_held_to_the_value_that_was_given() -> None:
    body = "t = Unsqueeze (x, one) b = GreaterOrEqual (t, w) o = Cast <to = 1> (b) y = Sigmoid (o)"
    signature = "(float[N] x) => (float[N,2] y)"
    result = _fp16(_with_weights(_model(body, signature=signature, opset=16), one=np.array([1]), w=_float32([35, 50])))
    found = _run(result.model, x=_float32([34.995, 35.0, 49.99]))[0]
    assert (found > 0.6).tolist() == [[False, False], [True, False], [True, False]]
    assert "Sigmoid" in result.nodes_converted


def test_angles_of_what_a_layer_computed_are_lowered_like_everything_else() -> None:
    body = "h = MatMul (x, w) a = Mul (h, f) y = Sin (a)"
    result = _fp16(
        _with_weights(
            _model(body, signature="(float[N,4] x) => (float[N,4] y)"), w=np.eye(4, dtype=np.float32), f=np.float32(2)
        )
    )
    assert result.nodes_kept == ()


def test_an_operator_without_the_precision_stays_fp32_and_says_so() -> None:
    model = _model("n = Range (a, x, b) y = Neg (n)", signature="(float x, float a, float b) => (float[N] y)")
    result = _fp16(model)
    assert _kept(result) == {"Range": "Range of opset 11 does not take float16"}
    assert result.nodes_converted == ("Neg",)


def test_a_reduction_that_onnxruntime_does_not_run_in_fp16_stays_fp32() -> None:
    body = 'e = Exp (x) y = ScatterElements <axis = 0, reduction = "add"> (e, i, u)'
    model = _with_weights(_model(body, opset=18), i=np.array([[0, 1, 2, 0]]), u=np.ones((1, 4), np.float32))
    result = _fp16(model)
    assert "ONNX Runtime" in _kept(result)["ScatterElements"]
    assert np.abs(_run(result.model, x=_X)[0] - _run(model, x=_X)[0]).max() < 1e-2


def test_sequences_stay_fp32() -> None:
    body = (
        "e = Exp (x) s = SequenceConstruct (e, e) i = Constant <value = int64 {1}> () t = SequenceAt (s, i) y = Neg (t)"
    )
    result = _fp16(_model(body))
    assert _kept(result).keys() == {"SequenceConstruct", "SequenceAt"}
    _run(result.model, x=_X)


def test_integers_and_doubles_are_left_alone() -> None:
    body = "a = Mul (x, x) b = Cast <to = 7> (a) y = Add (b, b)"
    model = _model(body, signature="(double[N] x) => (int64[N] y)")
    result = _fp16(model)
    assert (result.nodes_converted, result.nodes_kept, result.casts_added) == ((), (), 0)
    model.graph.node[0].name, model.graph.node[1].name, model.graph.node[2].name = "Mul", "Cast", "Add"
    assert result.model.graph == model.graph


def test_what_is_float16_already_stays_so() -> None:
    body = "h = Cast <to = 10> (x) a = Mul (h, w) f = Cast <to = 1> (a) b = Exp (f) y = Neg (b)"
    model = _with_weights(_model(body), w=np.float16(0.5))
    result = _fp16(model)
    assert sorted(_casts(result.model)) == ["a", "x", "y_fp16"]
    assert np.abs(_run(result.model, x=_X)[0] - _run(model, x=_X)[0]).max() < 2e-3


def test_what_an_unknown_operator_makes_is_read_in_fp32() -> None:
    body = "a = Exp (x) b = own.Thing (a) c = Neg (b) y = Abs (x)"
    model = _model(body)
    model.graph.node.append(onnx.helper.make_node("Shape", ["c"], ["shape"]))
    reasons = _kept(_fp16(model))
    assert reasons["Thing"] == "the operators of 'own' have no rules for their dtypes here"
    assert "Neg" not in reasons


def test_weights_that_are_inputs_too_become_constants() -> None:
    model = _perceptron()
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 8]))
    model.ir_version = 3
    result = _fp16(model)
    assert [value.name for value in result.model.graph.input] == ["x"]
    assert result.model.ir_version == 4
    assert result.notes == ("weights that were inputs of the graph too are constants now: w",)
    _run(result.model, x=_X)


@pytest.mark.parametrize("indices", [[1, 3], [[0, 1], [0, 3]]])
def test_sparse_weights_are_lowered_and_dense(indices: list[Any]) -> None:
    model = _model("y = Mul (x, w)")
    sparse = model.graph.sparse_initializer.add(dims=[1, 4])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(_float32([1e9, 2]), "w"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array(indices), "w_indices"))
    result = _fp16(model)
    assert result.model.graph.initializer[0].data_type == TensorProto.FLOAT16
    assert [change.tensor for change in result.clamps] == ["w"]
    assert _run(result.model, x=np.ones((1, 4), np.float32))[0].tolist() == [[0, 65504, 0, 2]]


def test_types_that_were_stated_are_brought_up_to_date_and_no_others_added() -> None:
    model = _perceptron()
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N", 8]))
    stated = _fp16(model).model.graph.value_info
    assert [(value.name, value.type.tensor_type.elem_type) for value in stated] == [("b", TensorProto.FLOAT16)]


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DynamicQuantizeLinear"])
def test_a_quantized_model_is_refused(operator: str) -> None:
    inputs, outputs = ("x, s, z", "y") if operator == "QuantizeLinear" else ("x", "y, s, z")
    with pytest.raises(ConversionError, match=f"the model is quantized .node '{operator}' is a {operator}"):
        _fp16(_model(f"{outputs} = {operator} ({inputs})"))


def test_a_model_that_is_not_valid_is_refused() -> None:
    with pytest.raises(ConversionError, match="the given model is not valid ONNX"):
        _fp16(_model("y = Neg (a) a = Exp (x)"))


def test_an_opset_without_a_cast_to_the_precision_is_refused() -> None:
    with pytest.raises(ConversionError, match=r"opset 5 has no cast to fp16 \(expected 6 or higher\)"):
        _fp16(_model("y = Exp (x)", opset=5))


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("t = Transpose <perm = [1, 0, 2]> (x) p = MatMul (t, w) y = Relu (p)", 4),
        ("t = Transpose <perm = [1, 2, 0]> (x) y = MatMul (t, w)", 2),
        ("t = Transpose <perm = [1, 0, 2]> (x) p = MatMul (t, w) q = Tanh (t) r = MatMul (q, w) y = Add (p, r)", 4),
        ("t = Transpose <perm = [1, 0, 2]> (x) s = Identity (t) v = Tanh (w) y = MatMul (s, v)", 4),
    ],
    ids=["a batch in second place", "a batch in last place", "two readers", "computed beforehand"],
)
def test_a_transpose_that_onnxruntime_crashes_on_in_fp16_stays_fp32(tmp_path: Path, body: str, size: int) -> None:
    weight = np.random.default_rng(0).standard_normal((size, 3)).astype(np.float32)
    model = _with_weights(_model(body, signature="(float[2,5,4] x) => (float[A,B,C] y)"), w=weight)

    result = _fp16(model)

    assert [node for node, why in _kept(result).items() if "ONNX Runtime crashes" in why] == ["Transpose"]
    onnx.save(result.model, tmp_path / "model.onnx")
    # What goes wrong ends the process that asks.
    script = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "model.onnx")], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, v)",
        "t = Transpose <perm = [1, 0, 2]> (x) r = Relu (t) y = MatMul (r, w)",
        "t = Transpose <perm = [1, 0, 2]> (x) y = MatMul (t, z)",
    ],
    ids=["another order", "something between", "no weight"],
)
def test_other_transposes_are_lowered(body: str) -> None:
    weights = {"w": np.ones((4, 3), np.float32), "v": np.ones((5, 3), np.float32)}
    model = _with_weights(_model(body, signature="(float[2,5,4] x, float[5,4,3] z) => (float[A,B,C] y)"), **weights)

    assert not [why for why in _kept(_fp16(model)).values() if "crashes" in why]
