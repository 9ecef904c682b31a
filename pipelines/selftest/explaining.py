"""Why a fault was missed, and what would catch it, in words, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from paritygate.pipelines.selftest.result import EffectResult

__all__ = ["why_missed"]


def why_missed(
    effects: Sequence[EffectResult], *, reached_by: str, probes_off: Sequence[str], at_edge: Sequence[str] = ()
) -> str:
    """Return why, and what would catch it.

    Args:
        effects: How far the fault changes each output.
        reached_by: The inputs that show it; empty where any does.
        probes_off: The probes that were not asked.
        at_edge: The probes that find it where no sample is, which fails nothing by itself.
    """
    if at_edge:
        return (
            f"an edge finding of {', '.join(at_edge)}: no sample is like what shows it, and edge: fail would catch it"
        )
    off = f"; probes that were not asked: {', '.join(probes_off)}" if probes_off else ""
    if all(effect.is_rounding for effect in effects):
        wanted = f"; what would show it: {reached_by}" if reached_by else ", so on what was asked it is no fault"
        return f"no sample and no probe has an answer that changes beyond rounding{wanted}{off}"
    worst = max(effects, key=lambda effect: (effect.max_abs_diff is None, effect.in_limits or 0.0))
    if worst.max_abs_diff is None:
        return f"{worst.output} changes to or from NaN or infinity ({worst.where}), which is not held against it{off}"
    size = f"{worst.output} changes by {worst.max_abs_diff:.3g} at most ({worst.where})"
    if worst.in_limits is None:
        return f"{size}, in answers that are held to finiteness and contract alone{off}"
    if worst.in_limits > 1:
        return f"{size}, {worst.in_limits:.2g} limits of the samples: the limit is wider where answers are larger{off}"
    wanted = f"; what shows it better: {reached_by}" if reached_by else ""
    return (
        f"{size}, {worst.in_limits:.2g} of the limit: "
        f"a max_abs_diff below {worst.max_abs_diff:.2g} would catch it{wanted}{off}"
    )
