"""What `compare` is asked, on the command line or in Python, as a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import with_endpoint_limits, with_provider, with_signatures, with_takes
from paritygate.precision import parse_precision
from paritygate.text import meant, nearest_first
from paritygate.validate.detections.rule import parse_match_rule
from paritygate.validate.gate.decisions import parse_decision, with_constants
from paritygate.validate.gate.limits.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.gold.rule import parse_gold_rule
from paritygate.validate.probes.catalogue import ALL_PROBES, in_order

if TYPE_CHECKING:
    from paritygate.models.source import ModelRef
    from paritygate.validate.probes.roles import DeclaredRole
    from paritygate.validate.samples.source import SampleSource

__all__ = ["check_choice", "check_least", "comparison_of", "known_probes"]

_NON_FINITE = ("refuse", "match")
_DEVICES = ("cpu", "cuda")


def comparison_of(  # noqa: PLR0913 - one argument an option of the command
    reference: ModelRef,
    candidate: ModelRef,
    samples: SampleSource,
    *,
    precision: str,
    decisions: Iterable[str],
    constant_decisions: Mapping[str, str],
    tolerance: Mapping[str, Any],
    repeat: int,
    outputs: Sequence[str],
    argmax_of: Mapping[str, str],
    gold: Iterable[str],
    matches: Iterable[str],
    ignored: Mapping[str, str],
    axes: Mapping[str, int],
    min_cosine_similarity: Mapping[str, float],
    valid_where: Mapping[str, str],
    roles: Mapping[str, DeclaredRole],
    non_finite: str,
    min_rows: int,
    seed: int,
    emulate: bool,
    probes: Iterable[str] | None,
    edge: str,
    failures: Path | None,
    device: str,
    provider: str | None,
    signatures: Mapping[str, str],
    takes: Mapping[str, str],
    endpoint: Mapping[str, float],
) -> ComparisonJob:
    """Return the comparison; the arguments are those of the command, and rules are written as there.

    Raises:
        UsageError: One of them is not allowed, or they do not go together.
    """
    check_choice("non_finite", non_finite, _NON_FINITE)
    check_choice("device", device, _DEVICES)
    check_choice("edge", edge, tuple(map(str, EdgeRule)))
    for name, value, least in (("repeat", repeat, 1), ("min_rows", min_rows, 1), ("seed", seed, 0)):
        check_least(name, value, least)
    for output, cosine in min_cosine_similarity.items():
        if not -1 <= cosine <= 1:
            msg = f"min_cosine_similarity {output}={cosine:g} is no cosine similarity (allowed: -1 to 1)"
            raise UsageError(msg, hint=f"write for example {output}=0.999")
    kind = parse_precision(precision)
    reference, candidate = with_signatures(reference, candidate, signatures)
    reference, candidate = with_takes(reference, candidate, takes)
    reference, candidate = with_endpoint_limits((reference, candidate), endpoint)
    return ComparisonJob(
        reference=reference,
        candidate=with_provider(candidate, provider, device=device, is_emulated=emulate),
        samples=samples,
        rules=GateRules(
            tolerance=parse_tolerance(kind, tolerance),
            decisions=with_constants(map(parse_decision, decisions), constant_decisions),
            outputs=tuple(outputs),
            argmax_of=dict(argmax_of),
            gold=tuple(map(parse_gold_rule, gold)),
            matches=tuple(map(parse_match_rule, matches)),
            ignored=dict(ignored),
            axes=dict(axes),
            min_cosine_similarity=dict(min_cosine_similarity),
            valid_where=dict(valid_where),
            passes=repeat,
            min_rows=min_rows,
            is_non_finite_declared=non_finite == "match",
            probes=tuple(ALL_PROBES) if probes is None else known_probes(probes),
            edge=EdgeRule(edge),
            seed=seed,
        ),
        is_emulated=emulate,
        failures=failures,
        roles=dict(roles),
        device=device,
    )


def known_probes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the probes of these names in the order of the table; `none` alone is none of them.

    Raises:
        UsageError: A name is no probe.
    """
    found = tuple(names)
    if found == ("none",):
        return ()
    for name in found:
        if name not in ALL_PROBES:
            msg = f"{name!r} is no probe (allowed: none, {', '.join(nearest_first(name, ALL_PROBES))})"
            raise UsageError(msg, hint=f"name probes of these, such as batches,masks{meant(name, ALL_PROBES)}")
    return in_order(found)


def check_choice(what: str, value: str, allowed: Sequence[str]) -> None:
    """Check that a value is one of those allowed.

    Raises:
        UsageError: It is not.
    """
    if value not in allowed:
        msg = f"{what} {value!r} is not known (allowed: {', '.join(allowed)})"
        raise UsageError(msg, hint=f"write for example {what}={allowed[0]!r}")


def check_least(what: str, value: int, least: int) -> None:
    """Check that a number is not below the least that is allowed.

    Raises:
        UsageError: It is.
    """
    if value < least:
        msg = f"{what} {value} is not allowed (allowed: {least} and more)"
        raise UsageError(msg, hint=f"write for example {what}={least}")
