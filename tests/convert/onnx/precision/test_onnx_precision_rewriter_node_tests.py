"""Rewriting every model that the onnx package tests runtimes with: never invalid, never a crash."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from paritygate.convert.onnx.onnx_to_low_precision import RewriteResult, rewrite_precision
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.graph import QUANTIZATION_OPERATORS, nodes_in
from paritygate.precision import Precision

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

# The scores that these two hand out hold, where the mask is, the lowest value of the dtype they were computed in.
_MASK_IN_OUTPUT = frozenset(
    {
        "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
        "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
    }
)
_OLDEST_OPSET = 6
# Of FP16: ten bits of mantissa, a few operations.
_LARGEST_DIFFERENCE = 5e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    name: str
    model: onnx.ModelProto
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]


@pytest.fixture(scope="module")
def cases() -> list[_Case]:
    """Return the models with their inputs; making them takes most of the time."""
    from onnx.backend.test.loader import load_model_tests

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind="node"):
            # Older versions of onnx keep the models in files.
            model = case.model or onnx.load(str(Path(str(case.model_dir)) / "model.onnx"))
            found.append(_Case(name=case.name, model=model, data_sets=case.data_sets or ()))
    assert len(found) > 1000
    return found


def _is_quantized(model: onnx.ModelProto) -> bool:
    return any(node.op_type in QUANTIZATION_OPERATORS for node in nodes_in(model.graph))


def _is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def _result(case: _Case, precision: Precision) -> RewriteResult | None:
    """Return None for what cannot be rewritten: it is quantized, not valid as it is, or older than any Cast."""
    try:
        return rewrite_precision(case.model, precision=precision)
    except ConversionError:
        is_old = 0 < opset_of(case.model) < _OLDEST_OPSET
        assert _is_quantized(case.model) or is_old or not _is_valid(case.model), case.name
        return None


def _rewritten(cases: Sequence[_Case], precision: Precision) -> Iterator[tuple[_Case, RewriteResult]]:
    for case in cases:
        result = _result(case, precision)
        if result is not None:
            yield case, result


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_every_model_stays_valid(cases: list[_Case], precision: Precision) -> None:
    converted = 0
    for case, result in _rewritten(cases, precision):
        assert _is_valid(result.model), case.name
        converted += bool(result.nodes_converted)
        names = [node.name for node in nodes_in(result.model.graph)]
        assert len(set(names)) == len(names), case.name
    assert converted > len(cases) / 2


def _session(model: onnx.ModelProto) -> Any:  # noqa: ANN401 - a session of ONNX Runtime, which has no types
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _run(session: Any, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ANN401 - a session of ONNX Runtime
    values = [value if isinstance(value, list) else np.asarray(value) for value in inputs]
    feed: Mapping[str, Any] = {each.name: value for each, value in zip(session.get_inputs(), values, strict=True)}
    # ONNX Runtime writes the running mean of a BatchNormalization into the very array that it was given.
    found: Sequence[Any] = session.run(None, deepcopy(feed))
    return found


def _runs_of_originals(case: _Case) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    """Return inputs and outputs of what ONNX Runtime can run; it does not know the newest operators."""
    try:
        session = _session(case.model)
        return [(inputs, _run(session, inputs)) for inputs, _ in case.data_sets]
    except Exception:  # noqa: BLE001 - ONNX Runtime raises what it pleases; such a model says nothing
        return []


def _difference(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference over max(1, |expected|); infinite where one is finite and the other is not."""
    wanted = expected.astype(np.float64)
    if not np.array_equal(np.isfinite(actual), np.isfinite(wanted)):
        return float("inf")
    is_finite = np.isfinite(wanted)
    difference = np.abs(actual[is_finite].astype(np.float64) - wanted[is_finite])
    return float(np.max(difference / np.maximum(1, np.abs(wanted[is_finite])), initial=0))


def test_what_onnxruntime_runs_it_runs_in_fp16_with_like_results(cases: list[_Case]) -> None:
    if not any(case.data_sets for case in cases):
        pytest.skip("this onnx hands out its test models without inputs")
    compared = 0
    for case, result in _rewritten(cases, Precision.FP16):
        runs = _runs_of_originals(case) if result.nodes_converted else []
        session = _session(result.model) if runs else None
        for inputs, expected in runs:
            for actual, wanted in zip(_run(session, inputs), expected, strict=True):
                if not isinstance(wanted, np.ndarray):
                    continue
                assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape), case.name
                compared += 1
                if wanted.dtype.kind != "f":
                    assert np.array_equal(actual, wanted), case.name
                elif case.name not in _MASK_IN_OUTPUT:
                    assert _difference(actual, wanted) < _LARGEST_DIFFERENCE, case.name
    assert compared > 500
