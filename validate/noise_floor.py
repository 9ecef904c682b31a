"""The noise floor: how much the reference differs from itself, run again and in batches of other sizes.

No tolerance can ask for less. It is measured on the reference alone, never on the error of a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError, UsageError
from paritygate.precision import Precision
from paritygate.validate.profile import OutputProfile, by_channel
from paritygate.validate.row_digest import has_rows
from paritygate.validate.tolerance import DEFAULT_TOLERANCES, Limits, limits_for
from paritygate.validate.verdict import Check, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.recording import StoredBatch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]

__all__ = ["NoiseFloor", "OtherBatches", "measure_noise", "noise_checks", "noise_health"]

# Rows that are answered one by one, in all and of one batch.
_ROWS_ALONE = 16
_ROWS_ALONE_OF_BATCH = 4
# What a limit below the floor should be at least: a candidate has noise of its own.
_ROOM = 2.0
# Keys of stored arrays: in its batch, in another one. Names of outputs come after the first slash.
_WHOLE, _OTHER = ("head-whole", "alone-whole"), ("head", "alone")


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloor:
    """The largest difference of the reference from itself, by float output, one a channel.

    Attributes:
        repeats: Between two runs on the same batch.
        batches: Between the same row in batches of other sizes; empty where that was not measured.
        why_no_batches: Why it was not; empty if it was.
    """

    repeats: Mapping[str, NDArray[np.float64]]
    batches: Mapping[str, NDArray[np.float64]]
    why_no_batches: str = ""

    def of(self, output: str) -> NDArray[np.float64]:
        """Return the floor of an output, over repeats and batches."""
        repeats = self.repeats[output]
        return np.maximum(repeats, self.batches.get(output, repeats))

    def to_json(self) -> dict[str, Any]:
        """Return the floor as JSON data; a difference that is not finite is null."""
        return {
            "repeats": {name: _to_json(floor) for name, floor in self.repeats.items()},
            "batches": {name: _to_json(floor) for name, floor in self.batches.items()},
            "why_no_batches": self.why_no_batches,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NoiseFloor:
        """Return the floor that `to_json` wrote."""
        return cls(
            repeats={name: _from_json(floor) for name, floor in data["repeats"].items()},
            batches={name: _from_json(floor) for name, floor in data["batches"].items()},
            why_no_batches=data["why_no_batches"],
        )


def _to_json(floor: NDArray[np.float64]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in floor.tolist()]


def _from_json(floor: list[float | None]) -> NDArray[np.float64]:
    return np.array([math.inf if value is None else value for value in floor])


class OtherBatches:
    """Asks the reference for some rows again, in batches of other sizes."""

    def __init__(self, runner: Runner, outputs: tuple[str, ...], *, is_batch_fixed: bool) -> None:
        self._runner = runner
        self._outputs = outputs
        self._rows_left = 0 if is_batch_fixed else _ROWS_ALONE
        self.why_not = "its batch size is fixed" if is_batch_fixed else "no batch held several rows"

    def answers(self, batch: Batch, inputs: Arrays, outputs: Arrays, head: Arrays | None) -> dict[str, Any]:
        """Return some rows as answered in their batch and otherwise, by keys that `measure_noise` knows.

        Args:
            batch: The batch, for its rows.
            inputs: Its inputs as the model takes them.
            outputs: What was answered.
            head: What the first rows alone were answered, where they were asked.
        """
        rows = min(self._rows_left, _ROWS_ALONE_OF_BATCH, batch.rows)
        if batch.rows == 1 or not rows or not has_rows(batch):
            return {}
        self._rows_left -= rows
        try:
            alone = [self._runner.run(_row(inputs, row, batch.rows)) for row in range(rows)]
        except (BackendError, UsageError) as err:
            self._rows_left = 0
            self.why_not = f"it does not answer a row alone ({err})"
            return {}
        self.why_not = ""
        found: dict[str, Any] = {}
        for name in self._outputs:
            whole = outputs[name]
            if not whole.ndim or len(whole) != batch.rows:
                continue
            if head is not None:
                found[f"head-whole/{name}"], found[f"head/{name}"] = whole[: len(head[name])], head[name]
            found[f"alone-whole/{name}"] = whole[:rows]
            found[f"alone/{name}"] = _stacked([answer[name] for answer in alone])
        return found


def _row(inputs: Arrays, row: int, of: int) -> dict[str, NDArray[np.generic]]:
    return {name: array[row : row + 1] if array.ndim and len(array) == of else array for name, array in inputs.items()}


def _stacked(rows: list[NDArray[np.generic]]) -> NDArray[np.generic]:
    # Rows of several shapes are not those of one batch: the first alone shows that the shape is another one.
    if len({row.shape for row in rows}) > 1 or not rows[0].ndim:
        return rows[0]
    return np.concatenate(rows)


def measure_noise(
    batches: Iterable[StoredBatch], profiles: Mapping[str, OutputProfile], *, why_no_batches: str
) -> NoiseFloor:
    """Return the floor of what the reference answered twice.

    Args:
        batches: Outputs by `first/NAME` and `again/NAME`, and those that `OtherBatches` returned.
        profiles: The profile of each output.
        why_no_batches: Why there are none of these; empty if there are.
    """
    sizes = {name: profile.std.size for name, profile in profiles.items() if profile.is_float}
    repeats = {name: np.zeros(size) for name, size in sizes.items()}
    others: dict[str, NDArray[np.float64]] = {}
    for batch in batches:
        for name, size in sizes.items():
            axis = profiles[name].axis
            again = _largest(batch.outputs[f"again/{name}"], batch.outputs[f"first/{name}"], axis, size)
            repeats[name] = np.maximum(repeats[name], again)
            for whole, other in zip(_WHOLE, _OTHER, strict=True):
                if f"{other}/{name}" in batch.outputs:
                    pair = batch.outputs[f"{other}/{name}"], batch.outputs[f"{whole}/{name}"]
                    others[name] = np.maximum(others.get(name, 0.0), _largest(*pair, axis, size))
    return NoiseFloor(repeats=repeats, batches=others, why_no_batches=why_no_batches)


def _largest(
    actual: NDArray[np.generic], expected: NDArray[np.generic], axis: int | None, channels: int
) -> NDArray[np.float64]:
    """Return the largest difference by channel; infinite where shape or finiteness differ."""
    if actual.shape != expected.shape:
        return np.full(channels, np.inf)
    if actual.size == 0:
        return np.zeros(channels)
    wide_actual, wide_expected = actual.astype(np.float64), expected.astype(np.float64)
    same = (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(wide_actual - wide_expected))
    largest: NDArray[np.float64] = by_channel(np.where(np.isnan(difference), np.inf, difference), axis).max(axis=1)
    return largest


def noise_health(noise: NoiseFloor, profiles: Mapping[str, OutputProfile]) -> tuple[tuple[str, str], ...]:
    """Return what was found, as `(name, detail)` each; that rows depend on their batch, where they do."""
    if not noise.repeats:
        return (("reference_noise", "no float output: the noise floor is 0"),)
    over = f"repeats only, as {noise.why_no_batches}" if noise.why_no_batches else "repeats and batch sizes"
    worst = max(noise.repeats, key=lambda name: float(noise.of(name).max()))
    largest = float(noise.of(worst).max())
    where = f", in output {worst!r}" if largest else ""
    return (
        ("reference_noise", f"noise floor: {largest:.3g} over {over}{where}"),
        *_dependence(noise, profiles),
    )


def _limit_of_batches(profile: OutputProfile) -> NDArray[np.float64]:
    return limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile).repeat_max_abs_diff


def _dependence(noise: NoiseFloor, profiles: Mapping[str, OutputProfile]) -> Iterable[tuple[str, str]]:
    for name, floor in noise.batches.items():
        limit = _limit_of_batches(profiles[name])
        at = int(np.argmax(floor / limit))
        if floor[at] > limit[at]:
            differs = f"differs by {floor[at]:.3g}" if math.isfinite(floor[at]) else "differs in shape or finiteness"
            detail = (
                f"depends on the batch: a row of output {name!r} {differs} between batches of other sizes "
                f"(limit {limit[at]:.3g}): parity is shown for batches like those of the samples only"
            )
            yield "reference_batch", detail


def noise_checks(
    noise: NoiseFloor | None, limits: Mapping[str, Limits], profiles: Mapping[str, OutputProfile]
) -> tuple[Check, ...]:
    """Return a warning for each limit that lies below the noise floor; it changes no verdict.

    What a row of another batch is answered where rows depend on their batch is no noise: a copy answers so too, and no
    limit should make room for it.
    """
    if noise is None:
        return ()
    checks = []
    for name in noise.repeats:
        if name in limits:
            others = noise.batches.get(name)
            is_noise = others is not None and bool((others <= _limit_of_batches(profiles[name])).all())
            floor = noise.of(name) if is_noise else noise.repeats[name]
            over = "repeats and batch sizes" if is_noise else "repeats"
            checks += _below(name, "max_abs_diff", floor, limits[name].max_abs_diff, over)
            checks += _below(
                name, "repeat_max_abs_diff", noise.repeats[name], limits[name].repeat_max_abs_diff, "repeats"
            )
    return tuple(checks)


def _below(
    output: str, limit_name: str, floor: NDArray[np.float64], limit: NDArray[np.float64], over: str
) -> list[Check]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(floor == 0, 0.0, floor / limit)
    at = int(np.argmax(ratio))
    if ratio[at] <= 1:
        return []
    found, allowed = float(floor[at]), float(limit[at])
    what = (
        f"declare {limit_name} of {_ROOM * found:.2g} or more"
        if math.isfinite(found)
        else "compare in one batch size, or mend the reference"
    )
    detail = (
        f"over {over} the reference differs from itself by {found:.3g}, and {limit_name} allows {allowed:.3g}: "
        f"an exact copy of it could fail; {what}"
    )
    return [
        Check(name="noise_floor", status=Status.WARNING, detail=detail, output=output, measured=found, limit=allowed)
    ]
