"""Which probes the evidence of a run leaves out: a release says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paritygate.validate.probes.catalogue import ALL_PROBES, in_order

__all__ = ["edge_findings", "edge_not_asked", "probes_not_asked"]


def probes_not_asked(documents: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return, by variant, the probes that were switched off or could not be asked on some device.

    A probe that has nothing to ask of a model is none of these; one of which the reference or the candidate took no
    batch is. Evidence from before there were probes asked none.
    """
    found: dict[str, set[str]] = {}
    for document in documents:
        for entry in document["variants"]:
            if entry["artifact"] is not None and "checks" in entry:
                found.setdefault(entry["variant"], set()).update(_left_out(entry.get("probes")))
    return {name: in_order(left_out) for name, left_out in found.items() if left_out}


def edge_findings(documents: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by variant, what it answers otherwise where no sample is, on some device."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        for entry in document["variants"]:
            kept = found.setdefault(entry["variant"], [])
            # Evidence of before there were findings has none.
            kept += [finding for finding in entry.get("edge_findings", ()) if finding not in kept]
    return {name: kept for name, kept in found.items() if kept}


def edge_not_asked(documents: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the variants that were not asked, on some device, what is unlike every sample."""
    entries = (entry for document in documents for entry in document["variants"])
    return tuple(dict.fromkeys(item["variant"] for item in entries if (item.get("probes") or {}).get("edge") == "off"))


def _left_out(probes: Mapping[str, Any] | None) -> Iterable[str]:
    # What is not known to have been asked was not, whatever else is said of it.
    asked = {} if probes is None or probes["skipped"] else probes["asked"]
    return (name for name in ALL_PROBES if name not in asked or _was_not_taken(asked[name]))


def _was_not_taken(probe: Mapping[str, Any]) -> bool:
    return not probe["batches"] and bool(probe["dropped"] or probe["unfit"])
