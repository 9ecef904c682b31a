"""ONNX to TensorRT-RTX engines, built for real without a GPU: what is written, what it computes in, what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.convert.conftest import Bench, Converted, sign

from paritygate.codec import to_data
from paritygate.convert.conversion import Calibration
from paritygate.convert.engine import build as build_module
from paritygate.convert.engine import build as config_module
from paritygate.convert.engine.quantized import fold_integer_biases, has_integer_biases
from paritygate.engine.library import open_library
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.errors import ConversionError, InputFileError, UnsupportedOperatorsError, UsageError
from paritygate.precision import Precision
from paritygate.signature import Signature

pytestmark = pytest.mark.rtx

_RANDOM = np.random.default_rng(3)
_RELU = """
< ir_version: 8, opset_import: ["" : 17] >
relu (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }
"""
_RELU_SIGNATURE = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))
_CONV_SIGNATURE = sign({"x": "float32[batch, 3, 8, 8]"}, {"y": "float32[batch, 5]"}, batch=(1, 4, 8))


def _normal(*shape: int, scale: float = 0.2) -> NDArray[np.float32]:
    return (_RANDOM.standard_normal(shape) * scale).astype(np.float32)


def _conv_net(folder: Path, *, channels: int = 8) -> Path:
    """Write a residual block: two convolutions, an addition, pooling, and a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="head", transB=1),
    ]
    weights = {
        "w1": _normal(channels, 3, 3, 3),
        "b1": _normal(channels),
        "w2": _normal(channels, channels, 3, 3),
        "b2": _normal(channels),
        "w3": _normal(5, channels),
        "b3": _normal(5),
    }
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = folder / "conv.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def _calibration(**fields: Any) -> Calibration:  # noqa: ANN401 - any field
    batches = [{"x": _normal(4, 3, 8, 8, scale=1.0)} for _ in range(3)]

    def read() -> Iterator[Mapping[str, NDArray[np.generic]]]:
        return iter(batches)

    return Calibration(read=read, **{"tool": "onnxruntime", **fields})


def _onnx(bench: Bench, path: Path, precision: Precision, **fields: Any) -> Path:  # noqa: ANN401
    """Return the model in a lower precision, converted as it is for a target of that name."""
    other = Bench(folder=bench.folder / f"onnx-{precision}")
    return other.convert("onnx", path, precision=precision, **fields).main


def _engine(
    bench: Bench,
    path: Path,
    precision: Precision = Precision.FP32,
    signature: Signature | None = _RELU_SIGNATURE,
    **fields: Any,  # noqa: ANN401
) -> Converted:
    return bench.convert("onnx", path, to="tensorrt-rtx", precision=precision, signature=signature, **fields)


def _error(bench: Bench, text: str, signature: Signature | None, **fields: Any) -> ConversionError:  # noqa: ANN401
    with pytest.raises(ConversionError) as caught:
        _engine(bench, bench.onnx_file(text), signature=signature, **fields)
    return caught.value


def test_the_engine_and_its_record_are_written(bench: Bench) -> None:
    converted = _engine(bench, bench.onnx_file(_RELU))
    assert set(converted.files) == {"model.plan", "engine.json"}
    assert converted.conversion.main == "model.plan"
    assert converted.conversion.signature == _RELU_SIGNATURE
    record, facts = EngineRecord.load(converted.main), converted.conversion.facts
    assert record.signature == _RELU_SIGNATURE
    assert (record.library, record.precision, record.tf32, record.built_on) == (
        "tensorrt-rtx", Precision.FP32, False, None,
    )  # fmt: skip
    assert record.dtype_counts == {"FLOAT": {"ACTIVATION": 1}}
    assert facts["profile"] == {"x": {"min": [1, 4], "opt": [2, 4], "max": [8, 4]}}
    assert facts["engine_bytes"] == converted.main.stat().st_size > 0
    assert facts["layers"] == 1
    for name in ("library", "version", "tf32", "dtype_counts", "targets", "built_on"):
        assert facts[name] == getattr(record, name), name
    assert facts["engine_settings"] == to_data(EngineSettings())


