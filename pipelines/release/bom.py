"""Describe a release as a CycloneDX ML-BOM: its files, samples, precisions and parity figures."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.precision import Variant

_NAMESPACE = uuid.UUID("5f1f3c7e-5d0b-4c5b-9a43-0c1e9a8f2b6d")
_FIGURES = ("mismatches", "mismatch_rate_upper_95", "max_abs_diff", "mean_abs_diff")


def bom_of(details: ReleaseDetails) -> dict[str, Any]:
    """Return the bill of materials of a release as JSON data of CycloneDX 1.6, alike each time."""
    manifest, provenance = details.manifest, details.manifest.get("provenance") or {}
    tools = provenance.get("tools") or {}
    ours = {"type": "application", "name": "paritygate", "version": str(tools.get("paritygate", "unknown"))}
    others = sorted((name, version) for name, version in tools.items() if name != "paritygate")
    variants = [_variant(details, entry) for entry in manifest["variants"]]
    named = {"source": provenance.get("source"), "reference": provenance.get("reference")}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, str(details.record.manifest))}",
        "version": 1,
        "metadata": {
            "timestamp": details.record.time,
            "tools": {"components": [ours]},
            "component": {
                "type": "machine-learning-model",
                "bom-ref": "release",
                "name": details.model,
                "version": str(details.version),
                "hashes": _hashes(details.record.manifest),
                "properties": _properties(named),
            },
        },
        "components": [
            *variants,
            {
                "type": "data",
                "bom-ref": "samples",
                "name": "samples",
                "data": [{"type": "dataset", "name": "samples"}],
                "properties": _properties({"digest": provenance.get("samples")}),
            },
            *({"type": "library", "bom-ref": name, "name": name, "version": version} for name, version in others),
        ],
        "dependencies": [
            {"ref": "release", "dependsOn": [variant["bom-ref"] for variant in variants]},
            *({"ref": variant["bom-ref"], "dependsOn": ["samples"]} for variant in variants),
        ],
    }


def _variant(details: ReleaseDetails, entry: Mapping[str, Any]) -> dict[str, Any]:
    name, is_converted = str(entry["name"]), entry["role"] == "converted"
    limits = ((details.manifest.get("provenance") or {}).get("tolerances") or {}).get(name) or {}
    facts = {
        "role": entry["role"],
        "digest": entry["digest"],
        # How it is quantized, if it is.
        "format": Variant.parse(name).format if is_converted else None,
        "precision": str(Variant.parse(name).precision) if is_converted else None,
        "verdict": (entry["evidence"] or {}).get("verdict", "not compared"),
        **{f"limit:{limit}": value for limit, value in limits.items()},
    }
    files = details.manifest["files"].items()
    return {
        "type": "machine-learning-model",
        "bom-ref": f"variant:{name}",
        "name": f"{details.model}/{name}",
        "version": str(details.version),
        "components": [
            {"type": "file", "name": file.removeprefix(f"{name}/"), "hashes": _hashes(digest)}
            for file, digest in files
            if file.startswith(f"{name}/")
        ],
        "modelCard": {
            "modelParameters": {"datasets": [{"ref": "samples"}]},
            "quantitativeAnalysis": {"performanceMetrics": list(_figures(details, name))},
        },
        "properties": _properties(facts),
    }


def _figures(details: ReleaseDetails, variant: str) -> Iterator[dict[str, str]]:
    for item in details.numbers:
        if item["variant"] == variant:
            where = f"{item['output']}, {item['rows']} rows, {item['device']}, {item['evidence']}"
            for name in _FIGURES:
                if item.get(name) is not None:
                    yield {"type": name, "value": str(item[name]), "slice": where}


def _hashes(digest: str | None) -> list[dict[str, str]]:
    return [] if digest is None else [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]


def _properties(facts: Mapping[str, object]) -> list[dict[str, str]]:
    return [
        {"name": f"paritygate:{name}", "value": fact if isinstance(fact, str) else json.dumps(fact)}
        for name, fact in facts.items()
        if fact is not None
    ]
