"""ONNX to INT8: what is quantized and how, what stays as it was, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.convert.conftest import Bench, Converted

from paritygate.convert.conversion import Calibration
from paritygate.convert.int8.choice import nodes_to_quantize
from paritygate.errors import ConversionError, UsageError
from paritygate.models.onnx.file import precision_found
from paritygate.precision import Precision

Arrays = Mapping[str, NDArray[Any]]

_RANDOM = np.random.default_rng(11)
_TINY = """
< ir_version: 8, opset_import: ["" : 17] >
tiny (float[batch, 2] x) => (float[batch, 2] y) { y = Relu (x) }
"""


@pytest.fixture(autouse=True)
def _same_values_in_any_order_of_tests() -> None:
    global _RANDOM  # noqa: PLW0603 - a test's values are its own, whichever run before it
    _RANDOM = np.random.default_rng(11)


def _normal(*shape: int, scale: float = 1.0) -> NDArray[np.float32]:
    return (_RANDOM.standard_normal(shape) * scale).astype(np.float32)


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: Arrays,
    *,
    x: list[int | str],
    opset: int = 17,
    extra: tuple[onnx.ValueInfoProto, ...] = (),
) -> Path:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x), *extra],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


def _conv_net(folder: Path, opset: int = 17) -> Path:
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
        "w1": _normal(8, 3, 3, 3, scale=0.2),
        "b1": _normal(8, scale=0.1),
        "w2": _normal(8, 8, 3, 3, scale=0.1),
        "b2": _normal(8, scale=0.1),
        "w3": _normal(5, 8),
        "b3": _normal(5, scale=0.1),
    }
    return _save(folder / "conv.onnx", nodes, weights, x=["batch", 3, 8, 8], opset=opset)


def _attention(folder: Path) -> Path:
    """Write one attention head: products with weights, and two of activations."""
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], name="query"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], name="key"),
        helper.make_node("Transpose", ["k"], ["kt"], name="transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["mixed"], name="mix"),
        helper.make_node("ReduceMean", ["mixed"], ["m"], name="mean", axes=[1], keepdims=0),
        helper.make_node("MatMul", ["m", "wo"], ["y"], name="out"),
    ]
    # Small enough that the softmax is smooth: of a sharp one, rounding decides which value wins.
    weights = {"wq": _normal(16, 16, scale=0.1), "wk": _normal(16, 16, scale=0.1), "wo": _normal(16, 5)}
    return _save(folder / "attention.onnx", nodes, weights, x=["batch", "sequence", 16])


def _with_if(folder: Path) -> Path:
    """Write a product, then an If that uses its result, its weights, and weights of nobody else."""
    branches = {}
    for branch, weight in (("then", "w1"), ("else", "inner")):
        made = helper.make_node("MatMul", ["h", weight], [f"{branch}_y"], name=f"{branch}_product")
        output = helper.make_tensor_value_info(f"{branch}_y", TensorProto.FLOAT, ["batch", 16])
        branches[branch] = helper.make_graph([made], branch, [], [output])
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="shared"),
        helper.make_node("If", ["flag"], ["chosen"], then_branch=branches["then"], else_branch=branches["else"]),
        helper.make_node("MatMul", ["chosen", "wo"], ["y"], name="out"),
    ]
    weights = {"w1": _normal(16, 16, scale=0.3), "inner": _normal(16, 16, scale=0.3), "wo": _normal(16, 5, scale=0.3)}
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    return _save(folder / "if.onnx", nodes, weights, x=["batch", 16], extra=(flag,))


def _images(rows: int = 8) -> dict[str, NDArray[Any]]:
    return {"x": _normal(rows, 3, 8, 8)}


def _sentences() -> dict[str, NDArray[Any]]:
    return {"x": _normal(8, int(_RANDOM.integers(3, 9)), 16)}


def _calibration(
    make: Callable[[], Arrays], *, tool: str = "onnxruntime", batches: int = 6, **settings: str
) -> Calibration:
    rows = [make() for _ in range(batches)]
    return Calibration(read=lambda: iter(rows), tool=tool, **settings)


def _to_int8(bench: Bench, path: Path, calibration: Calibration | None) -> Converted:
    return bench.convert("onnx", path, precision=Precision.INT8, calibration=calibration)


def _exact(path: Path, inputs: Arrays) -> NDArray[Any]:
    """Return what an INT8 graph answers, whatever this processor does with sums of INT8."""
    model = onnx.load(str(path))
    if any(node.op_type == "MatMulInteger" for node in model.graph.node):
        (found,) = ReferenceEvaluator(model).run(["y"], dict(inputs))
        return np.asarray(found)
    # As it stands in the file, each pair of QuantizeLinear and DequantizeLinear has floats between the pairs.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], dict(inputs))[0])


def _assert_like_source(converted: Converted, path: Path, inputs: Arrays, *, share: float = 0.2) -> None:
    """Assert that no output differs by more than a share of the standard deviation of all."""
    __tracebackhide__ = True
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["y"], dict(inputs))
    actual = _exact(converted.main, inputs)
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    worst = float(np.abs(actual - expected).max())
    assert 0 < worst < share * float(expected.std()), f"{worst} of {expected.std()}"


def _graph(converted: Converted) -> onnx.GraphProto:
    return onnx.load(str(converted.main)).graph


def _constants(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def _dequantized_weights(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, int | None]]:
    """Yield the node that makes floats of each weight, and its axis."""
    stored = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and stored.get(node.input[0], 0) > 1:
            axis = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
            yield node, axis[0] if axis else None


def test_weights_are_int8_with_a_scale_for_each_output_channel(bench: Bench) -> None:
    graph = _graph(_to_int8(bench, _conv_net(bench.folder), _calibration(_images)))

    constants = _constants(graph)
    found = list(_dequantized_weights(graph))
    assert len(found) == 3
    for node, axis in found:
        weight, scale, zero = (constants[name] for name in node.input)
        assert axis == 0
        assert weight.dtype == zero.dtype == np.int8
        assert scale.shape == zero.shape == (weight.shape[0],)
        assert not zero.any()
        # By channel: each has its own scale, and uses the whole range of integers.
        assert len(set(scale.tolist())) == len(scale)
        assert (np.abs(weight.astype(int)).reshape(len(weight), -1).max(axis=1) == 127).all()


def test_the_axis_of_a_product_is_that_of_its_columns(bench: Bench) -> None:
    graph = _graph(_to_int8(bench, _attention(bench.folder), _calibration(_sentences)))

    constants = _constants(graph)
    found = [(constants[node.input[0]].shape, constants[node.input[1]].shape, axis)
             for node, axis in _dequantized_weights(graph)]  # fmt: skip
    assert sorted(found) == [((16, 5), (5,), 1), ((16, 16), (16,), 1), ((16, 16), (16,), 1)]


def test_activations_are_int8_with_zero_points_of_zero(bench: Bench) -> None:
    converted = _to_int8(bench, _conv_net(bench.folder), _calibration(_images))

    graph = _graph(converted)
    constants = _constants(graph)
    zeros = [constants[node.input[2]] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert zeros
    assert all(zero.dtype == np.int8 and not zero.any() for zero in zeros)
    assert converted.conversion.facts["quantized"]["zero_points"] == "0"


def test_uint8_activations_have_zero_points_of_their_own_and_weights_still_none(bench: Bench) -> None:
    path = _conv_net(bench.folder)
    converted = _to_int8(bench, path, _calibration(_images, activations="uint8"))

    graph = _graph(converted)
    constants = _constants(graph)
    zeros = [constants[node.input[2]] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert all(zero.dtype == np.uint8 for zero in zeros)
    assert any(zero.any() for zero in zeros)
    assert all(not constants[node.input[2]].any() for node, _ in _dequantized_weights(graph))
    _assert_like_source(converted, path, _images())


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_every_method_answers_like_the_source(bench: Bench, method: str) -> None:
    path = _conv_net(bench.folder)
    converted = _to_int8(bench, path, _calibration(_images, method=method))

    _assert_like_source(converted, path, _images(), share=0.3)
    assert precision_found(converted.main) is Precision.INT8
    assert f", {method}: 2 Conv, 1 Gemm" in converted.conversion.notes[0]


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_how_rows_are_batched_does_not_change_their_ranges(bench: Bench, method: str) -> None:
    path = _conv_net(bench.folder)
    rows = _images(24)["x"]
    scales = []
    for number, size in enumerate((24, 5)):
        batches = [{"x": rows[start : start + size]} for start in range(0, 24, size)]
        calibration = Calibration(read=lambda: iter(batches), tool="onnxruntime", method=method)  # noqa: B023 - read at once
        there = Bench(folder=bench.folder / str(number))
        graph = _graph(_to_int8(there, path, calibration))
        constants = _constants(graph)
        scales.append([constants[node.input[1]].item() for node in graph.node if node.op_type == "QuantizeLinear"])
    assert scales[0] == pytest.approx(scales[1], rel=1e-6 if method == "minmax" else 0.1)


def test_inputs_and_outputs_stay_as_in_the_signature(bench: Bench) -> None:
    converted = _to_int8(bench, _conv_net(bench.folder), _calibration(_images))

    signature = converted.conversion.signature
    assert [(spec.name, spec.dtype, spec.shape) for spec in signature.inputs] == [
        ("x", "float32", ("batch", 3, 8, 8))
    ]  # fmt: skip
    assert [(spec.name, spec.dtype, spec.shape) for spec in signature.outputs] == [("y", "float32", ("batch", 5))]
    assert set(converted.files) == {"model.onnx"}


def test_products_of_two_activations_are_left_alone(bench: Bench) -> None:
    path = _attention(bench.folder)

    assert nodes_to_quantize(onnx.load(str(path)).graph) == ("query", "key", "out")
    _assert_like_source(_to_int8(bench, path, _calibration(_sentences)), path, _sentences())


def test_what_lies_between_convolutions_is_quantized_and_what_follows_products_is_not(bench: Bench) -> None:
    graph = onnx.load(str(_conv_net(bench.folder))).graph

    assert nodes_to_quantize(graph) == ("conv1", "relu1", "conv2", "add", "relu2", "pool", "flatten", "head")
    graph.node[0].op_type = "Exp"
    assert "relu1" not in nodes_to_quantize(graph)


@pytest.mark.parametrize("is_yes", [True, False])
def test_nodes_inside_an_if_and_what_they_use_stay_fp32(bench: Bench, is_yes: bool) -> None:  # noqa: FBT001
    path = _with_if(bench.folder)

    def rows() -> dict[str, NDArray[Any]]:
        return {"x": _normal(8, 16), "flag": np.array(is_yes)}

    converted = _to_int8(bench, path, _calibration(rows))

    graph = _graph(converted)
    before = next(node for node in onnx.load(str(path)).graph.node if node.op_type == "If")
    after = next(node for node in graph.node if node.op_type == "If")
    assert [item.g.node for item in after.attribute] == [item.g.node for item in before.attribute]
    assert converted.conversion.facts["quantized"]["nodes"] == {"MatMul": 1}
    assert "2 nodes inside of If, Loop or Scan were left in fp32" in converted.conversion.notes
    _assert_like_source(converted, path, rows())


def test_weights_in_a_file_of_their_own_and_in_constant_nodes_are_quantized(bench: Bench) -> None:
    path = _conv_net(bench.folder)
    model = onnx.load(str(path))
    constant = model.graph.initializer[2]
    assert constant.name == "w2"
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w2"], value=constant))
    model.graph.initializer.remove(constant)
    outside = bench.folder / "outside.onnx"
    onnx.save(model, str(outside), save_as_external_data=True, location="weights.bin", size_threshold=0)

    converted = _to_int8(bench, outside, _calibration(_images))

    assert converted.conversion.facts["quantized"]["weights_by_channel"] == 3
    _assert_like_source(converted, path, _images())
    assert sorted(file.name for file in bench.folder.glob("*.onnx")) == ["conv.onnx", "outside.onnx"]


@pytest.mark.parametrize("method", ["minmax", "percentile", "dynamic"])
def test_a_model_too_large_for_one_file_is_quantized_into_two(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    path = _attention(bench.folder) if method == "dynamic" else _conv_net(bench.folder)
    make = _sentences if method == "dynamic" else _images
    # As if a protocol buffer ended at once.
    monkeypatch.setattr("paritygate.convert.onnx.rewrite.EXTERNAL_DATA_BYTES", 0)

    converted = _to_int8(bench, path, _calibration(make, method=method))

    assert set(converted.files) <= {"model.onnx", "model.onnx.data"}
    _assert_like_source(converted, path, make(), share=0.3)


def test_wrong_shapes_that_an_exporter_noted_do_no_harm(bench: Bench) -> None:
    path = _attention(bench.folder)
    model = onnx.load(str(path))
    model.graph.value_info.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [256]))
    onnx.save(model, str(path))

    _assert_like_source(_to_int8(bench, path, _calibration(_sentences)), path, _sentences())


def test_dynamic_quantization_needs_no_rows_and_answers_like_the_source(bench: Bench) -> None:
    path = _attention(bench.folder)
    calibration = Calibration(read=lambda: iter(()), tool="onnxruntime", method="dynamic")

    converted = _to_int8(bench, path, calibration)

    assert converted.conversion.facts["quantized"]["nodes"] == {"MatMulInteger": 3}
    assert converted.conversion.facts["quantized"]["weights_by_channel"] == 3
    assert precision_found(converted.main) is Precision.INT8
    _assert_like_source(converted, path, _sentences())


def test_dynamic_quantization_of_convolutions_is_refused_with_the_figure(bench: Bench) -> None:
    calibration = Calibration(read=lambda: iter(()), tool="onnxruntime", method="dynamic")

    with pytest.raises(
        UsageError, match=r"this one has 2 convolutions: ResNet50 .* about 5 times slower than in FP32"
    ) as caught:
        _to_int8(bench, _conv_net(bench.folder), calibration)
    assert "method: minmax" in caught.value.hint


def test_without_a_calibration_nothing_is_quantized(bench: Bench) -> None:
    with pytest.raises(UsageError, match="int8 needs real inputs for calibration") as caught:
        _to_int8(bench, _conv_net(bench.folder), None)
    assert "calibration.source" in caught.value.hint


def test_a_model_without_weights_is_refused(bench: Bench) -> None:
    with pytest.raises(ConversionError, match="no node of the model has constant weights"):
        _to_int8(bench, bench.onnx_file(_TINY), _calibration(lambda: {"x": _normal(4, 2)}))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:All-NaN axis:RuntimeWarning")
def test_ranges_that_are_not_finite_are_refused(bench: Bench, value: float) -> None:
    def broken() -> dict[str, NDArray[Any]]:
        rows = _images()
        rows["x"][:] = value
        return rows

    with pytest.raises(ConversionError):
        _to_int8(bench, _conv_net(bench.folder), _calibration(broken))


def test_an_opset_without_scales_by_channel_is_refused(bench: Bench) -> None:
    with pytest.raises(ConversionError, match=r"opset 11 cannot be quantized by channel \(expected 13 or higher\)"):
        _to_int8(bench, _conv_net(bench.folder, opset=11), _calibration(_images))


@pytest.mark.parametrize(("key", "value"), [("method", "guess"), ("activations", "int4")])
def test_unknown_ways_to_quantize_are_refused(bench: Bench, key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"calibration.{key} '{value}' is not known"):
        _to_int8(bench, _conv_net(bench.folder), _calibration(_images, **{key: value}))


@pytest.mark.nncf
def test_nncf_quantizes_by_channel_and_symmetrically(bench: Bench) -> None:
    path = _conv_net(bench.folder)

    converted = _to_int8(bench, path, _calibration(_images, tool="nncf"))

    quantized = converted.conversion.facts["quantized"]
    assert quantized["nodes"] == {"Conv": 2, "Gemm": 1}
    assert quantized["weights_by_channel"] == 3
    assert quantized["zero_points"] == "0"
    assert converted.conversion.notes[0].startswith("quantized to int8 by nncf ")
    assert precision_found(converted.main) is Precision.INT8
    _assert_like_source(converted, path, _images())


@pytest.mark.nncf
def test_a_model_too_large_for_nncf_is_refused_with_what_takes_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paritygate.convert.onnx.rewrite.EXTERNAL_DATA_BYTES", 0)
    with pytest.raises(ConversionError, match="NNCF accepts only ONNX models of at most") as caught:
        _to_int8(bench, _conv_net(bench.folder), _calibration(_images, tool="nncf"))
    assert "tool: onnxruntime" in caught.value.hint


@pytest.mark.nncf
def test_nncf_tells_nobody_of_its_use(bench: Bench) -> None:
    import sys

    _to_int8(bench, _conv_net(bench.folder), _calibration(_images, tool="nncf"))
    assert sys.modules["openvino_telemetry"] is None


@pytest.mark.parametrize("fact", [{"method": "entropy"}, {"method": "dynamic"}, {"activations": "uint8"}])
def test_what_nncf_does_not_do_is_refused(bench: Bench, fact: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"onnxruntime|ONNX Runtime"):
        _to_int8(bench, _conv_net(bench.folder), _calibration(_images, tool="nncf", **fact))


def test_who_stays_in_float_reads_what_was_not_rounded(bench: Bench) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
        helper.make_node("ArgMax", ["x"], ["best"], name="best", axis=-1, keepdims=0),
        helper.make_node("Add", ["x", "x"], ["twice"], name="twice"),
    ]
    graph = helper.make_graph(
        nodes,
        "beside",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5]),
            helper.make_tensor_value_info("best", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("twice", TensorProto.FLOAT, ["batch", 16]),
        ],
        [numpy_helper.from_array(_normal(16, 5), "w")],
    )
    path = bench.folder / "beside.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    # Next to each other, closer than INT8 tells apart.
    x = np.clip(_normal(200, 16), -2, 2)
    x[:, 3], x[:, 9] = 3.0, 3.001

    found = _to_int8(bench, path, _calibration(lambda: {"x": x})).run({"x": x})

    assert found["best"].tolist() == [9] * len(x)
    assert np.array_equal(found["twice"], x + x)
    assert not np.array_equal(found["y"], x @ _constants(graph)["w"])
