"""Wrong outputs that look right by most numbers, and right ones that look wrong by some: each with its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Status, Verdict, verdict_of
from paritygate.validate.measure.decisions import Decision, parse_decision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.channel_axis import channel_axes

_ROWS = 400
_BATCH = 32

# Arrays of any dtype, or several of them by name.
Array = NDArray[Any]
Outputs = Mapping[str, Array]
Pair = tuple[Any, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The verdict and the checks that failed."""

    verdict: Verdict
    failed: set[str] = field(default_factory=set)


def _judged(
    pair: Pair, precision: Precision = Precision.FP32, *, axis: int | None = None, decision: str | None = None
) -> Judged:
    """Compare (expected, actual), one array or several by name, in batches of 32 rows."""
    expected, actual = (side if isinstance(side, dict) else {"y": side} for side in pair)
    profiles = {}
    for name, array in expected.items():
        channel = next(iter(channel_axes([array.shape], None)), None) if axis is None else axis
        blocks = [(array[at : at + _BATCH], len(array[at : at + _BATCH])) for at in range(0, len(array), _BATCH)]
        profiles[name] = profile_outputs(name, blocks, axis=channel, dtype=array.dtype.name)
    tolerance = DEFAULT_TOLERANCES[precision]
    limits = {name: limits_for(tolerance, profile) for name, profile in profiles.items()}
    decisions: dict[str, Decision] = {} if decision is None else {"y": parse_decision(f"y:{decision}")}
    comparison = OutputComparison(ComparisonPlan(profiles=profiles, limits=limits, decisions=decisions))
    rows = len(next(iter(expected.values())))
    for at in range(0, rows, _BATCH):
        part = slice(at, min(at + _BATCH, rows))
        batch = Batch(inputs={}, ids=[str(row) for row in range(part.start, part.stop)])
        comparison.add(batch, _part(actual, part), _part(expected, part))
    comparison.end_pass()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles=profiles)
    checks = (
        *judge(comparison.finish(), plan),
        *resolution_checks(tolerance, profiles, list(decisions.values())),
    )
    return Judged(verdict=verdict_of(checks), failed={check.name for check in checks if check.status is Status.FAIL})


def _part(outputs: Outputs, part: slice) -> dict[str, Any]:
    return {name: array[part] for name, array in outputs.items()}


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _unit(values: Array) -> Array:
    scaled: Array = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def _softmax(logits: Array) -> Array:
    grown = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Array = (grown / grown.sum(axis=-1, keepdims=True)).astype(np.float32)
    return shares


def _changed(values: Array, change: Callable[[Array], None]) -> Pair:
    actual = values.copy()
    change(actual)
    return values, actual


def _scale_of_one_column_beside_a_large_one() -> Pair:
    values = _normal(_ROWS, 4) * np.array([1, 1, 1000, 1], dtype=np.float32)
    return _changed(values, lambda actual: actual.__setitem__((slice(None), 0), actual[:, 0] * np.float32(1.05)))


def _a_class_that_is_never_chosen() -> Pair:
    return _changed(_normal(_ROWS, 10), lambda actual: actual.__setitem__((slice(None), 7), actual[:, 7] - 20))


def _tiny_outputs_replaced_by_zeros() -> Pair:
    return _changed(_normal(_ROWS, 5) * np.float32(1e-6), lambda actual: actual.fill(0))


def _subnormal_outputs_flushed() -> Pair:
    return _changed(_normal(_ROWS, 5) * np.float32(1e-39), lambda actual: actual.fill(0))


def _rows_one_further() -> Pair:
    values = _normal(_ROWS, 5)
    return values, np.roll(values, 1, axis=0)


def _a_slow_series_one_row_further() -> Pair:
    values = np.cumsum(_normal(_ROWS, 1) * np.float32(0.001), axis=0)
    return values, np.roll(values, 1, axis=0)


def _every_second_row_a_copy() -> Pair:
    return _changed(_normal(_ROWS, 5), lambda actual: actual.__setitem__(slice(1, None, 2), actual[::2]))


