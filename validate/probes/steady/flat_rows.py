"""Decide whether the reference has a single output on rows with one value throughout.

Moved value by value, such a row is no longer flat: what is normalised by its spread jumps, though all correct
conversions agree on the flat row. So the whole row moves, to values with exact sums as well, and the outputs must
follow a straight line. If they do not, they depend on what rounding leaves of a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Arrays
from paritygate.errors import BackendError, MeasurementError, UsageError
from paritygate.precision import Precision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import repeat_difference
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

    Profiles = Mapping[str, OutputProfile]

# Outputs that move by more than this share of a limit, when inputs move by a rounding, are unsteady.
STEADY_SHARE = 0.5
_SIGNAL_RANK = 3


def is_flat_signal(values: NDArray[np.generic]) -> bool:
    """Return whether every row has places and features, with values that differ along one axis at most."""
    if values.ndim < _SIGNAL_RANK or not values.size:
        return False
    axes = range(1, values.ndim)
    varies = [bool((values != np.take(values, [0], axis=axis)).any()) for axis in axes]
    return sum(varies) <= 1


def moved_in_limits(found: Arrays, outputs: Arrays, profiles: Profiles, precision: Precision) -> float:
    """Return the difference of two outputs, in limits of a precision."""
    ratios = []
    for name, profile in profiles.items():
        limits = limits_for(DEFAULT_TOLERANCES[precision], profile)
        limits = replace(limits, repeat_max_abs_diff=limits.max_abs_diff)
        ratios.append(repeat_difference(found[name], outputs[name], limits)[0])
    return max(ratios, default=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatRows:
    """Flat rows with the reference's outputs, and series of the rows moved by steps; one straight one is enough."""

    inputs: Arrays
    outputs: Arrays
    series: Iterable[Sequence[Arrays]]
    profiles: Profiles


def why_flat_unsteady(runner: Runner, others: Sequence[Runner], rows: FlatRows) -> str:
    """Return why outputs on flat rows do not count, or an empty text; `others` are the model's other sessions."""
    outputs, profiles = rows.outputs, rows.profiles
    for other in others:
        ratio = _answered_within(other, rows.inputs, outputs, profiles)
        if ratio > STEADY_SHARE:
            return f"the reference's output differs on one thread or without graph optimisations ({ratio:.3g} limits)"
    least = float("inf")
    for series in rows.series:
        least = min(least, _bend(runner, series, outputs, profiles))
        if least <= STEADY_SHARE:
            return ""
    return f"the reference's answer jumps where the whole row moves by a step ({least:.3g} limits)"


def _answered_within(runner: Runner, inputs: Arrays, outputs: Arrays, profiles: Profiles) -> float:
    try:
        return moved_in_limits(runner.run(inputs), outputs, profiles, Precision.FP32)
    except (BackendError, UsageError, MeasurementError):
        return float("inf")


def _bend(runner: Runner, series: Sequence[Arrays], outputs: Arrays, profiles: Profiles) -> float:
    """Return by how many limits the outputs on a row and its moved ones leave a straight line."""
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
    """Return the extrapolation of two outputs to one step before them; labels must be equal."""
    if not profile.is_float or beside.shape != beyond.shape:
        return beside
    near, far = beside.astype(np.float64), beyond.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # The same infinity continues as itself.
        line = np.where(near == far, near, 2 * near - far)
        extrapolated: NDArray[np.generic] = line.astype(beside.dtype)
    return extrapolated