def test_what_was_done_is_said(bench: Bench) -> None:
    converted = _engine(bench, bench.onnx_file(_RELU))
    version = converted.conversion.facts["version"]
    assert converted.conversion.notes[:3] == (
        f"built ahead of time by TensorRT-RTX {version} for compute capability 8.0 and above",
        "the network computes in FLOAT 1 ACTIVATION",
        "TF32 is off, so FP32 values of the network are computed in FP32",
    )


@pytest.mark.parametrize(("precision", "dtype"), [(Precision.FP16, "HALF"), (Precision.BF16, "BF16")])
def test_a_lower_precision_is_what_the_network_computes_in(bench: Bench, precision: Precision, dtype: str) -> None:
    lower = _onnx(bench, _conv_net(bench.folder), precision)
    converted = _engine(bench, lower, precision, _CONV_SIGNATURE)
    dtype_counts = converted.conversion.facts["dtype_counts"]
    assert dtype_counts[dtype]["CONVOLUTION"] == 2
    assert dtype_counts[dtype]["MATRIX_MULTIPLY"] == 1
    # What goes in and out stays float32: it is cast at the edges, and nothing else is in FP32.
    assert dtype_counts["FLOAT"] == {"CAST": 1}
    assert converted.conversion.signature == _CONV_SIGNATURE


def test_an_engine_in_fp16_has_half_the_size(bench: Bench) -> None:
    path = _conv_net(bench.folder, channels=512)
    whole = _engine(Bench(folder=bench.folder / "fp32"), path, signature=_CONV_SIGNATURE)
    half = _engine(bench, _onnx(bench, path, Precision.FP16), Precision.FP16, _CONV_SIGNATURE)
    ratio = half.main.stat().st_size / whole.main.stat().st_size
    assert 0.45 < ratio < 0.6


def test_int8_is_in_the_products(bench: Bench) -> None:
    quantized = _onnx(bench, _conv_net(bench.folder), Precision.INT8, calibration=_calibration())
    converted = _engine(bench, quantized, Precision.INT8, _CONV_SIGNATURE)
    facts, notes = converted.conversion.facts, converted.conversion.notes
    assert facts["int8_products"] == {"CONVOLUTION": 2, "MATRIX_MULTIPLY": 1}
    assert facts["dtype_counts"]["INT8"]["QUANTIZE"] > 0
    assert any(
        note.startswith("the network computes on int8 2 CONVOLUTION, 1 MATRIX_MULTIPLY, and in") for note in notes
    )
    assert "3 biases that were stored in int32 became float constants: TensorRT dequantizes no int32" in notes
    assert set(converted.files) == {"model.plan", "engine.json"}


def test_biases_in_int32_become_what_dequantizing_them_gives(bench: Bench) -> None:
    import onnxruntime

    path = _onnx(bench, _conv_net(bench.folder), Precision.INT8, calibration=_calibration())
    model = onnx.load(str(path))
    folded = onnx.load(str(path))
    assert fold_integer_biases(folded) == 3
    onnx.checker.check_model(folded, full_check=True)
    x = {"x": _normal(2, 3, 8, 8, scale=1.0)}
    options = onnxruntime.SessionOptions()
    # As they are written: optimised, the two would take different integer kernels.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    answers = [
        onnxruntime.InferenceSession(each.SerializeToString(), options).run(None, x)[0] for each in (model, folded)
    ]
    np.testing.assert_array_equal(*answers)


def test_biases_with_a_scale_a_channel_and_a_zero_point_are_folded_too() -> None:
    model = onnx.parser.parse_model("""
    < ir_version: 8, opset_import: ["" : 17] >
    bias (float[2, 3] x) => (float[2, 3] y)
    <int32[2, 3] b = {1, -2, 3, 4, 5, 2147483647}, float[3] s = {0.5, 2, 4}, int32[3] z = {1, 0, -1}>
    { d = DequantizeLinear <axis = 1> (b, s, z)  y = Add (x, d) }
    """)
    assert has_integer_biases(model)
    assert fold_integer_biases(model) == 1
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_array_equal(values["d"], np.array([[0, -4, 16], [1.5, 10, 4 * 2147483648]], np.float32))
    assert [node.op_type for node in model.graph.node] == ["Add"]
    assert not has_integer_biases(model)


