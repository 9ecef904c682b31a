"""Channels that cannot be judged, because rounding is as large as their spread, or nothing varies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from paritygate.precision import Precision
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.decisions import Decision
from paritygate.validate.measure.limits import floor_of_bulk, is_declared, limits_for
from paritygate.validate.measure.precision_steps import LEAST_STEPS
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.robust_scale import LEAST_VARYING
from paritygate.validate.measure.tolerance import Tolerance
from paritygate.validate.words.sentence import Words, say

# The most that arithmetic may move a value, as a share of its channel's spread.
_MOST_OF_SPREAD = 0.25
# The same as a share of the distance of its few largest values, for channels whose common values are all alike.
_MOST_OF_TAIL = 1 / 16
# Behind a bounded function in FP32: the same as a share of a channel's size, or of its largest value. With more, a
# candidate that is 1 % off passes, because the limit of the mean is an eighth of the floor.
_MOST_OF_SIZE, _MOST_OF_LARGEST = 0.08, 0.01
_NAMED = 3


def resolution_checks(
    tolerance: Tolerance,
    profiles: Mapping[str, OutputProfile],
    decisions: Collection[Decision] = (),
    columns: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Check, ...]:
    """Return a check for each float output with channels that cannot be judged or hardly vary.

    A channel can be judged if `max_abs_diff` or a decision on it is declared.
    """
    named = columns or {}
    return tuple(
        check
        for profile in profiles.values()
        if profile.is_float
        for check in _checks(
            tolerance, profile, [rule for rule in decisions if rule.output == profile.name], named.get(profile.name, ())
        )
    )


def _checks(
    tolerance: Tolerance, profile: OutputProfile, decisions: Collection[Decision], columns: Sequence[str]
) -> Iterator[Check]:
    floor = floor_of_bulk(tolerance, profile)
    spread = profile.own_spread
    has_spread = spread > 0
    is_declared_near = is_declared(tolerance, profile, "max_abs_diff")
    most = _most(tolerance, profile, floor)
    is_lost = has_spread & (floor > most) & ~_is_read(profile, decisions) & ~is_declared_near
    if is_lost.any():
        yield _not_resolved(tolerance, profile, _named(profile, is_lost, columns), (is_lost, floor, most))
    # So few values never have a spread, and the check of rows reports that.
    values = profile.values // max(1, profile.channels)
    has_spread |= is_declared_near
    if not has_spread.all() and values >= LEAST_VARYING:
        count = int(np.count_nonzero(~has_spread))
        names = _named(profile, ~has_spread, columns)
        gap = _where_zeros_pass(tolerance, profile, ~has_spread)
        yield Check(
            name="variation",
            status=Status.WARNING,
            words=say("variation", channels=names, count=count, least=LEAST_VARYING) + gap,
            output=profile.name,
            measured=count,
        )


def _where_zeros_pass(tolerance: Tolerance, profile: OutputProfile, chosen: NDArray[np.bool_]) -> Words:
    """Return the remark on a limit that is larger than every value of its channel; empty without one."""
    limits = limits_for(tolerance, profile).max_abs_diff
    places = np.flatnonzero(chosen & (profile.max_abs > 0) & (limits >= profile.max_abs))
    if not places.size:
        return ()
    place = places[int(np.argmax((limits / np.maximum(profile.max_abs, np.finfo(float).tiny))[places]))]
    return say(
        "variation.zeros_pass",
        channel=int(place),
        limit=limits[place],
        precision=tolerance.precision,
        largest=profile.max_abs[place],
    )


def _most(tolerance: Tolerance, profile: OutputProfile, floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest floor with which each channel can be judged."""
    most = np.maximum(_MOST_OF_SPREAD * profile.own_spread, _MOST_OF_TAIL * profile.tail)
    if tolerance.precision is not Precision.FP32:
        return most
    size = np.maximum(np.abs(profile.center), profile.own_spread)
    seen = np.maximum(_MOST_OF_SIZE * size, _MOST_OF_LARGEST * profile.max_abs)
    is_behind_bounded = (profile.activation_floor > 0) & (floor == profile.activation_floor)
    return np.where(is_behind_bounded, np.minimum(most, seen), most)


def _is_read(profile: OutputProfile, decisions: Collection[Decision]) -> NDArray[np.bool_]:
    """Return which channels a decision reads: for a threshold, those whose values can reach it."""
    is_read = np.zeros(profile.channels, dtype=bool)
    for rule in decisions:
        is_read |= not rule.has_threshold or profile.channels == 1 or abs(rule.threshold) <= profile.max_abs
    return is_read


def _not_resolved(
    tolerance: Tolerance,
    profile: OutputProfile,
    names: Words,
    found: tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]],
) -> Check:
    """Return the check of lost channels; `found` has which are lost, their floors and the largest floors allowed."""
    is_lost, floor, most = found
    spread = profile.own_spread
    worst = int(np.argmax(np.where(is_lost, floor / np.maximum(most, np.finfo(float).tiny), 0.0)))
    cause = say("resolution.steps", steps=LEAST_STEPS, precision=tolerance.precision)
    if floor[worst] == profile.activation_floor[worst]:
        cause = say("resolution.implementations")
    elif profile.noise[worst] > 0 and floor[worst] <= 2 * profile.noise[worst]:
        cause = say("resolution.noise")
    words = say(
        "resolution",
        precision=tolerance.precision,
        channels=names,
        cause=cause,
        floor=floor[worst],
        spread=spread[worst],
    )
    return Check(
        name="resolution",
        status=Status.INCONCLUSIVE,
        words=words,
        output=profile.name,
        measured=float(floor[worst]),
        limit=float(most[worst]),
    )


def _named(profile: OutputProfile, chosen: NDArray[np.bool_], columns: Sequence[str]) -> Words:
    """Return the names of the first chosen channels, and their number."""
    if profile.channels == 1:
        return say("channels.all")
    places = np.flatnonzero(chosen)
    names = [columns[place] if place < len(columns) else str(place) for place in places[:_NAMED]]
    if places.size <= _NAMED:
        return say("channels", count=places.size, names=names)
    return say("channels.first", count=places.size, total=profile.channels, names=names)
