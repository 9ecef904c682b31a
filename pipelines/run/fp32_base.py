"""Hold a variant of mixed precision to its FP32 base: a fault of the conversion must not pass by looser limits."""

from __future__ import annotations

from collections.abc import Mapping

from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.run.evidence import EvidenceEntry
from paritygate.precision import Precision, Variant
from paritygate.validate.measure.check import Check, Status, Verdict
from paritygate.validate.words.sentence import say

CHECK = "fp32_base"


def fp32_entry(variant: Variant, base: str, entries: Mapping[str, EvidenceEntry]) -> EvidenceEntry | None:
    """Return the entry of a variant's FP32 base, or of the FP32 target of its format if that fails; None for none."""
    # OpenVINO's own conversion may be wrong where that to ONNX is not.
    own = entries.get(f"{variant.format}-{Precision.FP32}")
    return own if own is not None and own.verdict == Verdict.FAIL else entries.get(base)


def with_fp32_base(result: ComparisonResult, base: str, verdict: str) -> ComparisonResult:
    """Return the result of a variant with a check that its FP32 base, whose verdict is given, does not fail."""
    if verdict in {Verdict.PASS, Verdict.INCONCLUSIVE}:
        status, words = Status.PASS, say("fp32_base", base=base)
    elif verdict == Verdict.FAIL:
        status, words = Status.FAIL, say("fp32_base.failed", base=base, verdict=verdict)
    else:
        # Nothing was seen of the base, so nothing is known of the cause.
        status, words = Status.ERROR, say("fp32_base.unmeasured", base=base)
    return result.with_check(Check(name=CHECK, status=status, words=words))
