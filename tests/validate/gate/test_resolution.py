"""An output that a precision cannot resolve fails with these words."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.gate.verdict import Check, Status
from paritygate.validate.reference.profile import profile_outputs


def _checks(
    values: NDArray[np.generic], precision: Precision, *, axis: int | None = None, **declared: float
) -> tuple[Check, ...]:
    profile = profile_outputs("y", [(values, len(values))], axis=axis, dtype=values.dtype.name)
    return resolution_checks(parse_tolerance(precision, declared), {"y": profile})


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_it_is_said_what_the_steps_are_and_what_they_would_have_to_tell_apart() -> None:
    (found,) = _checks(1000 + _normal(300, 1), Precision.FP16)

    assert (found.name, found.output, found.status) == ("resolution", "y", Status.FAIL)
    assert found.detail.startswith("fp16 cannot resolve this output: 4 of its steps at 1002 are 2, more than a quarter")
    assert found.detail.endswith("or say by a max_abs_diff of your own what is near enough")


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


def test_samples_that_lie_near_each_other_are_held_to_the_default_limit() -> None:
    # All rows near a threshold of 3: 4 steps of FP16 are 0.0078, below the limit of 0.01.
    assert _checks(3 + _normal(50, 1) / 500, Precision.FP16) == ()
    assert len(_checks(11 + _normal(50, 1) / 500, Precision.FP16)) == 1


def test_whoever_declares_the_limit_has_said_what_is_near_enough() -> None:
    assert _checks(1000 + _normal(300, 1), Precision.FP16, max_abs_diff=1.0) == ()
    assert _checks(1000 + _normal(300, 1), Precision.FP16, mean_abs_diff=1.0) != ()


def test_a_channel_that_hardly_varies_beside_others_is_no_output_that_cannot_be_resolved() -> None:
    values = _normal(300, 4, 3)
    values[:, :, 1] = 11 + values[:, :, 1] / 1000
    assert _checks(values, Precision.BF16, axis=2) == ()

    values[:, :, [0, 2]] += 500
    assert len(_checks(values, Precision.BF16, axis=2)) == 1


def test_what_never_varies_and_what_is_no_float_is_not_asked() -> None:
    assert _checks(np.full((30, 1), 1000, np.float32), Precision.FP16) == ()
    assert _checks(np.arange(30).reshape(30, 1) + 10**6, Precision.FP16) == ()


def test_huge_rows_do_not_make_the_others_unresolvable() -> None:
    values = _normal(5000, 1)
    values[:5] *= 1e6

    assert _checks(values, Precision.BF16) == ()