@pytest.mark.parametrize(
    ("fields", "what"),
    [({"activations": "uint8"}, "12 of 18"), pytest.param({"tool": "nncf"}, "6 of 13", marks=pytest.mark.nncf)],
    ids=["uint8", "nncf"],
)
def test_uint8_is_refused_which_the_parser_takes_for_int8(bench: Bench, fields: dict[str, str], what: str) -> None:
    quantized = _onnx(bench, _conv_net(bench.folder), Precision.INT8, calibration=_calibration(**fields))
    with pytest.raises(ConversionError, match=f"{what} quantizing nodes are in uint8") as caught:
        _engine(bench, quantized, Precision.INT8, _CONV_SIGNATURE)
    assert "computes int8 only with zero points of 0" in str(caught.value)
    assert caught.value.hint == "write calibration: {tool: onnxruntime, activations: int8}"


def test_a_zero_point_that_is_not_0_is_refused(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    zp (float[batch, 4] x) => (float[batch, 4] y) <float s = {0.5}, int8 z = {3}>
    { q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z) }
    """
    error = _error(bench, text, _RELU_SIGNATURE, precision=Precision.INT8)
    assert "2 of 2 quantizing nodes are with zero points other than 0" in str(error)


def test_a_quantizer_without_a_zero_point_is_uint8(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    zp (float[batch, 4] x) => (float[batch, 4] y) <float s = {0.5}>
    { q = QuantizeLinear (x, s)  y = DequantizeLinear (q, s) }
    """
    error = _error(bench, text, _RELU_SIGNATURE, precision=Precision.INT8)
    assert "are in uint8, such as 'x'" in str(error)


def test_fp16_that_is_not_in_the_network_is_refused(bench: Bench) -> None:
    with pytest.raises(
        ConversionError, match="fp16 was requested, but no layer of the network computes in it"
    ) as caught:
        _engine(bench, _conv_net(bench.folder), Precision.FP16, _CONV_SIGNATURE)
    assert "reads in FLOAT 2 ACTIVATION, 2 CONVOLUTION, 2 ELEMENTWISE, 1 MATRIX_MULTIPLY, 1 REDUCE" in str(caught.value)
    assert caught.value.hint == "remove the fp16 target, or give an ONNX model that was rewritten to fp16"
    assert not (bench.folder / "converted" / "model.plan").exists()


