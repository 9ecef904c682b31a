"""What is large must not hide what is wrong, and what is right must pass however its values are distributed.

Every conversion is computed by a small random network in that precision, none is noise that was made up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Check, Status, Verdict, verdict_of
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.channel_axis import has_columns

Array = NDArray[Any]

_ROWS = 300
_WIDTH = 6
_BATCH = 32


def _checks(expected: Array, actual: Array, precision: Precision = Precision.FP32) -> tuple[Check, ...]:
    """Judge an output as the gate does, in batches of 32 rows."""
    blocks = [(expected[at : at + _BATCH], len(expected[at : at + _BATCH])) for at in range(0, len(expected), _BATCH)]
    axis = 1 if has_columns([expected.shape]) else None
    profile = profile_outputs("y", blocks, axis=axis, dtype=expected.dtype.name)
    tolerance = DEFAULT_TOLERANCES[precision]
    limits = {"y": limits_for(tolerance, profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    for at in range(0, len(expected), _BATCH):
        part = slice(at, min(at + _BATCH, len(expected)))
        ids = [str(row) for row in range(part.start, part.stop)]
        comparison.add(Batch(inputs={}, ids=ids), {"y": actual[part]}, {"y": expected[part]})
    comparison.end_pass()
    plan = JudgePlan(
        rules=GateRules(tolerance=tolerance, min_rows=100, is_non_finite_declared=True),
        limits=limits,
        profiles={"y": profile},
    )
    return judge(comparison.finish(), plan)


def _verdict(expected: Array, actual: Array, precision: Precision = Precision.FP32) -> Verdict:
    return verdict_of(_checks(expected, actual, precision))


def _failed(checks: tuple[Check, ...]) -> dict[str, str]:
    return {check.name: check.detail for check in checks if check.status is Status.FAIL}


class Arithmetic(Struct, frozen=True, kw_only=True):
    """How a network computes: what becomes of every tensor, what of every weight, and the order of its sums."""

    rounded: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    is_reversed: bool = False

    def product(self, x: Array, weight: Array) -> Array:
        """Return x @ weight, summed in float32."""
        order = slice(None, None, -1) if self.is_reversed else slice(None)
        left, right = self.rounded(x)[:, order].copy(), self.weight(weight)[order].copy()
        half = left.shape[1] // 2
        if self.is_reversed:
            return self.rounded(left[:, :half] @ right[:half] + left[:, half:] @ right[half:])
        return self.rounded(left @ right)


def _as(dtype: type) -> Callable[[Array], Array]:
    return lambda values: values.astype(dtype).astype(np.float32)


def _eight_bits(values: Array, axis: int) -> Array:
    step = np.maximum(np.abs(values).max(axis=axis, keepdims=True), np.float32(1e-30)) / np.float32(127)
    rounded: Array = (np.round(values / step) * step).astype(np.float32)
    return rounded


_EXACT = Arithmetic(rounded=_as(np.float32), weight=_as(np.float32))
_CONVERSIONS: Mapping[Precision, Arithmetic] = {
    Precision.FP32: replace(_EXACT, is_reversed=True),
    Precision.FP16: Arithmetic(rounded=_as(np.float16), weight=_as(np.float16)),
    Precision.BF16: Arithmetic(rounded=_as(ml_dtypes.bfloat16), weight=_as(ml_dtypes.bfloat16)),
    # Weights by output channel, activations by row, as dynamic quantisation of a served model has them.
    Precision.INT8: Arithmetic(rounded=lambda x: _eight_bits(x, 1), weight=lambda x: _eight_bits(x, 0)),
}


def _network(arithmetic: Arithmetic, *, outlier: float = 1.0) -> Array:
    """Return answers of about unit spread; one row is larger by a factor, as its input is."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((_ROWS, 48)).astype(np.float32)
    x[123] *= np.float32(outlier)
    first = (rng.standard_normal((48, 64)) / np.sqrt(48)).astype(np.float32)
    second = (rng.standard_normal((64, _WIDTH)) / np.sqrt(32)).astype(np.float32)
    return arithmetic.product(np.maximum(arithmetic.product(x, first), 0), second)


def _sigmoid(logits: Array) -> Array:
    probabilities: Array = np.float32(1) / (np.float32(1) + np.exp(-logits))
    return probabilities


def _normal(a: Arithmetic) -> Array:
    return _network(a)


def _lognormal(a: Arithmetic) -> Array:
    return a.rounded(np.exp(_network(a)))


def _one_outlier(a: Arithmetic) -> Array:
    return _network(a, outlier=1e4)


def _two_clusters(a: Arithmetic) -> Array:
    answers = _network(a)
    # The cluster is of the row and the same in every precision, as a class of the input is.
    return a.rounded(answers + np.where(np.arange(_ROWS) % 3 == 0, np.float32(40), np.float32(0))[:, None])


