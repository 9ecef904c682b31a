"""Evidence of several machines: what was found about the same run on other devices than that of the last validation.

A run folder may move from machine to machine. Each validation writes the evidence of its device, and keeps that of the
others with it. It stays evidence as long as it is about the reference that is there, and for each variant as long as it
is about the file that is there, judged by the rules that the spec asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.errors import ParitygateError
from paritygate.files import read_json

# The spec imports this module, and the rules the spec.
if TYPE_CHECKING:
    from paritygate.pipelines.run.judged_by import RunRules

__all__ = ["OTHERS", "documents_by_device", "entries_about", "evidence_of_others", "is_evidence"]

OTHERS = "others"
_KINDS = ("variants", "emulated")


def is_evidence(document: object) -> bool:
    """Return whether data has the form of the evidence of one device."""
    # The spec imports this module, and what is wrong with evidence is said as it is of a spec.
    from paritygate.pipelines.run.evidence_shape import has_shape_of_evidence

    return (
        isinstance(document, dict)
        and has_shape_of_evidence(document)
        and "cores" in document["machine"]
        and all(kind in document and all(map(_is_complete, document[kind])) for kind in _KINDS)
    )


def _is_complete(entry: Mapping[str, Any]) -> bool:
    # What passed says on which device, for which file.
    return entry["verdict"] != "pass" or {"device", "artifact"} <= entry.keys()


def evidence_of_others(path: Path, *, device: str, reference: str, rules: RunRules) -> list[dict[str, Any]]:
    """Return the evidence of other devices that is to be kept with new evidence, the newest first, one a device.

    Args:
        path: Where the evidence of the run is, before the new one is written; there may be none.
        device: The device of the new evidence.
        reference: Digest of the reference that is there: what is about another one is left out, and so is what is
            damaged.
        rules: The rules that the spec asks for: of each document, what was judged by others is left out. The document
            itself stays: that there is such a device is still so, and nothing stands in for it.
    """
    try:
        last = read_json(path)
    except (OSError, ValueError):
        return []
    if not isinstance(last, dict):
        return []
    others = last.get(OTHERS) or ()
    own = {key: value for key, value in last.items() if key != OTHERS}
    found: dict[str, dict[str, Any]] = {}
    for document in (own, *(others if isinstance(others, list) else ())):
        if is_evidence(document) and document["reference"]["digest"] == reference and document["device"] != device:
            found.setdefault(document["device"], document)
    return [_allowed(document, rules) for document in found.values()]


def _allowed(document: Mapping[str, Any], rules: RunRules) -> dict[str, Any]:
    def is_allowed(entry: Mapping[str, Any], kind: str) -> bool:
        try:
            return rules.allow(entry, document["device"], is_emulated=kind == "emulated")
        except ParitygateError:
            # What cannot be told is not kept.
            return False

    return {**document, **{kind: [entry for entry in document[kind] if is_allowed(entry, kind)] for kind in _KINDS}}


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
