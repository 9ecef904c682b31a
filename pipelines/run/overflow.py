"""The overflow stop: before an engine of lower precision is built, the ONNX that it is built from is looked at.

Its operators are run as a device of that precision would run them, on some of the run's samples, beside the FP32 model
that it was made from. A model that leaves the range of its precision there is not worth minutes of building; all other
differences are for the validation to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.convert.conversion import DERIVATIONS
from paritygate.errors import BackendError, ConversionError, ParitygateError, StorageError
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.process.child import ChildJob, Progress
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.precision import Precision, Variant

# What is rounded to these may leave their range; of integers, the calibration has seen to that.
OVERFLOW_PRECISIONS = frozenset({Precision.FP16, Precision.BF16})
# Enough to meet what is common, at a small part of the cost of a validation.
_MOST_ROWS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowFinding:
    """What came of the look at an ONNX model.

    Attributes:
        precision: The precision that was emulated.
        rows: How many rows were run.
        non_finite: How many of them came out NaN or infinite where FP32 is finite.
        hidden: How many more became infinite on the way, and came out finite and off by more than the limit.
        first: The id of the first of all these.
        output: The output that it was seen in.
        not_checked: Why nothing could be looked at; empty if it could.
    """

    precision: Precision
    rows: int = 0
    non_finite: int = 0
    hidden: int = 0
    first: str = ""
    output: str = ""
    not_checked: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said with an engine that was built all the same."""
        return (f"not checked for overflow before the build: {self.not_checked}",) if self.not_checked else ()

    @property
    def facts(self) -> dict[str, Any]:
        """What goes into the engine's record."""
        if self.not_checked:
            return {"overflow_check": {"not_checked": self.not_checked}}
        return {"overflow_check": {"precision": str(self.precision), "rows": self.rows}}

    def stop(self, engine: Variant) -> None:
        """Do nothing if nothing overflowed.

        Raises:
            ConversionError: Some rows did: the engine is not to be built.
        """
        if not self.non_finite + self.hidden:
            return
        ways = [
            f"{self.non_finite} of {self.rows} rows come out NaN or infinite where fp32 is finite",
            f"{self.hidden} of {self.rows} rows become infinite on the way and come out wrong",
        ]
        seen = " and ".join(way for way, count in zip(ways, (self.non_finite, self.hidden), strict=True) if count)
        where = f"first: row {self.first!r}, output {self.output!r}"
        msg = f"in {self.precision} {seen} ({where}): {engine} is not built"
        raise ConversionError(msg, hint=_hint(engine))


def _hint(engine: Variant) -> str:
    wider = f"{engine.format}-{Precision.BF16}"
    if engine.precision is Precision.FP16 and wider in DERIVATIONS:
        return f"name {wider} in targets, which has the range of fp32, or {engine.format}-{Precision.FP32}"
    return f"name {engine.format}-{Precision.FP32} in targets instead"


def find_overflow(
    run: RunFolder, base: Artifact, reference: Artifact | None, *, time_limit_s: float, progress: Progress
) -> OverflowFinding:
    """Run an ONNX artifact of lower precision as a device would, beside the FP32 artifact that it was made from.

    Of the run's samples at most 256 rows are taken, the same ones every time.

    Args:
        run: The run.
        base: What an engine is to be built from.
        reference: What that was made from; None where it is not there.
        time_limit_s: Seconds that it may take.
        progress: Told what is done.

    Returns:
        What was found. Where it could not be looked at, the reason is in it: that stops nothing.

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
            "most_rows": _MOST_ROWS,
            "limit": _limit(run, str(base.variant)),
        },
        folder=run.jobs(f"overflow-{base.variant}"),
        what=f"the emulation of {base.variant}",
        time_limit_s=time_limit_s,
        crash_error=BackendError,
    )
    try:
        found: Mapping[str, Any] = run.do(job, progress)
        with reading_result(job):
            return OverflowFinding(precision=precision, **found)
    except StorageError:
        raise
    except ParitygateError as err:
        return OverflowFinding(precision=precision, not_checked=str(err).splitlines()[0])


def _limit(run: RunFolder, base: str) -> float:
    """Return the loosest limit that the run's engines of a base are held to."""
    engines = [variant for variant in run.resolved.variants if _is_of(variant, base)] or [Variant.parse(base)]
    return max(run.resolved.rules(variant).tolerance.max_abs_diff for variant in engines)


def _is_of(variant: Variant, base: str) -> bool:
    derivation = DERIVATIONS.get(str(variant))
    return derivation is not None and derivation.base == base
