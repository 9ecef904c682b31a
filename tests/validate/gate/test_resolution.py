"""An output that a precision cannot resolve fails with these words."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.decisions import Decision, Rule
from paritygate.validate.measure.profile import profile_outputs


def _checks(
    values: NDArray[np.generic], precision: Precision, *, axis: int | None = None, **declared: float
) -> tuple[Check, ...]:
    profile = profile_outputs("y", [(values, len(values))], axis=axis, dtype=values.dtype.name)
    return resolution_checks(parse_tolerance(precision, declared), {"y": profile})


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_channel_whose_values_are_as_near_as_rounding_is_inconclusive() -> None:
    (found,) = _checks(1000 + _normal(300, 1), Precision.FP16)

    assert (found.name, found.output, found.status) == ("resolution", "y", Status.INCONCLUSIVE)
    assert found.measured == 2.0
    assert found.limit == pytest.approx(0.25, rel=0.2)


@pytest.mark.parametrize("unit", [1.0, 1e3])
@pytest.mark.parametrize(
    ("precision", "offset", "is_resolved"),
    [
        (Precision.FP32, 1e4, True),
        (Precision.FP32, 1e7, False),
        (Precision.FP16, 30, True),
        (Precision.FP16, 150, False),
        (Precision.TF32, 150, False),
        (Precision.MIXED, 150, False),
        (Precision.BF16, 3, True),
        (Precision.BF16, 30, False),
        # The dtype of the output is all that says what INT8 cannot tell apart.
        (Precision.INT8, 1e4, True),
        (Precision.INT8, 1e7, False),
    ],
)
def test_four_steps_are_held_to_a_quarter_of_the_spread_in_any_unit(
    precision: Precision, offset: float, unit: float, *, is_resolved: bool
) -> None:
    assert (_checks((offset + _normal(300, 1)) * np.float32(unit), precision) == ()) is is_resolved


def test_samples_that_lie_near_each_other_are_told_apart_by_a_decision_alone() -> None:
    # All rows near a threshold of 3: they vary by less than 4 steps of FP16.
    values = 3 + _normal(50, 1) / 500
    profile = profile_outputs("y", [(values, 50)], axis=None, dtype="float32")
    rule = Decision(output="y", rule=Rule.THRESHOLD, threshold=3.0)

    assert len(_checks(values, Precision.FP16)) == 1
    assert resolution_checks(parse_tolerance(Precision.FP16, {}), {"y": profile}, [rule]) == ()


def test_a_decision_on_one_column_tells_nothing_about_another() -> None:
    values = np.concatenate([1e-9 * _normal(300, 1), _normal(300, 1)], axis=1)
    profile = profile_outputs("y", [(values, 300)], axis=1, dtype="float32")
    tolerance = parse_tolerance(Precision.FP16, {})

    for threshold, names in ((0.5, ["resolution"]), (0.0, [])):
        rule = Decision(output="y", rule=Rule.THRESHOLD, threshold=threshold)
        assert [check.name for check in resolution_checks(tolerance, {"y": profile}, [rule])] == names


def test_whoever_declares_the_limit_has_said_what_is_near_enough() -> None:
    assert _checks(1000 + _normal(300, 1), Precision.FP16, max_abs_diff=1.0) == ()
    assert _checks(1000 + _normal(300, 1), Precision.FP16, mean_abs_diff=1.0) != ()


def test_each_channel_is_judged_by_itself() -> None:
    values = _normal(300, 4, 3)
    values[:, :, 1] = 11 + values[:, :, 1] / 1000

    (found,) = _checks(values, Precision.BF16, axis=2)
    assert (found.name, found.status) == ("resolution", Status.INCONCLUSIVE)
    assert _checks(values, Precision.BF16, axis=2, max_abs_diff=0.1) == ()


def test_a_column_that_hardly_varies_is_listed_once() -> None:
    values = _normal(300, 3)
    values[:, [0, 2]] = 5.0
    values[:20, 2] = 6.0

    (found,) = _checks(values, Precision.FP32, axis=1)
    assert (found.name, found.status, found.measured) == ("variation", Status.WARNING, 2)


@pytest.mark.parametrize(("precision", "is_said"), [(Precision.FP32, False), (Precision.INT8, True)])
def test_where_zeros_would_pass_in_a_column_that_hardly_varies_it_is_said(
    precision: Precision, *, is_said: bool
) -> None:
    values = _normal(300, 2) * np.float32(40)
    values[:, 0] = 0
    values[:20, 0] = 1.0

    (found,) = _checks(values, precision, axis=1)

    assert (found.name, found.status, found.measured) == ("variation", Status.WARNING, 1)
    assert ("zeros would pass" in found.detail) == is_said


def test_what_is_no_float_is_not_asked() -> None:
    assert _checks(np.arange(30).reshape(30, 1) + 10**6, Precision.FP16) == ()


def test_huge_rows_do_not_make_the_others_unresolvable() -> None:
    values = _normal(5000, 1)
    values[:5] *= 1e6

    assert _checks(values, Precision.BF16) == ()