def test_casts_to_fp16_are_no_computing_in_it(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    casts (float[batch, 4] x) => (float[batch, 4] y) { h = Cast <to = 10> (x)  f = Cast <to = 1> (h)  y = Relu (f) }
    """
    error = _error(bench, text, _RELU_SIGNATURE, precision=Precision.FP16)
    assert "reads in FLOAT 1 ACTIVATION" in str(error)


def test_int8_that_is_in_no_product_is_refused(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    pair (float[batch, 4] x) => (float[batch, 4] y) <float s = {0.5}, int8 z = {0}>
    { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  y = Relu (d) }
    """
    error = _error(bench, text, _RELU_SIGNATURE, precision=Precision.INT8)
    assert "int8 was requested, but no product of the network has quantized values" in str(error)
    assert error.hint == "check which nodes calibration quantizes, or remove the int8 target"


def test_a_model_that_was_trained_in_mixed_precision_stays_so(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    mixed (float[batch, 4] x) => (float[batch, 4] y)
    { h = Cast <to = 10> (x)  r = Relu (h)  f = Cast <to = 1> (r)  y = Exp (f) }
    """
    converted = _engine(bench, bench.onnx_file(text))
    assert "the network computes in FLOAT 1 UNARY, and in HALF 1 ACTIVATION" in converted.conversion.notes


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the configurations that builds are started with, oldest first."""
    found: list[Any] = []
    original = config_module.create_config

    def kept(*args: Any) -> Any:  # noqa: ANN401
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(build_module, "create_config", kept)
    return found


def test_products_have_no_tf32(bench: Bench, configs: list[Any]) -> None:
    converted = _engine(bench, _conv_net(bench.folder), signature=_CONV_SIGNATURE)
    trt = open_library("tensorrt-rtx").module
    assert not configs[0].get_flag(trt.BuilderFlag.TF32)
    assert converted.conversion.facts["tf32"] is False


def test_tf32_that_stays_on_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trt = open_library("tensorrt-rtx").module
    monkeypatch.setattr(trt.IBuilderConfig, "clear_flag", lambda *_: None)
    error = _error(bench, _RELU, _RELU_SIGNATURE)
    assert "does not apply TF32 (got on" in str(error)
    assert not (bench.folder / "converted" / "model.plan").exists()


def test_all_that_the_parser_does_not_take_is_in_one_table(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17, "com.foo" : 1] >
    bad (float[batch, 4, 4] x, string[batch] s, uint16[batch] u)
      => (float[batch, 4, 4] y, float[batch] d, string[batch] t, float[batch, 4, 4] z)
    { [tw] y = com.foo.Twist (x)  [det] d = Det (x)  t = StringNormalizer (s)  z = Relu (x) }
    """
    error = _error(bench, text, sign({"x": "float32[batch, 4, 4]"}, {}, batch=(1, 2, 4)))
    assert isinstance(error, UnsupportedOperatorsError)
    title = open_library("tensorrt-rtx").title
    assert [row[:3] for row in error.rows] == [
        ("(input)", "s", f"{title} has no dtype string"),
        ("(input)", "u", f"{title} has no dtype uint16"),
        ("com.foo::Twist", "tw", f"{title} has no such operator"),
        ("Det", "det", f"{title} does not support it"),
        # It has no name: it is found by its output.
        ("StringNormalizer", "t", f"{title} does not support it"),
    ]
    operators = "com.foo::Twist, Det, StringNormalizer"
    assert str(error) == f"{title} does not have these operators of the model: {operators}"
    assert error.hint == "replace the operator by others of ONNX, or serve the model in ONNX"


def test_inputs_alone_are_named_as_such(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    bad (string[batch] s, uint16[batch] u) => (string[batch] t) { t = Identity (s) }
    """
    error = _error(bench, text, sign({"s": "string[batch]", "u": "uint16[batch]"}, {}, batch=(1, 2, 4)))
    assert "does not accept these inputs of the model: s: " in str(error)
    assert "has no dtype uint16" in str(error)
    assert error.hint == "give the model inputs of another dtype, or serve it in ONNX"


@pytest.mark.parametrize(
    ("nodes", "operator", "words"),
    [
        (
            "y = Abs (x)",
            "Abs",
            "This version of TensorRT does not support the given operator ABS with the given input data type UINT8.",
        ),
        (
            "m = NonZero (x)  y = Transpose (m)",
            "NonZero",
            "NonZero plugin creator version 1 was not found in plugin registry.",
        ),
    ],
    ids=["a dtype", "a plugin"],
)
def test_what_the_parser_says_in_words_is_kept(bench: Bench, nodes: str, operator: str, words: str) -> None:
    dtype = "uint8" if operator == "Abs" else "float"
    output = "uint8[batch, 4] y" if operator == "Abs" else "int64[n, 2] y"
    text = f"""
    < ir_version: 8, opset_import: ["" : 17] >
    words ({dtype}[batch, 4] x) => ({output}) {{ {nodes} }}
    """
    error = _error(bench, text, sign({"x": f"{dtype.replace('float', 'float32')}[batch, 4]"}, {}, batch=(1, 2, 4)))
    assert isinstance(error, UnsupportedOperatorsError)
    assert [(row[0], row[2]) for row in error.rows] == [(operator, words)]


def test_an_operator_inside_of_another_or_of_a_function_is_found(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17, "f" : 1] >
    inner (float[batch, 4, 4] x) => (float[batch] y) { y = f.size (x) }
    < opset_import: ["" : 17], domain: "f" >
    size (a) => (b) { c = Relu (a)  b = Det (c) }
    """
    error = _error(bench, text, sign({"x": "float32[batch, 4, 4]"}, {}, batch=(1, 2, 4)))
    assert isinstance(error, UnsupportedOperatorsError)
    assert [row[:2] for row in error.rows] == [("Det", "b")]


def test_dynamic_int8_is_refused_with_the_setting_that_helps(bench: Bench) -> None:
    weights = numpy_helper.from_array(_normal(4, 4), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weights],
    )
    path = bench.folder / "matmul.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    quantized = _onnx(bench, path, Precision.INT8, calibration=_calibration(method="dynamic"))
    with pytest.raises(UnsupportedOperatorsError, match="DynamicQuantizeLinear, MatMulInteger") as caught:
        _engine(bench, quantized, Precision.INT8)
    assert caught.value.hint == "write calibration: {method: minmax}: engines take ranges that are found ahead of time"


def test_a_file_that_is_no_onnx_is_refused(bench: Bench) -> None:
    path = bench.folder / "junk.onnx"
    path.write_bytes(b"junk")
    with pytest.raises(InputFileError, match="is not an ONNX model"):
        _engine(bench, path)


def test_dims_without_sizes_are_refused(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    with pytest.raises(UsageError, match="no sizes are declared for dim 'batch'") as caught:
        _engine(bench, bench.onnx_file(_RELU), signature=signature)
    assert "model.dims" in caught.value.hint
    with pytest.raises(UsageError, match="no sizes are declared for dim 'batch'"):
        _engine(bench, bench.onnx_file(_RELU), signature=None)


def test_dims_that_are_all_fixed_need_no_sizes(bench: Bench) -> None:
    converted = _engine(bench, bench.onnx_file(_RELU.replace("batch", "2")), signature=None)
    assert converted.conversion.signature == sign({"x": "float32[2, 4]"}, {"y": "float32[2, 4]"})
    assert converted.conversion.facts["profile"] == {"x": {"min": [2, 4], "opt": [2, 4], "max": [2, 4]}}


def test_names_dtypes_order_and_dims_stay(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    types (int64[N, S] ids, bool[N, S] mask, int32[N] i, uint8[2, M] u, float16[N] h, float[N] unused)
      => (int64[N, S] id, bool[N, S] no, int32[N] j, uint8[2, M] v, float16[N] k, int64[N, S] same) {
        id = Identity (ids)  no = Not (mask)  j = Add (i, i)  v = Identity (u)  k = Identity (h)  same = Identity (ids)
    }
    """
    signature = sign(
        {"ids": "int64[N, S]", "mask": "bool[N, S]", "i": "int32[N]", "u": "uint8[2, M]", "h": "float16[N]",
         "unused": "float32[N]"},
        {"id": "int64[N, S]", "no": "bool[N, S]", "j": "int32[N]", "v": "uint8[2, M]", "k": "float16[N]",
         "same": "int64[N, S]"},
        N=(1, 2, 4),
        S=(1, 8, 16),
        M=(3, 3, 3),
    )  # fmt: skip
    converted = _engine(bench, bench.onnx_file(text), signature=signature)
    assert converted.conversion.signature == signature
    assert any("warnings of TensorRT-RTX" in note and "unused" in note for note in converted.conversion.notes)


def test_a_name_that_is_a_pattern_is_a_name(bench: Bench) -> None:
    model = onnx.parser.parse_model(_RELU)
    model.graph.input[0].name = model.graph.node[0].input[0] = "x[0]*?"
    path = bench.folder / "pattern.onnx"
    onnx.save(model, str(path))
    signature = sign({"x[0]*?": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))
    converted = _engine(bench, path, signature=signature)
    assert converted.conversion.signature == signature


def test_float64_that_would_become_float32_is_refused(bench: Bench) -> None:
    text = _RELU.replace("float[", "double[").replace("Relu (x)", "Add (x, x)")
    signature = sign({"x": "float64[batch, 4]"}, {"y": "float64[batch, 4]"}, batch=(1, 2, 8))
    error = _error(bench, text, signature)
    assert "'x' is float64 in the ONNX model, but TensorRT-RTX" in str(error)
    assert str(error).endswith("makes it float32")
    assert error.hint == "export the model with 'x' as float32, or serve it in ONNX"


def test_float64_inside_is_said(bench: Bench) -> None:
    text = _RELU.replace("y = Relu (x)", "a = Cast <to = 11> (x)  b = Exp (a)  y = Cast <to = 1> (b)")
    notes = _engine(bench, bench.onnx_file(text)).conversion.notes
    assert "float64 inside the model is computed in float32, because engines have no float64" in notes


def test_an_input_that_is_a_shape_is_refused(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    shape (float[batch, 4] x, int64[2] s) => (float[A, B] y) { y = Reshape (x, s) }
    """
    error = _error(bench, text, sign({"x": "float32[batch, 4]", "s": "int64[2]"}, {}, batch=(1, 2, 8)))
    assert "the values of input 's' decide a shape" in str(error)
    assert error.hint == "take the shape from that of another input, or serve the model in ONNX"


def test_a_signature_that_the_network_has_not_is_refused(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 5]"}, batch=(1, 2, 8))
    error = _error(bench, _RELU, signature)
    assert "dim 1 of output 'y' is fixed at 4, expected 5" in str(error)


def test_a_build_that_fails_says_why_in_the_builders_words(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    sevens (float[N, S] x) => (float[A, 7] y) <int64[2] s = {-1, 7}> { y = Reshape (x, s) }
    """
    error = _error(bench, text, sign({"x": "float32[N, S]"}, {"y": "float32[A, 7]"}, N=(1, 2, 4), S=(1, 2, 4)))
    assert "does not build the engine: " in str(error)
    assert "reshaping failed for tensor: x Reshape dimension of -1 has no solution" in str(error)
    assert "/_src/" not in str(error)
    assert error.hint == "declare in model.dims only sizes that the model takes together"
    assert not (bench.folder / "converted" / "model.plan").exists()


def test_engines_are_built_for_the_gpus_asked_for(bench: Bench, configs: list[Any]) -> None:
    settings = EngineSettings(compute_capabilities=("8.9", "12.0"), workspace_mb=64, optimization_level=1)
    converted = _engine(bench, bench.onnx_file(_RELU), engine=settings)
    record = EngineRecord.load(converted.main)
    assert record.settings == settings
    assert record.targets == converted.conversion.facts["targets"] == "compute capability 8.9, 12.0"
    count = range(configs[0].num_compute_capabilities)
    assert [configs[0].get_compute_capability(index).name for index in count] == ["SM89", "SM120"]
    assert configs[0].builder_optimization_level == 1


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(compute_capabilities=("9.0",)),
        EngineSettings(hardware_compatibility=HardwareCompatibility.AMPERE_PLUS),
        EngineSettings(version_compatible=True),
    ],
)
def test_what_the_library_does_not_honour_is_refused_before_the_build(bench: Bench, settings: EngineSettings) -> None:
    with pytest.raises(UsageError):
        _engine(bench, bench.onnx_file(_RELU), engine=settings)


def test_a_setting_that_is_not_kept_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(*_: Any) -> Any:  # noqa: ANN401
        from polygraphy.backend.tensorrt_rtx import CreateConfigRTX

        return CreateConfigRTX()

    monkeypatch.setattr(config_module, "_loader", deaf)
    settings = EngineSettings(workspace_mb=64)
    error = _error(bench, _RELU.replace("batch", "2"), None, engine=settings)
    assert "does not apply workspace_mb (got 65536" in str(error)
    assert error.hint == "leave the setting out, or install another version of the library"


def test_weights_beside_the_model_are_found(bench: Bench) -> None:
    path = _conv_net(bench.folder)
    folder = bench.folder / "external"
    folder.mkdir()
    model = onnx.load(str(path))
    onnx.save_model(
        model, str(folder / "model.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    converted = _engine(bench, folder / "model.onnx", signature=_CONV_SIGNATURE)
    inside = _engine(Bench(folder=bench.folder / "inside"), path, signature=_CONV_SIGNATURE)
    assert abs(converted.main.stat().st_size - inside.main.stat().st_size) < 4096
    before = converted.conversion.facts["onnx"]
    data = bytearray((folder / "weights.bin").read_bytes())
    data[0] ^= 1
    (folder / "weights.bin").write_bytes(data)
    after = _engine(Bench(folder=bench.folder / "changed"), folder / "model.onnx", signature=_CONV_SIGNATURE)
    assert after.conversion.facts["onnx"] != before


def test_weights_outside_of_the_folder_are_refused(bench: Bench) -> None:
    path = _conv_net(bench.folder)
    model = onnx.load(str(path))
    folder = bench.folder / "external"
    folder.mkdir()
    onnx.save_model(
        model, str(folder / "model.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (folder / "weights.bin").rename(bench.folder / "weights.bin")
    linked = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    for tensor in linked.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../weights.bin" if entry.key == "location" else entry.value
    (folder / "model.onnx").write_bytes(linked.SerializeToString())
    with pytest.raises(InputFileError, match="refers to external data outside its folder"):
        _engine(bench, folder / "model.onnx", signature=_CONV_SIGNATURE)


def test_an_output_that_is_used_inside_is_there(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    two (float[batch, 4] x) => (float[batch, 4] logits, float[batch, 4] p)
    { logits = Exp (x)  p = Softmax <axis = 1> (logits) }
    """
    signature = sign(
        {"x": "float32[batch, 4]"}, {"logits": "float32[batch, 4]", "p": "float32[batch, 4]"}, batch=(1, 2, 8)
    )
    path = _onnx(bench, bench.onnx_file(text), Precision.FP16)
    converted = _engine(bench, path, Precision.FP16, signature)
    assert converted.conversion.signature == signature
    assert converted.conversion.facts["dtype_counts"]["HALF"]["SOFTMAX"] == 1


def test_an_if_becomes_part_of_the_network(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    branch (bool c, float[batch, 4] x) => (float[batch, 4] y) {
      y = If (c) <
        then_branch = t () => (float[batch, 4] p) { p = Exp (x) },
        else_branch = e () => (float[batch, 4] q) { q = Relu (x) }
      >
    }
    """
    signature = sign({"c": "bool[]", "x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))
    dtype_counts = _engine(bench, bench.onnx_file(text), signature=signature).conversion.facts["dtype_counts"]
    assert {"UNARY", "ACTIVATION"} <= set(dtype_counts["FLOAT"])


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.torch
def test_the_sentence_pair_model_is_built(bench: Bench) -> None:
    from paritygate.fixtures import sts

    signature = sign(
        {"input_ids": "int64[batch, sequence]", "attention_mask": "int64[batch, sequence]"},
        {"logits": "float32[batch, 1]"},
        batch=(1, 8, 64),
        sequence=(8, 64, 128),
    )
    source = Bench(folder=bench.folder / "onnx").convert("torch", model=sts.torch_model(), signature=signature).main
    sizes = {}
    for precision, dtype in ((Precision.FP32, "FLOAT"), (Precision.FP16, "HALF"), (Precision.BF16, "BF16")):
        path = source if precision is Precision.FP32 else _onnx(bench, source, precision)
        converted = _engine(Bench(folder=bench.folder / f"engine-{precision}"), path, precision, signature)
        assert converted.conversion.signature == signature
        dtype_counts = converted.conversion.facts["dtype_counts"]
        assert (dtype_counts[dtype]["MATRIX_MULTIPLY"], dtype_counts[dtype]["SOFTMAX"]) == (18, 2)
        sizes[precision] = converted.main.stat().st_size
    # The code of its kernels is the larger part of a small engine: weights are 2.8 of 6.1 MB.
    # Those of FP32 are larger, and normalisations have one of their own in any case.
    saved = sizes[Precision.FP32] - sizes[Precision.FP16]
    assert saved > 0.35 * source.stat().st_size
