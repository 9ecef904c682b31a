"""Divisions, roots and logarithms behind a tiny constant, in FP16: what FP32 answers well is answered well."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from paritygate.convert.onnx.onnx_to_low_precision import RewriteResult, rewrite_precision
from paritygate.precision import Precision

_RANDOM = np.random.default_rng(0)
_WEIGHTS = {
    "w": _RANDOM.standard_normal((4, 4), dtype=np.float32),
    "gain": np.linspace(0.5, 2, 4, dtype=np.float32),
    "last": np.int64([1]),
}


def _model(body: str, signature: str = "(float[N,4] x) => (float[N,4] y)", **constants: float) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(
        f'< ir_version: 8, opset_import: ["" : 18] > g {signature} {{ {body} }}'
    )
    read = {name for node in model.graph.node for name in node.input}
    weights = {name: array for name, array in _WEIGHTS.items() if name in read}
    weights |= {name: np.asarray(value, np.float32) for name, value in constants.items()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def _lowered(model: onnx.ModelProto, precision: Precision = Precision.FP16) -> RewriteResult:
    return rewrite_precision(model, precision=precision)


def _kept(result: RewriteResult) -> set[str]:
    return {node.name for node in result.nodes_kept}


def _run(model: onnx.ModelProto, **inputs: NDArray[Any]) -> NDArray[Any]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: NDArray[Any] = session.run(None, inputs)[0]
    return found


_SCALED = "a = Abs (x) s = ReduceMean (a, last) g = Clip (s, tiny) d = Div (z, g) h = MatMul (d, w) {after}"
_TWO_INPUTS = "(float[N,4] x, float[N,4] z) => (float[N,4] y)"


@pytest.mark.parametrize(
    "after",
    [
        "n = LayerNormalization (h, gain) y = Relu (n)",
        "q = Mul (h, h) m = ReduceMean (q, last) e = Add (m, least) r = Sqrt (e) n = Div (h, r) y = Relu (n)",
        "n = Softmax (h) y = Relu (n)",
        "y = Add (h, gain)",
    ],
    ids=["a normalisation", "a normalisation in parts", "a softmax", "an output"],
)
@pytest.mark.parametrize("tiny", [1e-10, 1e-5])
def test_a_quotient_by_the_guard_itself_arrives_where_numbers_of_any_size_are_taken(after: str, tiny: float) -> None:
    constants = {"tiny": tiny, **({"least": 1e-6} if "least" in after else {})}
    model = _model(_SCALED.format(after=after), _TWO_INPUTS, **constants)
    x, z = np.zeros((3, 4), np.float32), _RANDOM.standard_normal((3, 4), dtype=np.float32)
    x[0] = 0.5
    found, expected = _run(_lowered(model).model, x=x, z=z), _run(model, x=x, z=z)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)


def test_a_norm_stays_fp32_and_what_it_divides_is_small_enough_for_what_follows() -> None:
    model = _model(
        "h = Relu (x) s = ReduceL2 (h, last) g = Max (s, tiny) d = Div (h, g) y = MatMul (d, w)",
        tiny=1e-12,
    )
    result = _lowered(model)
    assert _kept(result) == {"ReduceL2", "Max", "Div"}
    assert set(result.nodes_converted) == {"Relu", "MatMul"}
    x = np.float32([[0, 0, 0, 0], [3, 0, 4, 1], [1e-6, 0, 0, 2e-6]])
    np.testing.assert_allclose(_run(result.model, x=x), _run(model, x=x), rtol=5e-3, atol=5e-3)


def test_a_mean_over_a_mask_leaves_the_layers_behind_it_in_fp16() -> None:
    model = _model(
        "h = MatMul (x, w) p = Mul (h, z) s = ReduceSum (p, last) c = ReduceSum (z, last) "
        "g = Clip (c, tiny) d = Div (s, g) y = Mul (d, gain)",
        _TWO_INPUTS,
        tiny=1e-9,
    )
    result = _lowered(model)
    assert _kept(result) == {"ReduceSum_1", "Clip", "Div"}
    z = np.float32([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    x = _RANDOM.standard_normal((3, 4), dtype=np.float32)
    np.testing.assert_allclose(_run(result.model, x=x, z=z), _run(model, x=x, z=z), rtol=5e-3, atol=5e-3)


def test_the_logarithm_of_a_guarded_probability_stays_fp32() -> None:
    model = _model("h = MatMul (x, w) p = Softmax (h) g = Add (p, tiny) y = Log (g)", tiny=1e-10)
    result = _lowered(model)
    assert _kept(result) == {"Softmax", "Add", "Log"}
    x = np.float32([[20, 0, -20, 0], [1, 2, 3, 4]])
    np.testing.assert_allclose(_run(result.model, x=x), _run(model, x=x), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    "inverse", ["i = Pow (g, minus) y = Mul (x, i)", "r = Sqrt (g) i = Reciprocal (r) y = Mul (x, i)"]
)
def test_the_inverse_of_a_guarded_root_stays_fp32(inverse: str) -> None:
    constants = {"tiny": 1e-8, **({"minus": -0.5} if "minus" in inverse else {})}
    model = _model(f"q = Mul (z, z) g = Add (q, tiny) {inverse}", _TWO_INPUTS, **constants)
    result = _lowered(model)
    assert {"Mul", "Add", "Mul_1"} <= _kept(result)
    x, z = np.float32([[1, 2, 30, 40]]), np.float32([[0, 1e-3, 1, 100]])
    np.testing.assert_allclose(_run(result.model, x=x, z=z), _run(model, x=x, z=z), rtol=5e-3)


@pytest.mark.parametrize(
    ("body", "constant", "precision"),
    [
        ("h = MatMul (x, w) g = Add (h, c) y = Relu (g)", 1e-10, Precision.FP16),
        ("h = MatMul (x, w) g = Clip (h, c) y = Div (h, g)", 0.5, Precision.FP16),
        ("h = MatMul (x, w) g = Clip (h, c) y = Div (g, h)", 1e-10, Precision.FP16),
        ("h = MatMul (x, w) g = Max (h, c) y = Div (h, g)", 1e-10, Precision.BF16),
    ],
    ids=["nothing is divided", "not tiny", "it is divided itself", "bfloat16 has it"],
)
def test_what_needs_no_guard_is_lowered(body: str, constant: float, precision: Precision) -> None:
    assert _kept(_lowered(_model(body, c=constant), precision)) == set()
