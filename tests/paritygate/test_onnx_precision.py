"""The precision found in ONNX files, whatever is declared."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from paritygate.errors import InputFileError
from paritygate.models.onnx.file import precision_found
from paritygate.precision import Precision

_FLOAT, _FLOAT16, _BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
_WEIGHTS = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
_MATMUL = [helper.make_node("MatMul", ["x", "w"], ["y"])]


def _save(
    path: Path,
    weights: dict[str, NDArray[np.generic]],
    nodes: list[onnx.NodeProto] | None = None,
    *,
    element: int = _FLOAT,
) -> Path:
    graph = helper.make_graph(
        _MATMUL if nodes is None else nodes,
        "graph",
        [helper.make_tensor_value_info("x", element, ["batch", 32])],
        [helper.make_tensor_value_info("y", element, ["batch", 32])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    return path


def test_float32_weights_are_fp32(tmp_path: Path) -> None:
    assert precision_found(_save(tmp_path / "m.onnx", {"w": _WEIGHTS})) is Precision.FP32


@pytest.mark.parametrize("container", ["raw", "float_data", "external"])
@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, Precision.FP16), (ml_dtypes.bfloat16, Precision.BF16)])
def test_rounded_weights_are_found_wherever_their_data_is(
    tmp_path: Path, container: str, dtype: type, expected: Precision
) -> None:
    rounded = _WEIGHTS.astype(dtype).astype(np.float32)
    path = _save(tmp_path / "m.onnx", {"w": rounded})
    model = onnx.load(str(path))
    if container == "float_data":
        tensor = helper.make_tensor("w", _FLOAT, rounded.shape, rounded.reshape(-1).tolist())
        model.graph.initializer[0].CopyFrom(tensor)
        path.write_bytes(model.SerializeToString())
    if container == "external":
        onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert precision_found(path) is expected


def test_half_weights_between_casts_are_fp16(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=_FLOAT16),
        helper.make_node("MatMul", ["half", "w"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["y"], to=_FLOAT),
    ]
    assert precision_found(_save(tmp_path / "m.onnx", {"w": _WEIGHTS.astype(np.float16)}, nodes)) is Precision.FP16


@pytest.mark.parametrize(("element", "expected"), [(_FLOAT16, Precision.FP16), (_BFLOAT16, Precision.BF16)])
def test_float32_weights_that_the_graph_casts_before_use_count_as_the_cast(
    tmp_path: Path, element: int, expected: Precision
) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["low"], to=element),
        helper.make_node("Cast", ["w"], ["w_low"], to=element),
        helper.make_node("MatMul", ["low", "w_low"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["y"], to=_FLOAT),
    ]
    assert precision_found(_save(tmp_path / "m.onnx", {"w": _WEIGHTS}, nodes)) is expected


def test_weights_that_are_used_uncast_as_well_keep_their_precision(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["w"], ["low"], to=_FLOAT16),
        helper.make_node("Cast", ["low"], ["wide"], to=_FLOAT),
        helper.make_node("Add", ["w", "wide"], ["both"]),
        helper.make_node("MatMul", ["x", "both"], ["y"]),
    ]
    assert precision_found(_save(tmp_path / "m.onnx", {"w": _WEIGHTS}, nodes)) is Precision.FP32


def test_quantize_and_dequantize_around_weights_are_int8(tmp_path: Path) -> None:
    quantized = np.clip(np.rint(_WEIGHTS / 0.03), -127, 127).astype(np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["dequantized"]),
        helper.make_node("MatMul", ["x", "dequantized"], ["y"]),
    ]
    weights = {"w": quantized, "scale": np.float32(0.03).reshape(()), "zero": np.int8(0).reshape(())}
    assert precision_found(_save(tmp_path / "m.onnx", weights, nodes)) is Precision.INT8


def test_weights_in_a_subgraph_and_in_constants_count(tmp_path: Path) -> None:
    half = numpy_helper.from_array(_WEIGHTS.astype(np.float16).astype(np.float32), "inner")
    output = [helper.make_tensor_value_info("branch", _FLOAT, [32, 32])]
    branch = helper.make_graph([helper.make_node("Constant", [], ["branch"], value=half)], "branch", [], output)
    nodes = [
        helper.make_node("If", ["yes"], ["w"], then_branch=branch, else_branch=branch),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    assert precision_found(_save(tmp_path / "m.onnx", {"yes": np.array(True)}, nodes)) is Precision.FP16  # noqa: FBT003


@pytest.mark.parametrize(
    ("element", "expected"), [(_FLOAT, Precision.FP32), (_FLOAT16, Precision.FP16), (_BFLOAT16, Precision.BF16)]
)
def test_a_model_without_weights_is_of_the_precision_of_its_inputs_and_outputs(
    tmp_path: Path, element: int, expected: Precision
) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    assert precision_found(_save(tmp_path / "m.onnx", {}, nodes, element=element)) is expected


def test_a_tensor_without_the_data_its_shape_needs_is_an_input_file_error(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", {"w": _WEIGHTS})
    model = onnx.load(str(path))
    model.graph.initializer[0].raw_data = b"1234567"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputFileError, match=r"tensor 'w' has 7 bytes of data, which do not fit its shape \[32, 32\]"):
        precision_found(path)
