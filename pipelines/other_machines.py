"""Evidence of several machines: what was found about the same run on other devices than that of the last validation.

A run folder may move from machine to machine. Each validation writes the evidence of its device, and keeps that of the
others with it. It stays evidence as long as it is about the reference that is there, and for each variant as long as it
is about the file that is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paritygate.files import read_json

__all__ = ["OTHERS", "documents_by_device", "entries_about", "evidence_of_others", "is_evidence"]

OTHERS = "others"


def is_evidence(document: object) -> bool:
    """Return whether data has the form of the evidence of one device."""
    try:
        return (
            isinstance(document, dict)
            and isinstance(document["device"], str)
            and isinstance(document["reference"]["digest"], str)
            and "cores" in document["machine"]
            and all(_is_entry(entry) for kind in ("variants", "emulated") for entry in document[kind])
        )
    except (KeyError, TypeError):
        return False


def _is_entry(entry: Mapping[str, Any]) -> bool:
    # What passed says on which device, for which file.
    is_complete = entry["verdict"] != "pass" or {"device", "artifact"} <= entry.keys()
    return is_complete and isinstance(entry["variant"], str) and isinstance(entry["evidence"], str)


def evidence_of_others(path: Path, *, device: str, reference: str) -> list[dict[str, Any]]:
    """Return the evidence of other devices that is to be kept with new evidence, the newest first, one a device.

    Args:
        path: Where the evidence of the run is, before the new one is written; there may be none.
        device: The device of the new evidence.
        reference: Digest of the reference that is there: what is about another one is left out, and so is what is
            damaged.
    """
    try:
        last = read_json(path)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return []
    if not isinstance(last, dict):
        return []
    others = last.get(OTHERS) or ()
    own = {key: value for key, value in last.items() if key != OTHERS}
    found: dict[str, dict[str, Any]] = {}
    for document in (own, *(others if isinstance(others, list) else ())):
        if is_evidence(document) and document["reference"]["digest"] == reference and document["device"] != device:
            found.setdefault(document["device"], document)
    return list(found.values())


def documents_by_device(evidence: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the evidence of each device, that of the last validation first."""
    found: dict[str, Mapping[str, Any]] = {evidence["device"]: evidence}
    for document in evidence.get(OTHERS, ()):
        found.setdefault(document["device"], document)
    return found


def entries_about(document: Mapping[str, Any], artifacts: Mapping[str, str]) -> dict[str, Any]:
    """Return the evidence of another device, as far as it is about the files that are here.

    What was not run there has no file: that it was not is still so.

    Args:
        document: The evidence of the device.
        artifacts: The digest of each artifact that is here, by variant.
    """

    def current(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [item for item in entries if item.get("artifact") in {None, artifacts.get(item["variant"])}]

    return {
        **document,
        "variants": current(document["variants"]),
        "emulated": current(document["emulated"]),
    }