def _logits_with_an_offset(a: Arithmetic) -> Array:
    return a.rounded(_network(a) + np.float32(3))


def _logits_with_a_large_offset(a: Arithmetic) -> Array:
    return a.rounded(_network(a) + np.float32(1000))


def _probabilities(a: Arithmetic) -> Array:
    return a.rounded(_sigmoid(_network(a) * np.float32(6)))


def _rare_probabilities(a: Arithmetic) -> Array:
    return a.rounded(_sigmoid(_network(a)[:, :1] * np.float32(3) - np.float32(5)))


def _counts(a: Arithmetic) -> Array:
    return a.rounded(np.maximum(np.exp(_network(a)) - 1, 0))


_DISTRIBUTIONS = (
    _normal,
    _lognormal,
    _one_outlier,
    _two_clusters,
    _logits_with_an_offset,
    _probabilities,
    _rare_probabilities,
    _counts,
)


@pytest.mark.parametrize("precision", _CONVERSIONS, ids=str)
@pytest.mark.parametrize("distribution", _DISTRIBUTIONS, ids=lambda item: item.__name__.strip("_"))
def test_a_right_conversion_passes(distribution: Callable[[Arithmetic], Array], precision: Precision) -> None:
    expected, actual = distribution(_EXACT), distribution(_CONVERSIONS[precision])
    assert expected.tobytes() != actual.tobytes()

    assert _failed(_checks(expected, actual, precision)) == {}


def test_an_offset_that_the_precision_holds_passes_and_one_that_it_loses_fails() -> None:
    expected = _logits_with_a_large_offset(_EXACT)
    half, single = (_logits_with_a_large_offset(_CONVERSIONS[each]) for each in (Precision.FP16, Precision.FP32))

    assert _verdict(expected, single, Precision.FP32) is Verdict.PASS
    # Every value is as near as FP16 has one, and the answers are apart by less than that.
    assert _failed(_checks(expected, half, Precision.FP16)) == {}
    profile = profile_outputs("y", [(expected, len(expected))], axis=1, dtype=expected.dtype.name)
    (check,) = resolution_checks(DEFAULT_TOLERANCES[Precision.FP16], {"y": profile})
    assert (check.name, check.status) == ("resolution", Status.INCONCLUSIVE)


def test_a_state_near_eleven_may_be_off_by_two_steps_in_places_and_not_everywhere() -> None:
    # As the state of a recurrent network: FP16 has steps of 0.0078 there.
    expected = (11 + 0.3 * _network(_EXACT)).astype(np.float32)
    right = expected.copy()
    right[::7, 2] += np.float32(0.013)
    wrong = expected + np.float32(0.013)

    assert _failed(_checks(expected, right, Precision.FP16)) == {}
    assert "max_abs_diff" in _failed(_checks(expected, right, Precision.FP32))
    assert set(_failed(_checks(expected, wrong, Precision.FP16))) == {"mean_abs_diff"}


def _bulk(values: Array) -> Array:
    """Return which rows are none of the largest tenth."""
    norms = np.linalg.norm(values, axis=1)
    chosen: Array = norms <= np.quantile(norms, 0.9)
    return chosen


@pytest.mark.parametrize(
    "distribution", [*_DISTRIBUTIONS, _logits_with_a_large_offset], ids=lambda item: item.__name__.strip("_")
)
@pytest.mark.parametrize("factor", [0.95, 0.99, 1.01, 1.05])
def test_a_relative_fault_of_one_percent_in_the_bulk_fails(
    distribution: Callable[[Arithmetic], Array], factor: float
) -> None:
    expected, actual = distribution(_EXACT), distribution(_CONVERSIONS[Precision.FP32])
    actual[_bulk(expected)] *= np.float32(factor)

    assert _verdict(expected, actual) is Verdict.FAIL


_FILLS = (-1e4, -1e9, float(np.finfo(np.float32).min), -np.inf)


def _filled(values: Array, fill: float, share: float) -> Array:
    mask = np.random.default_rng(1).random(values.shape) < share
    return np.where(mask, np.float32(fill), values).astype(np.float32)


@pytest.mark.parametrize("share", [0.05, 0.4, 0.8])
@pytest.mark.parametrize("fill", _FILLS)
def test_what_is_wrong_behind_a_fill_value_fails(fill: float, share: float) -> None:
    expected = _filled(_network(_EXACT), fill, share)
    is_fill = expected == np.float32(fill)
    zeros = np.where(is_fill, expected, np.float32(0))
    scaled = _filled(_network(_EXACT) * np.float32(1.003), fill, share)

    assert _verdict(expected, zeros) is Verdict.FAIL
    assert _verdict(expected, scaled) is Verdict.FAIL
    assert _verdict(expected, _filled(_network(_CONVERSIONS[Precision.FP32]), fill, share)) is Verdict.PASS