def _the_rows_of_the_last_smaller_batch() -> Pair:
    values = _normal(_ROWS + 5, 5)
    return _changed(values, lambda actual: actual.__setitem__(slice(-21, None), actual[-22]))


def _infinity_for_the_largest_number() -> Pair:
    values = _normal(_ROWS, 3)
    values[7, 1] = 3e38
    return _changed(values, lambda actual: actual.__setitem__((7, 1), np.inf))


def _two_outputs_of_one_distribution_swapped() -> Pair:
    one, other = _normal(_ROWS, 3), _normal(_ROWS, 3, seed=1)
    return {"y": one, "z": other}, {"y": other, "z": one}


def _scores_of_two_classes_of_boxes_swapped() -> Pair:
    boxes = _normal(_ROWS, 20, 4) * np.float32(300)
    values = np.concatenate([boxes, _softmax(_normal(_ROWS, 20, 3, seed=1))], axis=-1)
    return values, values[..., [0, 1, 2, 3, 5, 4, 6]]


def _a_price_near_a_million_that_is_always_the_same() -> Pair:
    prices = np.float32(1e6) + np.random.default_rng(0).uniform(-1, 1, (_ROWS, 1)).astype(np.float32)
    return prices, np.full_like(prices, 1e6)


def _embeddings_that_are_longer() -> Pair:
    values = _unit(_normal(_ROWS, 256))
    return values, values * np.float32(1.03)


def _embeddings_turned_a_little() -> Pair:
    values = _unit(_normal(_ROWS, 256))
    return values, _unit(values + _unit(_normal(_ROWS, 256, seed=1)) * np.float32(1e-3))


def _a_temperature_in_the_softmax() -> Pair:
    logits = _normal(_ROWS, 20) * 3
    return _softmax(logits), _softmax(logits / np.float32(1.001))


def _a_sparse_output_scaled() -> Pair:
    values = np.maximum(_normal(_ROWS, 8) - 1, 0)
    return values, values * np.float32(1.0005)


def _the_last_position_of_a_sequence() -> Pair:
    return _changed(_normal(_ROWS, 7, 3), lambda actual: actual.__setitem__((slice(None), -1), 0))


