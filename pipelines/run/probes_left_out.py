"""Which probes the evidence of a run leaves out: a release says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paritygate.codec import to_data
from paritygate.pipelines.compare.result import ProbeResult, ProbesResult
from paritygate.pipelines.run.evidence import Evidence
from paritygate.validate.gate.rules import EdgeRule
from paritygate.validate.probes.catalogue import ALL_PROBES, in_order


def probes_not_asked(documents: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Return, by variant, the probes that were switched off or could not be asked on some device.

    A probe that has nothing to ask of a model is none of these; one of which the reference or the candidate took no
    batch is.
    """
    found: dict[str, set[str]] = {}
    for document in documents:
        for entry in document.variants:
            if entry.artifact is not None and entry.result is not None:
                found.setdefault(entry.variant, set()).update(_left_out(entry.result.probes))
    return {name: in_order(left_out) for name, left_out in found.items() if left_out}


def edge_findings(documents: Iterable[Evidence]) -> dict[str, list[dict[str, Any]]]:
    """Return, by variant, what it answers otherwise where no sample is, on some device."""
    found: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        for entry in document.variants:
            kept = found.setdefault(entry.variant, [])
            findings = () if entry.result is None else entry.result.edge_findings
            kept += [data for finding in findings if (data := to_data(finding)) not in kept]
    return {name: kept for name, kept in found.items() if kept}


def padding_findings(documents: Iterable[Evidence]) -> dict[str, list[str]]:
    """Return, by variant, what differs where a mask leaves out that nobody declared, in words, on some device."""
    found: dict[str, dict[str, None]] = {}
    for document in documents:
        for entry in document.variants:
            for check in () if entry.result is None else entry.result.padding_findings:
                found.setdefault(entry.variant, {})[check.detail] = None
    return {name: list(details) for name, details in found.items()}


def edge_not_asked(documents: Iterable[Evidence]) -> tuple[str, ...]:
    """Return the variants that were not asked, on some device, what is unlike every sample."""
    entries = (entry for document in documents for entry in document.variants)
    off = str(EdgeRule.OFF)
    return tuple(dict.fromkeys(item.variant for item in entries if item.result and item.result.probes.edge == off))


def _left_out(probes: ProbesResult) -> Iterable[str]:
    # What is not known to have been asked was not, whatever else is said of it.
    asked = {} if probes.skipped else probes.asked
    return (name for name in ALL_PROBES if name not in asked or _was_not_taken(asked[name]))


def _was_not_taken(probe: ProbeResult) -> bool:
    return not probe.batches and bool(probe.dropped or probe.unfit)
