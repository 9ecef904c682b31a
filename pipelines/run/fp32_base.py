"""Hold a variant of mixed precision to its FP32 base: a fault of the conversion must not pass by looser limits."""

from __future__ import annotations

from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.validate.measure.check import Check, Status, Verdict
from paritygate.validate.words.sentence import say

CHECK = "fp32_base"


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