@pytest.mark.parametrize("fill", _FILLS[:3])
def test_a_fill_value_is_compared_exactly_and_counted(fill: float) -> None:
    expected = _filled(_network(_EXACT), fill, 0.3)
    wrong = expected.copy()
    row, column = np.argwhere(expected == np.float32(fill))[5]
    wrong[row, column] *= np.float32(1 - 1e-6)
    count = int(np.count_nonzero(expected == np.float32(fill)))

    passed = {check.name: check.detail for check in _checks(expected, expected.copy())}["fill_values"]
    failed = _failed(_checks(expected, wrong))

    assert passed.startswith(f"{count} fill values ({np.float32(fill):.6g})")
    assert set(failed) == {"fill_values"}
    assert failed["fill_values"].startswith(f"1 of {count} fill values ({np.float32(fill):.6g}) ")
    assert failed["fill_values"].endswith(f": {wrong[row, column]:.6g} in row '{row}'")


def test_of_many_wrong_fill_values_the_first_says_what_is_there_instead() -> None:
    expected = _filled(_network(_EXACT), -1e9, 0.3)
    wrong = np.where(expected == np.float32(-1e9), np.float32(0), expected)
    count = int(np.count_nonzero(expected == np.float32(-1e9)))
    row = int(np.argwhere(expected == np.float32(-1e9))[0][0])

    said = _failed(_checks(expected, wrong))["fill_values"]
    assert said.startswith(f"{count} of {count} fill values (-1e+09) ")
    assert said.endswith(f": 0, first in row '{row}'")


@pytest.mark.parametrize(
    ("precision", "held", "verdict"),
    [
        (Precision.FP16, -65504.0, Verdict.PASS),
        (Precision.FP16, -1e9, Verdict.PASS),
        (Precision.MIXED, -65504.0, Verdict.PASS),
        (Precision.BF16, float(np.float32(ml_dtypes.bfloat16(-1e9))), Verdict.PASS),
        # Infinity where the reference is finite is never a pass, and a clamped constant is no FP32.
        (Precision.FP16, -np.inf, Verdict.FAIL),
        (Precision.FP16, -65472.0, Verdict.FAIL),
        (Precision.FP16, 65504.0, Verdict.FAIL),
        (Precision.BF16, -65504.0, Verdict.FAIL),
        (Precision.FP32, -65504.0, Verdict.FAIL),
        (Precision.TF32, -65504.0, Verdict.FAIL),
        (Precision.INT8, -65504.0, Verdict.FAIL),
    ],
)
def test_a_fill_value_may_be_the_nearest_that_the_precision_holds(
    precision: Precision, held: float, verdict: Verdict
) -> None:
    expected = _filled(_network(_EXACT), -1e9, 0.3)
    actual = np.where(expected == np.float32(-1e9), np.float32(held), expected)

    assert _verdict(expected, actual, precision) is verdict


def test_a_fill_value_that_was_clamped_is_said() -> None:
    expected = _filled(_network(_EXACT), -1e9, 0.3)
    actual = np.maximum(expected, np.float32(-65504))
    count = int(np.count_nonzero(expected == np.float32(-1e9)))

    said = {check.name: check.detail for check in _checks(expected, actual, Precision.FP16)}["fill_values"]

    assert re.search(rf"; {count} [^;]*\(-65504\)$", said)


def test_one_huge_row_hides_no_fault_of_the_others() -> None:
    expected, actual = (_network(each, outlier=1e6) for each in (_EXACT, _CONVERSIONS[Precision.FP32]))
    others = np.arange(_ROWS) != 123
    assert np.abs(expected[123]).max() > 1e5 * np.abs(expected[others]).max()

    assert _verdict(expected, actual) is Verdict.PASS
    for factor in (1.05, 1.01, 1.003):
        wrong = actual.copy()
        wrong[others] *= np.float32(factor)
        assert set(_failed(_checks(expected, wrong))) >= {"max_abs_diff", "max_row_rel_diff"}


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("huge", [1, 3, 20])
def test_some_huge_rows_hide_no_fault_in_any_unit(huge: int, unit: float) -> None:
    expected, actual = (_network(each) * np.float32(unit) for each in (_EXACT, _CONVERSIONS[Precision.FP32]))
    expected[:huge] *= np.float32(1e6)
    actual[:huge] *= np.float32(1e6)
    assert _verdict(expected, actual) is Verdict.PASS

    actual[huge:] *= np.float32(1.05)

    assert _verdict(expected, actual) is Verdict.FAIL


