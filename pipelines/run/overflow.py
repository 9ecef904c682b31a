"""Check the ONNX model of a lower-precision engine for overflow before minutes are spent on building it.

Some of the run's samples run through its operators as on a device of that precision, and through its FP32 base. Only
values outside the range of the precision stop the build. Validation judges all other differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.convert.conversion import DERIVATIONS
from paritygate.errors import ConversionError, ParitygateError, StorageError
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.process.child import ChildJob, Progress
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.precision import Precision, Variant

# Rounding to these may overflow. Calibration chooses the range of integers.
OVERFLOW_PRECISIONS = frozenset({Precision.FP16, Precision.BF16})
# Enough for common rows, at a small part of the cost of a validation.
_MOST_ROWS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowFinding:
    """The outcome of an overflow check."""

    precision: Precision
    rows: int = 0  # that ran
    non_finite: int = 0  # of these, came out NaN or infinite where FP32 is finite
    hidden: int = 0  # others that became infinite on the way, and came out finite and off by more than the limit
    first: str = ""  # the id of the first of all these
    output: str = ""  # of the first one
    not_checked: str = ""  # why the check was not possible

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on an engine that was built without the check."""
        return (f"not checked for overflow before the build: {self.not_checked}",) if self.not_checked else ()

    @property
    def facts(self) -> dict[str, Any]:
        """The entry in the engine's record."""
        if self.not_checked:
            return {"overflow_check": {"not_checked": self.not_checked}}
        return {"overflow_check": {"precision": str(self.precision), "rows": self.rows}}

    def stop(self, engine: Variant) -> None:
        """Raise a `ConversionError` if rows overflowed."""
        if not self.non_finite + self.hidden:
            return
        ways = [
            f"{self.non_finite} of {self.rows} rows come out NaN or infinite where fp32 is finite",
            f"{self.hidden} of {self.rows} rows become infinite on the way and come out wrong",
        ]
        seen = " and ".join(way for way, count in zip(ways, (self.non_finite, self.hidden), strict=True) if count)
        where = f"first: row {self.first!r}, output {self.output!r}"
        raise ConversionError(f"in {self.precision} {seen} ({where}): {engine} is not built", hint=_hint(engine))


def _hint(engine: Variant) -> str:
    wider = f"{engine.format}-{Precision.BF16}"
    if engine.precision is Precision.FP16 and wider in DERIVATIONS:
        return f"name {wider} in targets, which has the range of fp32, or {engine.format}-{Precision.FP32}"
    return f"name {engine.format}-{Precision.FP32} in targets instead"


def find_overflow(  # noqa: PLR0913 - both models, and how much of them runs
    run: RunFolder,
    base: Artifact,
    reference: Artifact | None,
    *,
    most_rows: int = _MOST_ROWS,
    least_limit: float = 0.0,
    time_limit_s: float,
    progress: Progress,
) -> OverflowFinding:
    """Run at most so many rows, always the same, through a lower-precision ONNX artifact and its FP32 base.

    An output of a row that overflowed on the way is wrong beyond the declared limit and `least_limit`. Where the check
    is not possible, as without that `reference`, the finding has the reason, and nothing stops.

    Raises:
        StorageError: The disk is full.
    """
    precision = base.variant.precision
    if reference is None:
        return OverflowFinding(precision=precision, not_checked="the fp32 model it was made from is not in the run")
    if reference.digest != base.made_by["base"]["digest"]:
        reason = f"{reference.variant} is not the one that {base.variant} was made from"
        return OverflowFinding(precision=precision, not_checked=reason)
    job = ChildJob(
        name="overflow",
        args={
            "reference": to_data(artifact_model(reference)),
            "candidate": str(base.path),
            "precision": str(precision),
            "samples": to_data(run.resolved.samples(run.samples_path)),
            "most_rows": most_rows,
            "limit": max(least_limit, _limit(run, str(base.variant))),
        },
        folder=run.jobs(f"overflow-{base.variant}"),
        what=f"the emulation of {base.variant}",
        time_limit_s=time_limit_s,
    )
    try:
        data: Mapping[str, Any] = run.do(job, progress)
        with reading_result(job):
            return OverflowFinding(precision=precision, **data)
    except StorageError:
        raise
    except ParitygateError as err:
        return OverflowFinding(precision=precision, not_checked=str(err).splitlines()[0])


def _limit(run: RunFolder, base: str) -> float:
    """Return the loosest limit of the run's engines that are built from a base."""
    engines = [variant for variant in run.resolved.variants if _is_of(variant, base)] or [Variant.parse(base)]
    return max(run.resolved.rules(variant).tolerance.max_abs_diff for variant in engines)


def _is_of(variant: Variant, base: str) -> bool:
    derivation = DERIVATIONS.get(str(variant))
    return derivation is not None and derivation.base == base
