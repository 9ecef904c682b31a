"""What a spec asks of its outputs, by metrics, matches and what is ignored: that it refers to something and fits."""

from __future__ import annotations

from paritygate.errors import UsageError
from paritygate.pipelines.spec import ResolvedSpec
from paritygate.validate.gold.measurement import check_gold_rules
from paritygate.validate.matching.measurement import check_match_rules
from paritygate.validate.reference import check_some_left

__all__ = ["check_output_uses"]


def check_output_uses(resolved: ResolvedSpec) -> None:
    """Do nothing if nothing is asked of an output that is ignored, matched otherwise, or not there.

    What outputs there are is known only where the spec says its signature; the gate looks again.

    Raises:
        UsageError: It is; the message says which.
    """
    origin, ignored = resolved.origin, resolved.ignored
    uses = {rule.output: f"decision {rule}" for rule in resolved.decisions}
    uses |= {name: "argmax_of" for pair in resolved.spec.argmax_of.items() for name in pair}
    uses |= {rule.output: f"gold {rule}" for rule in resolved.gold}
    matched = {name: f"match {rule.name!r}" for rule in resolved.matches for name in rule.outputs}
    for name, use in {**uses, **matched}.items():
        if name in ignored:
            msg = f"spec {origin}: {use} is on {name!r}, and outputs says to ignore it"
            raise UsageError(msg, hint="an output that is asked for anything is compared")
    signature = resolved.signature
    if signature is None:
        return
    names = [spec.name for spec in signature.outputs]
    for name in ignored:
        if name not in names:
            msg = f"spec {origin}: outputs names {name!r}, which is no output (outputs: {', '.join(names)})"
            raise UsageError(msg, hint="name one of model.outputs")
    left = [name for name in names if name not in ignored]
    check_some_left(left, ignored)
    check_match_rules(resolved.matches, left, uses)
    check_gold_rules(resolved.gold, [name for name in left if name not in matched])
