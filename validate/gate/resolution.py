"""Outputs that a precision cannot resolve: its steps are as large as what tells one answer from another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paritygate.validate.gate.precision_steps import LEAST_STEPS, Step
from paritygate.validate.gate.tolerance import Tolerance
from paritygate.validate.gate.verdict import Check, Status
from paritygate.validate.reference.profile import OutputProfile

__all__ = ["resolution_checks"]

# Four steps, within which no answer is wrong, may be this share of the reference's standard deviation.
_MOST_OF_SPREAD = 0.25


def resolution_checks(tolerance: Tolerance, profiles: Mapping[str, OutputProfile]) -> tuple[Check, ...]:
    """Return a failed check for each float output that the precision cannot resolve.

    Asked is only where four steps are more than the limit would be otherwise: samples that all lie near a threshold
    vary little, and are held to the default limit as others are. An output of several channels is resolved where one
    of them is: a channel that hardly varies is held to its limit like the others. Who declares `max_abs_diff` has said
    what is near enough.
    """
    if "max_abs_diff" in tolerance.declared:
        return ()
    checks = (_check(tolerance, profile) for profile in profiles.values() if profile.is_float)
    return tuple(check for check in checks if check is not None)


def _check(tolerance: Tolerance, profile: OutputProfile) -> Check | None:
    is_varying = profile.spread > 0
    if not is_varying.any():
        return None
    magnitudes, spreads = profile.bulk_abs[is_varying], profile.spread[is_varying]
    steps = LEAST_STEPS * Step(precision=tolerance.precision, dtype=profile.dtype).at(magnitudes)
    best = int(np.argmin(steps / spreads))
    if steps[best] <= max(_MOST_OF_SPREAD * spreads[best], tolerance.max_abs_diff * profile.scale[is_varying][best]):
        return None
    detail = (
        f"{tolerance.precision} cannot resolve this output: {LEAST_STEPS} of its steps at {magnitudes[best]:.4g} are "
        f"{steps[best]:.3g}, more than a quarter of the reference's spread, {spreads[best]:.3g}; keep the output and "
        "what it is computed from in float32, or say by a max_abs_diff of your own what is near enough"
    )
    return Check(
        name="resolution",
        status=Status.FAIL,
        detail=detail,
        output=profile.name,
        measured=float(steps[best]),
        limit=float(_MOST_OF_SPREAD * spreads[best]),
    )
