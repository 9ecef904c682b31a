"""The noise floor: how much the reference's own outputs vary on the same inputs.

It runs in batches of other sizes, on other threads, without graph optimisations, and on inputs moved by one rounding.
No tolerance can be below it. It is measured on the reference alone, never on the error of a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.distance import distance
from paritygate.precision import Precision
from paritygate.validate.measure.blocks import by_block, by_channel
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.limits import Limits, limits_for, without_cap
from paritygate.validate.measure.profile import FloatArray, OutputProfile
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.health import Health
from paritygate.validate.words.sentence import Words, joined, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.reference.recording import StoredBatch

# The share of the rows whose largest difference counts where inputs move by a rounding.
_MOST_ROWS = 0.9
# The factor for a limit below the floor: a candidate has noise of its own.
_ROOM = 2.0
# Keys of stored arrays: in its batch, in another one. Names of outputs come after the first slash.
_WHOLE, _OTHER = ("head-whole", "alone-whole"), ("head", "alone")


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloor:
    """The largest difference of the reference from itself, by float output, one a channel; empty where not measured.

    `repeats` compare two runs of one batch, `batches` a row in batches of other sizes. `threads` compare the runtime's
    threads with a single one, `optimisations` the optimised graph with the original. `roundings` compare most rows with
    the same moved by one rounding. `why_no_batches` and `why_no_threads` are empty where these were measured.
    """

    repeats: Mapping[str, FloatArray]
    batches: Mapping[str, FloatArray]
    why_no_batches: str = ""
    threads: Mapping[str, FloatArray] = field(default_factory=dict)
    why_no_threads: str = "that was not measured when it was recorded"
    optimisations: Mapping[str, FloatArray] = field(default_factory=dict)
    roundings: Mapping[str, FloatArray] = field(default_factory=dict)

    def of(self, output: str) -> NDArray[np.float64]:
        """Return the floor of an output, over all sources."""
        largest = self.repeats[output]
        for others in (self.batches, self.threads):
            largest = np.maximum(largest, others.get(output, 0.0))
        return largest


def measure_noise(
    batches: Iterable[StoredBatch], profiles: Mapping[str, OutputProfile], *, why_no_batches: str
) -> NoiseFloor:
    """Return the floor of repeated runs and other batches; threads are not measured yet.

    `batches` hold outputs by `first/NAME` and `again/NAME`, and those of `OtherBatches`.
    """
    floats = {name: profile for name, profile in profiles.items() if profile.is_float}
    repeats = {name: np.zeros(profile.channels) for name, profile in floats.items()}
    others: dict[str, NDArray[np.float64]] = {}
    for batch in batches:
        for name, profile in floats.items():
            again = largest_difference(batch.outputs[f"again/{name}"], batch.outputs[f"first/{name}"], profile)
            repeats[name] = np.maximum(repeats[name], again)
            for whole, other in zip(_WHOLE, _OTHER, strict=True):
                if f"{other}/{name}" in batch.outputs:
                    pair = batch.outputs[f"{other}/{name}"], batch.outputs[f"{whole}/{name}"]
                    others[name] = np.maximum(others.get(name, 0.0), largest_difference(*pair, profile))
    return NoiseFloor(repeats=repeats, batches=others, why_no_batches=why_no_batches)


def largest_difference(
    actual: NDArray[np.generic], expected: NDArray[np.generic], profile: OutputProfile
) -> NDArray[np.float64]:
    """Return the largest difference by channel; infinite where shape or finiteness differ.

    Values far from the bulk count in proportion to their limits, because they round in larger steps.
    """
    if actual.shape != expected.shape:
        return np.full(profile.channels, np.inf)
    if actual.size == 0:
        return np.zeros(profile.channels)
    if expected.ndim == 0:
        return _largest_of_block(actual, expected, profile)
    differences = by_block(lambda rows: _largest_of_block(actual[rows], expected[rows], profile), expected.shape)
    largest: NDArray[np.float64] = np.max(differences, axis=0)
    return largest


def _largest_of_block(
    actual: NDArray[np.generic], expected: NDArray[np.generic], profile: OutputProfile
) -> NDArray[np.float64]:
    difference, wide = distance(actual, expected), expected.astype(np.float64)
    # Values that are not finite have no scale, and are 0 or infinitely far from the other.
    np.divide(difference, profile.beyond_bulk(wide), out=difference, where=np.isfinite(wide))
    largest: NDArray[np.float64] = by_channel(difference, profile.axis).max(axis=1)
    return largest


def typical_difference(
    actual: NDArray[np.generic], expected: NDArray[np.generic], profile: OutputProfile
) -> NDArray[np.float64]:
    """Return by channel the largest difference of most rows, as `largest_difference` measures it.

    A tenth of the rows may differ by more, because single rows jump where a function has a step. It is 0 where rows
    have no output of their own, or shapes differ.
    """
    if actual.shape != expected.shape or expected.ndim == 0 or not expected.size:
        return np.zeros(profile.channels)
    rows = [largest_difference(actual[at : at + 1], expected[at : at + 1], profile) for at in range(len(expected))]
    most: NDArray[np.float64] = np.quantile(np.stack(rows), _MOST_ROWS, axis=0, method="lower")
    return most


def with_noise(profiles: Mapping[str, OutputProfile], noise: NoiseFloor) -> dict[str, OutputProfile]:
    """Return the profiles with the noise of each channel.

    Dependence on the batch or the threads is no noise, because a copy depends on them too.
    """
    noisy = dict(profiles)
    for name, repeats in noise.repeats.items():
        largest = repeats
        for source in (noise.batches, noise.threads):
            own = source.get(name)
            if own is not None and (own <= _limit_of_others(profiles[name])).all():
                largest = np.maximum(largest, own)
        for source in (noise.optimisations, noise.roundings):
            largest = np.maximum(largest, source.get(name, 0.0))
        noisy[name] = replace(profiles[name], noise=largest)
    return noisy


def noise_health(noise: NoiseFloor, profiles: Mapping[str, OutputProfile]) -> tuple[Health, ...]:
    """Return the findings about noise, and about inputs besides its own that outputs depend on."""
    if not noise.repeats:
        return (Health(name="reference_noise", words=say("health.no_floats")),)
    worst = max(noise.repeats, key=lambda name: float(noise.of(name).max()))
    largest = float(noise.of(worst).max())
    over = _listed(["repeats", *(source.name for source in _sources(noise) if not source.why_not)])
    words = say("health.noise", noise=largest, over=over)
    words += say("health.in_output", output=worst) if largest else ()
    words = joined([words, *_not_over(noise)], "; ")
    return (Health(name="reference_noise", words=words), *_dependence(noise, profiles))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """One thing that a reference may depend on besides its inputs."""

    name: str
    floors: Mapping[str, NDArray[np.float64]]
    why_not: str
    check: str


def _sources(noise: NoiseFloor) -> tuple[_Source, ...]:
    return (
        _Source(name="batch sizes", floors=noise.batches, why_not=noise.why_no_batches, check="reference_batch"),
        _Source(name="threads", floors=noise.threads, why_not=noise.why_no_threads, check="reference_threads"),
    )


def _not_over(noise: NoiseFloor) -> list[Words]:
    return [
        say("health.not_over", name=source.name, reason=source.why_not) for source in _sources(noise) if source.why_not
    ]


def _listed(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _limit_of_others(profile: OutputProfile) -> NDArray[np.float64]:
    """Return the limit of the reference's difference from itself, even for a channel that hardly varies."""
    return limits_for(DEFAULT_TOLERANCES[Precision.FP32], without_cap(profile)).repeat_max_abs_diff


