"""Hold a variant of mixed precision to its FP32 base: a fault of the conversion must not pass by looser limits."""

from __future__ import annotations

from dataclasses import replace

from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.validate.measure.check import Check, Status, Verdict, exit_code_of, verdict_of
from paritygate.validate.words.sentence import say

CHECK = "fp32_base"


def with_fp32_base(result: ComparisonResult, base: str, verdict: str) -> ComparisonResult:
    """Return the result of a variant with a check that its FP32 base, whose verdict is given, does not fail."""
    is_sound = verdict in {Verdict.PASS, Verdict.INCONCLUSIVE}
    words = say("fp32_base" if is_sound else "fp32_base.failed", base=base, verdict=verdict)
    check = Check(name=CHECK, status=Status.PASS if is_sound else Status.FAIL, words=words)
    checks = [*result.checks, check]
    judged = verdict_of(checks)
    return replace(result, checks=checks, verdict=str(judged), exit_code=int(exit_code_of(judged)))
