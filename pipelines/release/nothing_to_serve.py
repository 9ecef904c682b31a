"""The error of a release that holds nothing which a server reads: what there is, and how to come to what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.errors import UsageError
from paritygate.files import read_json
from paritygate.models.source import SourceKind
from paritygate.pipelines.release.repository.candidate import EVIDENCE_FILE
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.serving.triton.backends import BACKENDS
from paritygate.pipelines.spec.fitting import fitting_targets
from paritygate.precision import Variant


def nothing_to_serve(repository: Path, details: ReleaseDetails, *, formats: Sequence[str], server: str) -> UsageError:
    """Return the error of a release, whose files are verified, of which a server reads nothing.

    Args:
        repository: The root of the repository.
        details: The release.
        formats: The formats that the server serves.
        server: What the server is called, for the message.
    """
    variants = [entry["name"] for entry in details.manifest["variants"]]
    msg = (
        f"version {details.version} of {details.model!r} holds nothing that {server} serves: {', '.join(variants)} "
        f"(allowed: {', '.join(formats)})"
    )
    source = _source_of(details.folder / EVIDENCE_FILE)
    if source is None:
        return UsageError(msg, hint=_add(f"{formats[0]}-fp32"))
    made = [name for name in fitting_targets(SourceKind(source["kind"])) if Variant.parse(name).format in formats]
    if made:
        others = ", ".join(dict.fromkeys(Variant.parse(name).format for name in made))
        return UsageError(f"{msg}; its source {source['text']} can become {others}", hint=_add(made[0]))
    msg = f"{msg}; its source {source['text']}, a model of kind {source['kind']!r}, can become none of these"
    if not any(Variant.parse(entry["name"]).format in BACKENDS for entry in _converted(details)):
        return UsageError(msg, hint="release the same model from a source that can become one of them")
    triton = command_on(repository, "triton", details.model, str(details.version), "--out", "DIR")
    return UsageError(msg, hint=f"serve it by Triton: {triton}")


def _add(target: str) -> str:
    return f"add {target} to targets of its spec, and release it: convert-and-validate run SPEC"


def _converted(details: ReleaseDetails) -> list[Mapping[str, Any]]:
    return [entry for entry in details.manifest["variants"] if entry["role"] == "converted"]


def _source_of(evidence: Path) -> Mapping[str, Any] | None:
    """Return the description of the source; None where the evidence, such as of an earlier version, has none."""
    reference = read_json(evidence).get("reference") or {}
    source: Mapping[str, Any] | None = reference.get("model")
    return source if source and source.get("kind") in set(map(str, SourceKind)) and source.get("text") else None
