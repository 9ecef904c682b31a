"""Measure how far a fault changes the outputs, whatever the limits: the planted file next to the unchanged one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.batch import Arrays
from paritygate.codec import finite_or_none
from paritygate.distance import distance
from paritygate.errors import BackendError, UsageError
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.probes import recorded_probes
from paritygate.pipelines.selftest.result import EffectResult
from paritygate.validate.measure.blocks import by_channel
from paritygate.validate.measure.profile import OutputProfile, ulp_of
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.samples import open_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.measure.limits import Limits
    from paritygate.validate.runners.runner import Runner


_SAMPLES = "samples"
# Another order of summation moves outputs by a few ULPs of their dtype.
_ROUNDING_ULPS = 16


def effects_of(
    planted: Runner, unchanged: Runner, job: ComparisonJob, limits: Mapping[str, Limits]
) -> list[EffectResult]:
    """Return the largest change of each output by a missed fault, over everything that the comparison ran."""
    worst = {name: _nothing(name) for name in limits}
    profiles = Recording.load(job.reference.path).profiles
    for where, inputs in _asked(unchanged, job):
        try:
            actual, expected = planted.run(inputs), unchanged.run(inputs)
        except (BackendError, UsageError):
            # Inputs that one of them refuses show no difference.
            continue
        for name, before in worst.items():
            effect = _effect(where, actual[name], expected[name], profiles[name], limits[name])
            if _weight(effect) > _weight(before):
                worst[name] = effect
    return list(worst.values())


def _nothing(name: str, where: str = _SAMPLES) -> EffectResult:
    return EffectResult(output=name, max_abs_diff=0.0, where=where, in_limits=0.0, is_rounding=True)


def _weight(effect: EffectResult) -> tuple[bool, float, float]:
    # A change that is not finite outweighs all others.
    return (
        effect.max_abs_diff is None,
        0.0 if effect.in_limits is None else effect.in_limits,
        effect.max_abs_diff or 0.0,
    )


def _asked(runner: Runner, job: ComparisonJob) -> Iterator[tuple[str, Arrays]]:
    """Yield the kind and the inputs of everything that the comparison ran."""
    for batch in open_samples(job.samples)():
        if batch.rows:
            yield _SAMPLES, fit_inputs(batch, runner.signature)
    recording = recorded_probes(job.reference.path)
    for probe in recording.probes if recording is not None else ():
        if probe.name in job.rules.probes and recording is not None:
            for stored in recording.batches(probe):
                yield f"probe {probe.name}", stored.inputs


def _effect(
    where: str, actual: NDArray[Any], expected: NDArray[Any], profile: OutputProfile, limits: Limits
) -> EffectResult:
    name = profile.name
    if np.array_equal(actual, expected, equal_nan=expected.dtype.kind == "f"):
        return _nothing(name, where)
    is_alike = actual.shape == expected.shape and actual.dtype == expected.dtype and actual.dtype.kind in "fiub"
    difference = distance(actual, expected) if is_alike else np.full(1, np.inf)
    largest = finite_or_none(float(difference.max(initial=0.0)))
    if largest is None or not limits.max_abs_diff.all():
        return EffectResult(output=name, max_abs_diff=largest, where=where, in_limits=None, is_rounding=False)
    wanted = expected.astype(np.float64)
    return EffectResult(
        output=name,
        max_abs_diff=largest,
        where=where,
        in_limits=_in_limits(difference, wanted, limits),
        is_rounding=expected.dtype.kind == "f" and _is_rounding(difference, wanted, profile),
    )


def _is_rounding(difference: NDArray[np.float64], expected: NDArray[np.float64], profile: OutputProfile) -> bool:
    """Return whether all changes are rounding of the channel's values, or of all values for a constant channel."""
    sizes = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    largest = float(sizes.max(initial=0.0))
    pairs = [(difference, largest)]
    if expected.size and profile.axis is not None and expected.shape[profile.axis :][:1] == (profile.channels,):
        by_own = zip(by_channel(difference, profile.axis), by_channel(sizes, profile.axis), strict=True)
        pairs = [
            (own, float(values.max()) if spread > 0 else largest)
            for (own, values), spread in zip(by_own, profile.own_spread, strict=True)
        ]
    return all(float(own.max(initial=0.0)) <= _ROUNDING_ULPS * ulp_of(size, profile.dtype) for own, size in pairs)


def _in_limits(difference: NDArray[np.float64], expected: NDArray[np.float64], limits: Limits) -> float:
    if not limits.fits(difference.shape):
        # Sizes that no sample has lack limits by channel.
        return float(difference.max(initial=0.0) / limits.max_abs_diff.max())
    return float((difference / limits.of_values("max_abs_diff", expected)).max(initial=0.0))
