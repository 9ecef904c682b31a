"""Decide whether two releases are the same: their artifacts, and the rules by which they passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paritygate.files import digest_of_json


def identity_of(variants: Sequence[Mapping[str, Any]], despite: str, trust: str = "") -> str | None:
    """Return one digest over the artifacts of a release and the findings about them; None if a part is unknown.

    Reports, tool versions, reasons and times are left out: they differ between two runs with the same findings. The
    order of `variants` counts, the preferred one first.
    """
    entries = [_entry(variant) for variant in variants]
    if any(item["rules"] is None for entry in entries for item in entry["evidence"]):
        return None
    return digest_of_json({"variants": entries, "despite": despite, **({"trust": trust} if trust else {})})


def _entry(variant: Mapping[str, Any]) -> dict[str, Any]:
    evidence = variant["evidence"]
    items = [] if evidence is None else [evidence, *evidence.get("also", ())]
    keys = ("verdict", "kind", "device", "rules")
    return {
        **{key: variant[key] for key in ("name", "role", "digest")},
        "evidence": [{**{key: item.get(key) for key in keys}, "devices": item.get("devices", [])} for item in items],
    }