def test_a_third_of_huge_rows_hides_no_fault_of_the_others() -> None:
    expected, actual = (_network(each) for each in (_EXACT, _CONVERSIONS[Precision.FP32]))
    expected[::3] *= np.float32(1e6)
    actual[::3] *= np.float32(1e6)
    # In so many huge rows some value is near 0, and rounded as coarsely as its row.
    assert _verdict(expected, actual) is Verdict.PASS

    actual[1::3] *= np.float32(1.01)

    assert set(_failed(_checks(expected, actual))) >= {"max_abs_diff", "max_row_rel_diff"}


@pytest.mark.parametrize("precision", _CONVERSIONS)
@pytest.mark.parametrize("width", [4, 96, 768])
def test_one_huge_row_of_any_width_passes_in_every_precision(width: int, precision: Precision) -> None:
    rng = np.random.default_rng(width)
    x = rng.standard_normal((_ROWS, 96)).astype(np.float32)
    x[7] *= np.float32(1e6)
    weight = (rng.standard_normal((96, width)) / np.sqrt(96)).astype(np.float32)
    # FP16 ends at 65504: a row beyond it is infinite there, and no right conversion.
    x[7] /= np.float32(1e3) if precision in {Precision.FP16, Precision.INT8} else np.float32(1)
    expected, actual = (each.product(x, weight) for each in (_EXACT, _CONVERSIONS[precision]))

    assert _failed(_checks(expected, actual, precision)) == {}


@pytest.mark.parametrize("masked", [0.3, 0.5, 0.7, 0.95])
def test_a_mask_that_is_added_to_most_of_a_row_hides_no_fault_of_its_other_values(masked: float) -> None:
    # As behind a short text: what is not masked is computed in its own size, however many values beside it are masked.
    rng = np.random.default_rng(3)
    mask = np.zeros((_ROWS, 40), np.float32)
    mask[:30, : int(40 * masked)] = -1e4
    scores = rng.standard_normal((_ROWS, 40)).astype(np.float32)
    wrong = scores.copy()
    wrong[:30][mask[:30] == 0] += np.float32(0.01)
    assert _verdict(scores + mask, np.nextafter(scores, np.float32(9)) + mask) is Verdict.PASS

    assert "max_abs_diff" in _failed(_checks(scores + mask, wrong + mask))


def test_a_mask_that_is_added_hides_no_fault_of_the_other_values() -> None:
    # It is not a constant: -1e4 plus a score.
    mask = np.where(np.random.default_rng(1).random((_ROWS, _WIDTH)) < 0.4, np.float32(-1e4), np.float32(0))
    expected, actual = (_network(each) + mask for each in (_EXACT, _CONVERSIONS[Precision.FP32]))
    assert _verdict(expected, actual) is Verdict.PASS

    assert _verdict(expected, np.where(mask < 0, actual, actual * np.float32(1.003))) is Verdict.FAIL


def test_zeros_of_a_relu_are_held_to_the_scale_of_the_other_values() -> None:
    # The last sum rounds by its terms, which are as large where it is cut off to zero.
    answers = [np.maximum(_network(each) * np.float32(5e3) - 2e3, 0) for each in (_EXACT, _CONVERSIONS[Precision.FP32])]
    assert np.mean(answers[0] == 0) > 0.5

    assert _verdict(*answers) is Verdict.PASS


def test_a_fault_of_the_huge_row_itself_fails() -> None:
    expected = _network(_EXACT, outlier=1e6)
    actual = expected.copy()
    actual[123] *= np.float32(1.001)

    assert set(_failed(_checks(expected, actual))) >= {"max_abs_diff", "max_row_rel_diff"}


def test_an_int8_step_over_one_huge_row_loses_the_others_and_fails() -> None:
    expected = _network(_EXACT, outlier=1e4)
    per_tensor = _eight_bits(expected.reshape(1, -1), 1).reshape(expected.shape)

    assert _verdict(expected, per_tensor, Precision.INT8) is Verdict.FAIL


def test_rows_that_are_nearly_zero_are_held_to_what_is_typical() -> None:
    # Most probabilities are next to nothing: what approximates a sigmoid to 6e-8 is not wrong by so many times a row.
    expected = _sigmoid(np.linspace(-30, 4, _ROWS, dtype=np.float32)[:, np.newaxis])
    actual = expected + np.float32(6e-8)

    assert _verdict(expected, actual) is Verdict.PASS


def test_saturated_probabilities_are_no_fill_values() -> None:
    expected = np.where(np.arange(_ROWS) % 2 == 0, np.float32(1), np.float32(1e-6))[:, np.newaxis]
    actual = expected - np.float32(6e-8)

    assert _verdict(expected, actual) is Verdict.PASS
