"""Hold a variant to the range of FP16 where ONNX Runtime computes it in FP32, which hides an overflow."""

from __future__ import annotations

import contextlib

from paritygate.artifact import Artifact
from paritygate.errors import ParitygateError
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.run.comparisons import built_from
from paritygate.pipelines.run.evidence import EvidenceEntry
from paritygate.pipelines.run.overflow import find_overflow
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.measure.check import Check, Status, Verdict
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.recording import Recording
from paritygate.validate.words.sentence import Words, say

CHECK = "fp16_range"
_CPU, _ONNX = "cpu", "onnx"


def with_fp16_range(
    run: RunFolder, entry: EvidenceEntry, row: EvidenceEntry, *, time_limit_s: float, progress: Progress
) -> EvidenceEntry:
    """Return the entry of a variant that passes on the CPU, inconclusive if its emulated `row` may overflow on samples.

    A release that the spec declares for CPUs alone gets a warning.
    """
    result, emulated = entry.result, row.result
    is_hidden = entry.variant.startswith(f"{_ONNX}-") and entry.device == _CPU and entry.verdict == Verdict.PASS
    if not is_hidden or result is None or emulated is None or row.verdict != Verdict.FAIL:
        return entry
    words = _overflow(run, entry.variant, emulated, time_limit_s=time_limit_s, progress=progress)
    if not words:
        return entry
    is_for_cpu = set(run.resolved.spec.promote.devices or ()) == {_CPU}
    status = Status.WARNING if is_for_cpu else Status.INCONCLUSIVE
    words += () if is_for_cpu else say("fp16_range.open")
    return entry.with_result(result.with_check(Check(name=CHECK, status=status, words=words)))


def _overflow(
    run: RunFolder, name: str, emulated: ComparisonResult, *, time_limit_s: float, progress: Progress
) -> Words:
    """Return how values overflow, or why nobody knows; empty if the emulated row fails for other reasons."""
    broken = next((check for check in emulated.checks if check.name == "finite" and check.status == Status.FAIL), None)
    if broken is not None:
        return say("fp16_range", cause=broken.words)
    # Overflow on the way may leave finite outputs, which are wrong, in a few rows of all.
    artifact, rows = run.artifact(name), Recording.load(run.reference).rows
    base: Artifact | None = None
    with contextlib.suppress(ParitygateError):
        base = built_from(run, artifact)
    found = find_overflow(
        run,
        artifact,
        base,
        most_rows=rows,
        # Below the default, rounding looks like an overflow.
        least_limit=DEFAULT_TOLERANCES[artifact.variant.precision].max_abs_diff,
        time_limit_s=time_limit_s,
        progress=progress,
    )
    if found.not_checked:
        return say("fp16_range.unknown", reason=found.not_checked)
    hidden = say("fp16_range.hidden", rows=found.hidden, every=found.rows)
    return say("fp16_range", cause=hidden) if found.hidden else ()
