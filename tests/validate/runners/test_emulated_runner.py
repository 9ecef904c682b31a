"""Models run in emulated float16 and bfloat16, against the same arithmetic in NumPy's float16 and ml_dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.weights import DTYPES
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.validate.emulation import canary
from paritygate.validate.emulation.canary import VALUES, check_canary
from paritygate.validate.emulation.graph import emulate
from paritygate.validate.runners.emulated import EmulatedRunner, open_emulated, open_rounding_session

_FLOAT, _FLOAT16, _BFLOAT16, _INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64
_ELEMENTS = {Precision.FP16: _FLOAT16, Precision.BF16: _BFLOAT16}
_PRECISIONS = [Precision.FP16, Precision.BF16]
_OPSETS = range(13, 25)
_LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]

_Arrays = dict[str, NDArray[Any]]


def _save(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    weights: Mapping[str, NDArray[Any]] | None = None,
    opset: int = 17,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, element, None) for name, element in inputs.items()],
        [helper.make_tensor_value_info(name, element, None) for name, element in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), str(path))
    return path


def _open(path: Path, precision: Precision, **options: Any) -> EmulatedRunner:  # noqa: ANN401 - fields of LoadedModel
    rename = options.pop("rename", {})
    source = ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX, rename=rename)
    return open_emulated(LoadedModel(ref=source, **options), precision)


def _run_float32(path: Path, inputs: _Arrays) -> list[NDArray[Any]]:
    found: list[NDArray[Any]] = onnxruntime.InferenceSession(str(path)).run(None, inputs)
    return found


def _normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


_CHAIN = [
    helper.make_node("Mul", ["x", "w"], ["a"]),
    helper.make_node("Add", ["a", "x"], ["b"]),
    helper.make_node("Div", ["b", "w"], ["c"]),
    helper.make_node("Abs", ["c"], ["d"]),
    helper.make_node("Sqrt", ["d"], ["e"]),
    helper.make_node("Sub", ["e", "a"], ["y"]),
]


def _chain(x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    a = x * w
    y: NDArray[Any] = np.sqrt(np.abs((a + x) / w)) - a
    return y


def _reference_evaluator(path: Path, inputs: _Arrays) -> NDArray[Any]:
    outputs: Any = ReferenceEvaluator(str(path)).run(None, inputs)
    found: NDArray[Any] = outputs[0]
    return found


@pytest.mark.parametrize("opset", _OPSETS)
@pytest.mark.parametrize("precision", _PRECISIONS)
def test_every_step_of_a_float32_original_is_rounded(tmp_path: Path, precision: Precision, opset: int) -> None:
    x, w = _normal(64), _normal(64, seed=1)
    path = _save(tmp_path, _CHAIN, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights={"w": w}, opset=opset)
    found = _open(path, precision).run({"x": x})["y"]
    low = DTYPES[precision]
    expected = _chain(x.astype(low), w.astype(low))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    assert not np.array_equal(found, _chain(x, w))


@pytest.mark.parametrize("opset", _OPSETS)
@pytest.mark.parametrize("precision", _PRECISIONS)
def test_every_step_of_an_artifact_is_rounded_and_outputs_have_its_dtype(
    tmp_path: Path, precision: Precision, opset: int
) -> None:
    low, element = DTYPES[precision], _ELEMENTS[precision]
    x, w = _normal(64).astype(low), _normal(64, seed=1).astype(low)
    path = _save(tmp_path, _CHAIN, inputs={"x": element}, outputs={"y": element}, weights={"w": w}, opset=opset)
    runner = _open(path, precision)
    found = runner.run({"x": x})["y"]
    assert found.dtype == low
    assert runner.signature.outputs[0].dtype == low.name
    np.testing.assert_array_equal(found.astype(np.float32), _chain(x, w).astype(np.float32))


def test_an_artifact_answers_as_the_reference_evaluator_says(tmp_path: Path) -> None:
    w = _normal(64, seed=1).astype(np.float16)
    path = _save(tmp_path, _CHAIN, inputs={"x": _FLOAT16}, outputs={"y": _FLOAT16}, weights={"w": w})
    x = _normal(64).astype(np.float16)
    expected = _reference_evaluator(path, {"x": x})
    np.testing.assert_array_equal(_open(path, Precision.FP16).run({"x": x})["y"], expected)


def test_what_an_artifact_keeps_in_float32_is_not_rounded(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Sqrt", ["square"], ["root"]),
        helper.make_node("Cast", ["root"], ["low"], to=_FLOAT16),
        helper.make_node("Add", ["low", "w"], ["low_sum"]),
        helper.make_node("Cast", ["low_sum"], ["y"], to=_FLOAT),
    ]
    w = np.array([0.1], dtype=np.float16)
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT, "root": _FLOAT}, weights={"w": w})
    x = np.array([300.1, 1000.7], dtype=np.float32)
    found = _open(path, Precision.FP16).run({"x": x})
    np.testing.assert_array_equal(found["root"], np.sqrt(x * x))
    np.testing.assert_array_equal(found["y"], (np.sqrt(x * x).astype(np.float16) + w).astype(np.float32))


def _overflowing(folder: Path) -> Path:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["mean"], axes=[-1], keepdims=1),
        helper.make_node("Sqrt", ["mean"], ["norm"]),
        helper.make_node("Div", ["x", "norm"], ["y"]),
    ]
    return _save(folder, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT})


def test_activations_beyond_float16_come_out_wrong_in_fp16_and_right_in_bf16(tmp_path: Path) -> None:
    path, x = _overflowing(tmp_path), _normal(4, 8) * 1000
    expected = _run_float32(path, {"x": x})[0]
    np.testing.assert_array_equal(_open(path, Precision.FP16).run({"x": x})["y"], np.zeros_like(x))
    assert np.abs(_open(path, Precision.BF16).run({"x": x})["y"] - expected).max() < 0.03


def test_infinity_over_infinity_is_not_a_number_as_on_the_device(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["square"]), helper.make_node("Div", ["square", "square"], ["y"])]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT})
    found = _open(path, Precision.FP16).run({"x": np.array([300.0, 3.0], dtype=np.float32)})["y"]
    np.testing.assert_array_equal(found, [np.nan, 1.0])


def test_onnxruntime_itself_hides_the_overflow_of_a_float16_graph(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Mul", ["a", "w"], ["b"]),
        helper.make_node("Sqrt", ["b"], ["y"]),
    ]
    weights = {"w": np.array([0.01], dtype=np.float16)}
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT16}, outputs={"y": _FLOAT16}, weights=weights)
    x = np.array([300.0], dtype=np.float16)
    assert np.isfinite(_run_float32(path, {"x": x})[0]).all()
    assert np.isinf(_open(path, Precision.FP16).run({"x": x})["y"]).all()
    with np.errstate(over="ignore"):
        assert np.isinf(_reference_evaluator(path, {"x": x})).all()


def _masked(folder: Path) -> Path:
    nodes = [
        helper.make_node("Cast", ["mask"], ["mask_float"], to=_FLOAT),
        helper.make_node("Sub", ["one", "mask_float"], ["inverse"]),
        helper.make_node("Mul", ["inverse", "minus"], ["bias"]),
        helper.make_node("Add", ["x", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=-1),
    ]
    weights = {"one": np.array(1.0, dtype=np.float32), "minus": np.array(-1e9, dtype=np.float32)}
    return _save(folder, nodes, inputs={"x": _FLOAT, "mask": _INT64}, outputs={"y": _FLOAT}, weights=weights)


@pytest.mark.parametrize(("precision", "limit"), [(Precision.FP16, 1e-3), (Precision.BF16, 1e-2)])
def test_a_mask_of_minus_1e9_masks(tmp_path: Path, precision: Precision, limit: float) -> None:
    path = _masked(tmp_path)
    inputs = {"x": _normal(4, 8), "mask": np.array([[1] * 5 + [0] * 3] * 4)}
    runner = _open(path, precision)
    found = runner.run(inputs)["y"]
    assert np.abs(found - _run_float32(path, inputs)[0]).max() < limit
    assert np.all(found[:, 5:] == 0)
    assert any("minus (1)" in note for note in runner.facts.notes) == (precision is Precision.FP16)


def test_a_mask_stored_as_infinity_in_an_artifact_is_not_mended(tmp_path: Path) -> None:
    weights = {"w": np.array([-np.inf], dtype=np.float16)}
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT16}, outputs={"y": _FLOAT16}, weights=weights)
    assert np.isnan(_open(path, Precision.FP16).run({"x": np.zeros(1, dtype=np.float16)})["y"]).all()


@pytest.mark.parametrize("precision", _PRECISIONS)
def test_integers_above_2_to_the_24_are_not_touched(tmp_path: Path, precision: Precision) -> None:
    nodes = [
        helper.make_node("Add", ["ids", "one"], ["next"]),
        helper.make_node("Sub", ["ids", "base"], ["index"]),
        helper.make_node("Gather", ["table", "index"], ["row"]),
        helper.make_node("Exp", ["row"], ["y"]),
    ]
    weights: _Arrays = {
        "one": np.array(1), "base": np.array(2**24), "table": np.array([0.5, 1.0, 1.5], dtype=np.float32)
    }  # fmt: skip
    path = _save(tmp_path, nodes, inputs={"ids": _INT64}, outputs={"next": _INT64, "y": _FLOAT}, weights=weights)
    ids = np.array([2**24, 2**24 + 1, 2**24 + 2])
    found = _open(path, precision).run({"ids": ids})
    assert found["next"].dtype == np.int64
    assert found["next"].tolist() == [2**24 + 1, 2**24 + 2, 2**24 + 3]
    low = DTYPES[precision]
    np.testing.assert_array_equal(found["y"], np.exp(weights["table"]).astype(low).astype(np.float32))


def test_an_id_cast_to_a_lower_precision_is_rounded_as_the_device_does(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["low"], to=_BFLOAT16),
        helper.make_node("Cast", ["low"], ["y"], to=_FLOAT),
    ]
    path = _save(tmp_path, nodes, inputs={"ids": _INT64}, outputs={"y": _FLOAT})
    found = _open(path, Precision.BF16).run({"ids": np.array([257, 2**24 + 1])})["y"]
    assert found.tolist() == [256.0, 2.0**24]


@pytest.mark.parametrize("precision", _PRECISIONS)
def test_an_id_that_a_float32_original_makes_a_float_is_rounded(tmp_path: Path, precision: Precision) -> None:
    path = _save(
        tmp_path, [helper.make_node("Cast", ["ids"], ["y"], to=_FLOAT)], inputs={"ids": _INT64}, outputs={"y": _FLOAT}
    )
    assert _open(path, precision).run({"ids": np.array([2049])})["y"].tolist() == [2048.0]


@pytest.mark.parametrize("precision", _PRECISIONS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution_is_rounded_once_after_its_sum_in_either_layout(
    tmp_path: Path, precision: Precision, layout: str
) -> None:
    low = DTYPES[precision]
    w, b = _normal(4, 3, 3, 3, seed=1), _normal(4, seed=2)
    conv = helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1])
    nodes = [conv, helper.make_node("Relu", ["c"], ["y"])]
    if layout == "NHWC":
        conv.input[0] = "nchw"
        nodes[1].output[0] = "r"
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["nchw"], perm=[0, 3, 1, 2]))
        nodes.append(helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1]))
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights={"w": w, "b": b})
    x = _normal(2, 3, 8, 8)
    found = _open(path, precision).run({"x": np.moveaxis(x, 1, 3) if layout == "NHWC" else x})["y"]
    padded = np.pad(x.astype(low).astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    summed = np.einsum("nchwij,ocij->nohw", windows, w.astype(low).astype(np.float64))
    exact = np.maximum(summed + b.astype(low).astype(np.float64)[:, None, None], 0)
    moved = np.moveaxis(found, 3, 1) if layout == "NHWC" else found
    # The float32 sum may fall on the other side of a tie, which is one unit in the last place.
    unit = float(ml_dtypes.finfo(low).eps)
    assert np.all(np.abs(moved - exact) <= 0.51 * unit * np.abs(exact) + 1e-5)
    np.testing.assert_array_equal(moved, moved.astype(low).astype(np.float32))


def _branch(name: str, nodes: list[onnx.NodeProto], output: str, element: int) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, element, None)])


@pytest.mark.parametrize("is_artifact", [False, True], ids=["original", "artifact"])
@pytest.mark.parametrize("precision", _PRECISIONS)
def test_the_branches_of_an_if_are_rounded(tmp_path: Path, precision: Precision, *, is_artifact: bool) -> None:
    low = DTYPES[precision]
    element = _ELEMENTS[precision] if is_artifact else _FLOAT
    # Both branches call a value by the same name.
    square = [helper.make_node("Mul", ["x", "x"], ["t"]), helper.make_node("Add", ["t", "w"], ["then_y"])]
    third = [helper.make_node("Div", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "w"], ["else_y"])]
    branches = {
        "then_branch": _branch("then", square, "then_y", element),
        "else_branch": _branch("else", third, "else_y", element),
    }
    nodes = [helper.make_node("If", ["is_true"], ["i"], **branches), helper.make_node("Mul", ["i", "w"], ["y"])]
    w = np.array([1.7], dtype=low if is_artifact else np.float32)
    path = _save(
        tmp_path, nodes, inputs={"x": element, "is_true": TensorProto.BOOL}, outputs={"y": element}, weights={"w": w}
    )
    runner = _open(path, precision)
    x = _normal(32)
    fed = x.astype(low) if is_artifact else x
    x, w = x.astype(low), w.astype(low)
    for is_true, expected in ((True, (x * x + w) * w), (False, (x / w * w) * w)):
        found = runner.run({"x": fed, "is_true": np.array(is_true)})["y"]
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("is_artifact", [False, True], ids=["original", "artifact"])
@pytest.mark.parametrize("precision", _PRECISIONS)
def test_what_a_loop_carries_is_rounded_at_every_turn(
    tmp_path: Path, precision: Precision, *, is_artifact: bool
) -> None:
    low = DTYPES[precision]
    element = _ELEMENTS[precision] if is_artifact else _FLOAT
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["carried", "w"], ["scaled"]),
            helper.make_node("Add", ["scaled", "x"], ["carried_out"]),
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("Exp", ["carried_out"], ["scanned"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", _INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", element, None),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried_out", element, None),
            helper.make_tensor_value_info("scanned", element, None),
        ],
    )
    nodes = [helper.make_node("Loop", ["turns", "", "x"], ["y", "all"], body=body)]
    w = np.array([0.7], dtype=low if is_artifact else np.float32)
    path = _save(
        tmp_path,
        nodes,
        inputs={"x": element, "turns": _INT64},
        outputs={"y": element, "all": element},
        weights={"w": w},
    )
    x = _normal(16)
    fed = x.astype(low) if is_artifact else x
    found = _open(path, precision).run({"x": fed, "turns": np.array(10)})
    x, w = x.astype(low), w.astype(low)
    carried, scanned = x, []
    for _ in range(10):
        carried = carried * w + x
        scanned.append(np.exp(carried.astype(np.float32)).astype(low))
    np.testing.assert_array_equal(found["y"].astype(np.float32), carried.astype(np.float32))
    np.testing.assert_array_equal(found["all"].astype(np.float32), np.stack(scanned).astype(np.float32))


@pytest.mark.parametrize("precision", _PRECISIONS)
def test_what_a_scan_carries_is_rounded_at_every_step(tmp_path: Path, precision: Precision) -> None:
    low, element = DTYPES[precision], _ELEMENTS[precision]
    # ONNX Runtime wants to know the shapes of what a body returns.
    shapes = {"sum": None, "next": None, "new": [3], "each": [3]}
    values = {name: helper.make_tensor_value_info(name, element, shape) for name, shape in shapes.items()}
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "next"], ["new"]), helper.make_node("Mul", ["new", "next"], ["each"])],
        "body",
        [values["sum"], values["next"]],
        [values["new"], values["each"]],
    )
    nodes = [helper.make_node("Scan", ["zero", "x"], ["y", "all"], body=body, num_scan_inputs=1)]
    path = _save(
        tmp_path, nodes, inputs={"x": element}, outputs={"y": element}, weights={"zero": np.zeros(3, dtype=low)}
    )
    x = _normal(50, 3).astype(low)
    expected = np.zeros(3, dtype=low)
    for row in x:
        expected = expected + row
    found = _open(path, precision).run({"x": x})["y"]
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


# What ONNX Runtime fuses in float32: convolution with batch normalisation and Relu, Gelu, LayerNormalization, Gemm.
_FUSABLE = [
    helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
    helper.make_node("Relu", ["n"], ["r"]),
    helper.make_node("ReduceMean", ["r"], ["p"], axes=[2, 3], keepdims=0),
    helper.make_node("MatMul", ["p", "m"], ["mm"]),
    helper.make_node("Add", ["mm", "b"], ["h"]),
    helper.make_node("Div", ["h", "root"], ["g1"]),
    helper.make_node("Erf", ["g1"], ["g2"]),
    helper.make_node("Add", ["g2", "one"], ["g3"]),
    helper.make_node("Mul", ["h", "g3"], ["g4"]),
    helper.make_node("Mul", ["g4", "half"], ["g"]),
    helper.make_node("ReduceMean", ["g"], ["mean"], axes=[-1], keepdims=1),
    helper.make_node("Sub", ["g", "mean"], ["d"]),
    helper.make_node("Pow", ["d", "two"], ["d2"]),
    helper.make_node("ReduceMean", ["d2"], ["var"], axes=[-1], keepdims=1),
    helper.make_node("Add", ["var", "eps"], ["ve"]),
    helper.make_node("Sqrt", ["ve"], ["std"]),
    helper.make_node("Div", ["d", "std"], ["ln"]),
    helper.make_node("Mul", ["ln", "b"], ["ls"]),
    helper.make_node("Add", ["ls", "b"], ["y"]),
]


def _fusable(folder: Path) -> Path:
    scalars = {"root": 2**0.5, "one": 1.0, "half": 0.5, "two": 2.0, "eps": 1e-5}
    weights: _Arrays = {name: np.array(value, dtype=np.float32) for name, value in scalars.items()}
    weights |= {"w": _normal(8, 3, 3, 3, seed=1), "m": _normal(8, 8, seed=2), "b": np.abs(_normal(8, seed=3)) + 0.5}
    weights["v"] = np.linspace(0.5, 2.0, 8, dtype=np.float32)
    return _save(folder, _FUSABLE, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights=weights)


@pytest.mark.parametrize("level", _LEVELS)
@pytest.mark.parametrize("precision", _PRECISIONS)
def test_no_optimisation_of_onnxruntime_takes_the_rounding_out(
    tmp_path: Path, precision: Precision, level: str
) -> None:
    emulated = emulate(read_onnx(_fusable(tmp_path)), tmp_path, precision)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    # Off by default, and what it is for is taking out what looks like a round trip.
    options.add_session_config_entry("session.enable_cast_chain_elimination", "1")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(emulated.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    before, after = (
        sum(node.op_type == "Cast" and node.attribute[0].i == _ELEMENTS[precision] for node in graph.node)
        for graph in (emulated.model.graph, onnx.load(str(tmp_path / "optimised.onnx")).graph)
    )
    # One of each operator but Relu, the input, and the canary.
    assert before == len(_FUSABLE) - 1 + 2
    assert after == before


@pytest.mark.parametrize("precision", _PRECISIONS)
def test_answers_do_not_depend_on_the_optimisation_level(tmp_path: Path, precision: Precision) -> None:
    emulated = emulate(read_onnx(_fusable(tmp_path)), tmp_path, precision)
    x = _normal(2, 3, 8, 8)
    found = [
        open_rounding_session(emulated.model, emulated.weights, "it", level=level).run(
            ["y"], {emulated.inputs["x"]: x, emulated.canary_input: VALUES}
        )[0]
        for level in _LEVELS
    ]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    # Another layout sums in another order, which may be a unit in the last place here and there.
    np.testing.assert_allclose(found[3], found[0], rtol=0, atol=8 * float(ml_dtypes.finfo(DTYPES[precision]).eps))


def test_the_session_fuses_nothing(tmp_path: Path) -> None:
    assert _open(_fusable(tmp_path), Precision.FP16).facts.optimisation == "basic"


def test_a_session_that_does_not_round_is_refused_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _overflowing(tmp_path)
    monkeypatch.setattr(canary, "ELEMENT_TYPES", {Precision.FP16: _FLOAT, Precision.BF16: _FLOAT})
    with pytest.raises(BackendError, match="the session does not round to bf16: the squares of"):
        _open(path, Precision.BF16)


def test_a_graph_that_does_not_round_is_found_out_with_the_batch(tmp_path: Path) -> None:
    path = _overflowing(tmp_path)
    source = ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX)
    sound = open_emulated(LoadedModel(ref=source), Precision.FP16)
    emulated = emulate(read_onnx(path), tmp_path, Precision.FP16)
    for node in emulated.model.graph.node:
        if node.op_type == "Cast":
            node.attribute[0].i = _FLOAT
    session = open_rounding_session(emulated.model, emulated.weights, "it")
    unsound = EmulatedRunner(
        session=session, graph=emulated, own=sound.signature, served=sound.signature, facts=sound.facts
    )
    with pytest.raises(BackendError, match=r"came out as \[90000.0, .*, not \[inf, 1.03125, 0.0\]"):
        unsound.run({"x": _normal(4, 8)})


@pytest.mark.parametrize("precision", _PRECISIONS)
def test_the_canary_lives_on_squares_rounded_by_numpy_and_dies_on_others(precision: Precision) -> None:
    low = VALUES.astype(DTYPES[precision])
    with np.errstate(over="ignore"):
        check_canary((low * low).astype(np.float32), precision)
    with pytest.raises(BackendError, match="does not round"):
        check_canary(VALUES * VALUES, precision)
    other = Precision.BF16 if precision is Precision.FP16 else Precision.FP16
    with pytest.raises(BackendError, match=f"does not round to {other}"), np.errstate(over="ignore"):
        check_canary((low * low).astype(np.float32), other)


def test_external_data_is_read(tmp_path: Path) -> None:
    weights: _Arrays = {"w": _normal(64, 64, seed=1), "i": np.arange(64)[::-1].copy()}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Gather", ["a", "i"], ["y"], axis=1)]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights=weights)
    x = _normal(4, 64)
    inside: NDArray[Any] = _open(path, Precision.FP16).run({"x": x})["y"]
    model = onnx.load(str(path))
    onnx.save(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.testing.assert_array_equal(_open(path, Precision.FP16).run({"x": x})["y"], inside)
    low = (x.astype(np.float16).astype(np.float64) @ weights["w"].astype(np.float16).astype(np.float64))[:, ::-1]
    assert np.all(np.abs(inside - low) <= 2**-10 * np.abs(low) + 1e-4)


def test_damaged_external_data_is_an_input_file_error(tmp_path: Path) -> None:
    weights = {"w": _normal(64, 64).astype(np.float16)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT16}, outputs={"y": _FLOAT16}, weights=weights)
    model = onnx.load(str(path))
    onnx.save(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = onnx.load(str(path), load_external_data=False)
    entry = next(each for each in model.graph.initializer[0].external_data if each.key == "length")
    entry.value = "100"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputFileError, match=r"the data of tensor 'w' does not fit its shape \[64, 64\]"):
        _open(path, Precision.FP16)


def test_inputs_and_outputs_go_by_the_names_served(tmp_path: Path) -> None:
    path = _save(tmp_path, [helper.make_node("Exp", ["x"], ["y"])], inputs={"x": _FLOAT}, outputs={"y": _FLOAT})
    runner = _open(path, Precision.FP16, rename={"x": "features", "y": "score"})
    assert [spec.name for spec in (*runner.signature.inputs, *runner.signature.outputs)] == ["features", "score"]
    assert runner.run({"features": np.zeros(2, dtype=np.float32)})["score"].tolist() == [1.0, 1.0]


def test_facts_say_what_was_emulated(tmp_path: Path) -> None:
    path = _save(
        tmp_path,
        [helper.make_node("Add", ["x", "w"], ["y"])],
        inputs={"x": _FLOAT},
        outputs={"y": _FLOAT},
        weights={"w": np.array([1e6], dtype=np.float32)},
    )
    facts = _open(path, Precision.FP16).facts
    assert (facts.runtime, facts.version, facts.device) == ("onnxruntime", onnxruntime.__version__, "emulated:fp16")
    assert (facts.precision_found, facts.tf32) == (Precision.FP16, None)
    assert facts.notes == (
        "fp16 was emulated on the CPU: every float32 tensor was rounded to fp16; sums inside an operator are float32",
        "weights beyond the range of fp16 were brought into it, as converters do: w (1)",
    )


def test_facts_of_an_artifact_have_the_precision_of_its_file(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["low"], to=_FLOAT16),
        helper.make_node("Cast", ["low"], ["wide"], to=_FLOAT),
        helper.make_node("Mul", ["wide", "w"], ["y"]),
    ]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights={"w": _normal(64)})
    facts = _open(path, Precision.FP16).facts
    assert facts.precision_found is Precision.FP32
    assert facts.notes[0].startswith(
        "fp16 was emulated on the CPU: operator results that the file has in lower precision (1) were rounded to it, "
        "those in float32 or float64 (2) were not"
    )


def test_operators_that_round_inside_on_a_device_are_a_note(tmp_path: Path) -> None:
    weights = {"w": _normal(1, 4, 3), "r": _normal(1, 4, 1, seed=1)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=1)]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights=weights)
    notes = _open(path, Precision.FP16).facts.notes
    assert notes[-1] == "of these operators only results were rounded, a device may round values inside: LSTM"


def test_another_device_is_refused(tmp_path: Path) -> None:
    path = _overflowing(tmp_path)
    with pytest.raises(UsageError, match="a precision is emulated only on the cpu, not on 'cuda'"):
        _open(path, Precision.FP16, device="cuda")


def test_an_operator_that_onnxruntime_does_not_have_is_a_backend_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("Erfc", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT})
    model = onnx.load(str(path))
    model.graph.value_info.append(helper.make_tensor_value_info("a", _FLOAT, None))
    onnx.save(model, str(path))
    with pytest.raises(BackendError, match=r"refused the emulated graph of .*model\.onnx: .*Erfc"):
        _open(path, Precision.FP16)


def test_a_batch_that_fails_is_a_backend_error_of_one_line(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    path = _save(tmp_path, nodes, inputs={"x": _FLOAT}, outputs={"y": _FLOAT}, weights={"shape": np.array([2, 3])})
    runner = _open(path, Precision.FP16)
    with pytest.raises(BackendError, match=r"onnxruntime failed in emulation on x: float32\[4\]: ") as raised:
        runner.run({"x": np.zeros(4, dtype=np.float32)})
    assert "\n" not in str(raised.value)


def test_inputs_are_checked_as_those_of_any_runner(tmp_path: Path) -> None:
    runner = _open(_overflowing(tmp_path), Precision.FP16)
    with pytest.raises(BackendError, match=r"the model expects the inputs x \(got z"):
        runner.run({"z": _normal(4, 8)})