@pytest.mark.parametrize(
    ("fault", "precision"),
    [
        (_scale_of_one_column_beside_a_large_one, Precision.FP32),
        (_a_class_that_is_never_chosen, Precision.INT8),
        (_tiny_outputs_replaced_by_zeros, Precision.INT8),
        (_subnormal_outputs_flushed, Precision.INT8),
        (_rows_one_further, Precision.INT8),
        (_a_slow_series_one_row_further, Precision.FP16),
        (_every_second_row_a_copy, Precision.INT8),
        (_the_rows_of_the_last_smaller_batch, Precision.INT8),
        (_infinity_for_the_largest_number, Precision.INT8),
        (_two_outputs_of_one_distribution_swapped, Precision.INT8),
        (_scores_of_two_classes_of_boxes_swapped, Precision.INT8),
        (_a_price_near_a_million_that_is_always_the_same, Precision.BF16),
        (_embeddings_that_are_longer, Precision.FP16),
        (_embeddings_turned_a_little, Precision.FP32),
        (_a_temperature_in_the_softmax, Precision.FP32),
        (_a_sparse_output_scaled, Precision.FP32),
        (_the_last_position_of_a_sequence, Precision.INT8),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else str(value),
)
def test_a_planted_fault_fails(fault: Callable[[], Pair], precision: Precision) -> None:
    # What a precision cannot tell apart at all is inconclusive.
    assert _judged(fault(), precision).verdict in {Verdict.FAIL, Verdict.INCONCLUSIVE}


@pytest.mark.parametrize(
    ("dtype", "start"),
    [("int64", 2**53), ("uint64", 2**63 + 2**53), ("uint8", 0), ("int32", 2**24)],
)
def test_an_integer_that_is_off_by_one_fails_where_a_float_could_not_tell(dtype: str, start: int) -> None:
    values = (np.arange(200, dtype=np.uint64) + np.uint64(start)).astype(dtype).reshape(100, 2)
    pair = _changed(values, lambda actual: actual.__setitem__((7, 1), actual[7, 1] + 1))

    assert _judged(pair).failed == {"exact"}


def test_one_flag_that_is_flipped_fails() -> None:
    pair = _changed(_normal(_ROWS, 3) > 0, lambda actual: actual.__setitem__((5, 1), ~actual[5, 1]))

    assert _judged(pair).failed == {"exact"}


def test_a_sign_that_flips_just_at_the_threshold_is_counted() -> None:
    values = _normal(2000, 1)
    actual = np.where(np.abs(values) < 0.009, -values, values)

    judged = _judged((values, actual), Precision.FP16, decision="threshold=0")

    assert "decision_mismatches" in judged.failed


def test_a_column_hidden_by_one_of_another_unit_fails_once_the_axis_is_said() -> None:
    pair = _changed(
        _normal(_ROWS, 4) * np.array([1, 1, 1e6, 1], dtype=np.float32),
        lambda actual: actual.__setitem__((slice(None), 0), 0),
    )

    assert _judged(pair, axis=1).verdict is Verdict.FAIL


def _sum_in_another_order() -> Pair:
    x, weight = _normal(_ROWS, 512), _normal(512, 64, seed=1) * np.float32(0.05)
    return x @ weight, x[:, ::-1].copy() @ weight[::-1].copy()


def _product_in_two_parts() -> Pair:
    x, weight = _normal(_ROWS, 512), _normal(512, 64, seed=1) * np.float32(0.05)
    return x @ weight, x[:, :300] @ weight[:300] + x[:, 300:] @ weight[300:]


def _log_softmax_without_the_shift() -> Pair:
    logits = _normal(_ROWS, 20) * 3
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return expected, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _layer_norm_by_the_mean_of_squares() -> Pair:
    x = _normal(_ROWS, 256) * 5
    mean = x.mean(axis=1, keepdims=True)
    expected = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + np.float32(1e-5))
    return expected, (x - mean) / np.sqrt((x**2).mean(axis=1, keepdims=True) - mean**2 + np.float32(1e-5))


def _weights_in_half_precision() -> Pair:
    x, weight = _normal(_ROWS, 512), _normal(512, 64, seed=1) * np.float32(0.05)
    return x @ weight, x @ weight.astype(np.float16).astype(np.float32)


def _weights_in_eight_bits_by_channel() -> Pair:
    x, weight = _normal(_ROWS, 512), _normal(512, 64, seed=1) * np.float32(0.05)
    step = np.abs(weight).max(axis=0) / 127
    return x @ weight, x @ (np.round(weight / step) * step).astype(np.float32)


def _negative_zeros() -> Pair:
    values = np.maximum(_normal(_ROWS, 3), 0)
    return values, np.where(values == 0, np.float32(-0.0), values)


def _a_step_of_half_precision() -> Pair:
    values = _normal(_ROWS, 3).astype(np.float16)
    return values, np.nextafter(values, np.float16(9))


def _doubles_computed_as_floats() -> Pair:
    values = np.random.default_rng(0).standard_normal((_ROWS, 3))
    return values, values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    ("rewrite", "precision"),
    [
        (_sum_in_another_order, Precision.FP32),
        (_product_in_two_parts, Precision.FP32),
        (_log_softmax_without_the_shift, Precision.FP32),
        (_layer_norm_by_the_mean_of_squares, Precision.FP32),
        (_weights_in_half_precision, Precision.FP16),
        (_weights_in_eight_bits_by_channel, Precision.INT8),
        (_negative_zeros, Precision.FP32),
        (_a_step_of_half_precision, Precision.FP16),
        (_doubles_computed_as_floats, Precision.FP32),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else str(value),
)
def test_an_innocent_rewrite_passes(rewrite: Callable[[], Pair], precision: Precision) -> None:
    expected, actual = rewrite()
    assert expected.tobytes() != actual.tobytes()

    assert _judged((expected, actual), precision).verdict is Verdict.PASS


def test_weights_in_half_precision_do_not_pass_as_single() -> None:
    assert _judged(_weights_in_half_precision(), Precision.FP32).verdict is Verdict.FAIL
