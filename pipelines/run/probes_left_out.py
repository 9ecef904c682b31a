"""List the probes that the evidence of a run lacks, for its release."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paritygate.codec import to_data
from paritygate.pipelines.compare.result import ProbeResult, ProbesResult
from paritygate.pipelines.run.evidence import Evidence
from paritygate.validate.gate.rules import EdgeRule
from paritygate.validate.probes.catalogue import ALL_PROBES, in_order


def probes_not_asked(documents: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Return, by variant, the probes that were switched off or did not run on some device.

    A probe that does not apply to a model does not count. One whose batches reference or candidate all refused does.
    """
    names: dict[str, set[str]] = {}
    for document in documents:
        for entry in document.variants:
            if entry.artifact is not None and entry.result is not None:
                names.setdefault(entry.variant, set()).update(_left_out(entry.result.probes))
    return {name: in_order(left_out) for name, left_out in names.items() if left_out}


def edge_findings(documents: Iterable[Evidence]) -> dict[str, list[dict[str, Any]]]:
    """Return, by variant, its out-of-sample findings on any device."""
    by_variant: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        for entry in document.variants:
            rows = by_variant.setdefault(entry.variant, [])
            findings = () if entry.result is None else entry.result.edge_findings
            rows += [data for finding in findings if (data := to_data(finding)) not in rows]
    return {name: rows for name, rows in by_variant.items() if rows}


def padding_findings(documents: Iterable[Evidence]) -> dict[str, list[str]]:
    """Return, by variant, messages on differences at positions that an undeclared mask leaves out, on any device."""
    by_variant: dict[str, dict[str, None]] = {}
    for document in documents:
        for entry in document.variants:
            for check in () if entry.result is None else entry.result.padding_findings:
                by_variant.setdefault(entry.variant, {})[check.detail] = None
    return {name: list(details) for name, details in by_variant.items()}


def edge_not_asked(documents: Iterable[Evidence]) -> tuple[str, ...]:
    """Return the variants without out-of-sample probes on some device."""
    entries = (entry for document in documents for entry in document.variants)
    off = str(EdgeRule.OFF)
    return tuple(dict.fromkeys(item.variant for item in entries if item.result and item.result.probes.edge == off))


def _left_out(probes: ProbesResult) -> Iterable[str]:
    # An unknown probe counts as left out.
    results = {} if probes.skipped else probes.asked
    return (name for name in ALL_PROBES if name not in results or _was_not_taken(results[name]))


def _was_not_taken(probe: ProbeResult) -> bool:
    return not probe.batches and bool(probe.dropped or probe.unfit)
