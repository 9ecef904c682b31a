"""What makes two releases the same: what was released, and by which rules it was found to be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paritygate.files import digest_of_json


def identity_of(variants: Sequence[Mapping[str, Any]], despite: str, trust: str = "") -> str | None:
    """Return one digest over the artifacts of a release and what was found about them; None if that is not known.

    Reports, tool versions, reasons and times are left out: they differ between two runs that found the same.

    Args:
        variants: The variants as a manifest holds them, the preferred one first.
        despite: Why it was released although its run failed; empty if the run passed.
        trust: Digest of the pack whose evidence is trusted; empty where all of it was made here.
    """
    entries = [_entry(variant) for variant in variants]
    # Manifests of 0.1.0 do not say by which rules the evidence was judged.
    if any(found["rules"] is None for entry in entries for found in entry["evidence"]):
        return None
    return digest_of_json({"variants": entries, "despite": despite, **({"trust": trust} if trust else {})})


def identity_in(manifest: Mapping[str, Any]) -> str | None:
    """Return the identity that a manifest names, or that follows from it where it is one of 0.1.0."""
    if "identity" in manifest:
        named: str | None = manifest["identity"]
        return named
    return identity_of(manifest["variants"], "")


def _entry(variant: Mapping[str, Any]) -> dict[str, Any]:
    evidence = variant["evidence"]
    found = [] if evidence is None else [evidence, *evidence.get("also", ())]
    kept = ("verdict", "kind", "device", "rules")
    return {
        **{key: variant[key] for key in ("name", "role", "digest")},
        "evidence": [{**{key: item.get(key) for key in kept}, "devices": item.get("devices", [])} for item in found],
    }