def _dependence(noise: NoiseFloor, profiles: Mapping[str, OutputProfile]) -> Iterable[Health]:
    for source in _sources(noise):
        for name, floor in source.floors.items():
            limit = _limit_of_others(profiles[name])
            at = int(np.argmax(floor / limit))
            if floor[at] > limit[at]:
                key = source.check if math.isfinite(floor[at]) else f"{source.check}.shape"
                words = say(key, output=name, difference=floor[at], limit=limit[at])
                yield Health(name=source.check, kind=Kind.DEPENDS, words=words)


def noise_checks(
    noise: NoiseFloor | None, limits: Mapping[str, Limits], profiles: Mapping[str, OutputProfile]
) -> tuple[Check, ...]:
    """Return a warning for each limit below the noise floor; it changes no verdict.

    Dependence on the batch or the threads is no noise: a copy depends on them too, so no limit should allow for it.
    """
    if noise is None:
        return ()
    checks = []
    for name, repeats in noise.repeats.items():
        if name in limits:
            floor, over, apart = repeats, ["repeats"], _not_over(noise)
            for source in _sources(noise):
                floor_of_source = source.floors.get(name)
                if floor_of_source is None:
                    continue
                if (floor_of_source <= _limit_of_others(profiles[name])).all():
                    floor, over = np.maximum(floor, floor_of_source), [*over, source.name]
                else:
                    apart.append(say("health.depends_on", name=source.name))
            remark = say("text_over", over=_listed(over))
            remark += say("in_brackets", over=joined(apart, "; ")) if apart else ()
            checks += _below(name, "max_abs_diff", floor, limits[name].max_abs_diff, remark)
            checks += _below(
                name, "repeat_max_abs_diff", repeats, limits[name].repeat_max_abs_diff, say("text_over", over="repeats")
            )
    return tuple(checks)


def _below(
    output: str, limit_name: str, floor: NDArray[np.float64], limit: NDArray[np.float64], over: Words
) -> list[Check]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(floor == 0, 0.0, floor / limit)
    at = int(np.argmax(ratio))
    if ratio[at] <= 1:
        return []
    largest, allowed = float(floor[at]), float(limit[at])
    words = say("noise", over=over, measured=largest, name=limit_name, limit=allowed)
    if math.isfinite(largest):
        words += say("noise.declare", name=limit_name, least=_ROOM * largest)
    else:
        words += say("noise.mend")
    return [
        Check(name="noise_floor", status=Status.WARNING, words=words, output=output, measured=largest, limit=allowed)
    ]
