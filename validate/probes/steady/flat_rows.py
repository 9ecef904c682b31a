"""Whether the reference has one answer to rows with one value all over.

Moved value by value, such a row is flat no more: what is normalised by its spread then jumps, though every right
conversion answers the flat row alike. So it is moved as a whole, to values whose sums are exact as well, and what the
reference answers has to follow a straight line. Where it does not, it answers by what rounding leaves of a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import BackendError, MeasurementError, UsageError
from paritygate.precision import Precision
from paritygate.validate.measure.measurement import repeat_difference
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, limits_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

    Outputs = Mapping[str, NDArray[np.generic]]
    Profiles = Mapping[str, OutputProfile]

# An answer that moves by more than this share of a limit, when its inputs move by a rounding, says nothing.
STEADY_SHARE = 0.5


def moved_in_limits(found: Outputs, outputs: Outputs, profiles: Profiles, precision: Precision) -> float:
    """Return how far an answer is from another one, in the limits that a precision has of the outputs."""
    ratios = []
    for name, profile in profiles.items():
        limits = limits_for(DEFAULT_TOLERANCES[precision], profile)
        limits = replace(limits, repeat_max_abs_diff=limits.max_abs_diff)
        ratios.append(repeat_difference(found[name], outputs[name], profile, limits)[0])
    return max(ratios, default=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatRows:
    """Flat rows, and what they are answered.

    Attributes:
        inputs: The rows.
        outputs: The reference's answer to them.
        series: The same rows moved as a whole by more and more steps; one of them that is straight is enough.
        profiles: Of each output that is compared.
    """

    inputs: Outputs
    outputs: Outputs
    series: Iterable[Sequence[Outputs]]
    profiles: Profiles


def why_flat_unsteady(runner: Runner, others: Sequence[Runner], rows: FlatRows) -> str:
    """Return why the answer to flat rows counts for nothing, in words; empty where it is steady.

    Args:
        runner: The reference.
        others: The same model as it runs otherwise, such as on one thread.
        rows: The rows.
    """
    outputs, profiles = rows.outputs, rows.profiles
    for other in others:
        ratio = _answered_within(other, rows.inputs, outputs, profiles)
        if ratio > STEADY_SHARE:
            return (
                f"the reference answers it otherwise on one thread or without graph optimisations ({ratio:.3g} limits)"
            )
    least = float("inf")
    for series in rows.series:
        least = min(least, _bend(runner, series, outputs, profiles))
        if least <= STEADY_SHARE:
            return ""
    return f"the reference's answer jumps where the whole row moves by a step ({least:.3g} limits)"


def _answered_within(runner: Runner, inputs: Outputs, outputs: Outputs, profiles: Profiles) -> float:
    try:
        return moved_in_limits(runner.run(inputs), outputs, profiles, Precision.FP32)
    except (BackendError, UsageError, MeasurementError):
        return float("inf")


def _bend(runner: Runner, series: Sequence[Outputs], outputs: Outputs, profiles: Profiles) -> float:
    """Return how far the answers to a row and its moved ones are from a straight line, in limits."""
    try:
        answers = [outputs, *(runner.run(inputs) for inputs in series)]
    except (BackendError, UsageError, MeasurementError):
        return float("inf")
    largest = 0.0
    for answer, beside, beyond in zip(answers, answers[1:], answers[2:], strict=False):
        line = {name: _continued(beside[name], beyond[name], profile) for name, profile in profiles.items()}
        largest = max(largest, moved_in_limits(line, answer, profiles, Precision.FP32))
    return largest


def _continued(beside: NDArray[np.generic], beyond: NDArray[np.generic], profile: OutputProfile) -> NDArray[np.generic]:
    """Return what a straight line through two answers comes to one step before them; labels have to be the same."""
    if not profile.is_float or beside.shape != beyond.shape:
        return beside
    near, far = beside.astype(np.float64), beyond.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # The same infinity continues as itself.
        line = np.where(near == far, near, 2 * near - far)
        found: NDArray[np.generic] = line.astype(beside.dtype)
    return found
