"""Build the error of a release without a variant for a server, with the way to get one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.errors import UsageError
from paritygate.models.source import SourceKind
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.release.repository.manifest import read_released_evidence
from paritygate.pipelines.serving import SERVERS
from paritygate.pipelines.serving.server_kind import ServerKind, kind_of
from paritygate.pipelines.spec.compatible_targets import fitting_targets
from paritygate.precision import Variant
from paritygate.roots import Root


def nothing_to_serve(repository: Root, details: ReleaseDetails, kind: ServerKind) -> UsageError:
    """Return the error of a verified release that has no variant for a kind of server."""
    formats = kind.formats
    variants = [entry["name"] for entry in details.manifest["variants"]]
    msg = (
        f"version {details.version} of {details.model!r} holds nothing that {kind.reads} serves: {', '.join(variants)} "
        f"(allowed: {', '.join(formats)})"
    )
    source = _source_of(read_released_evidence(details.folder, details.manifest))
    if source is None:
        return UsageError(msg, hint=_add(f"{formats[0]}-fp32"))
    made = [name for name in fitting_targets(SourceKind(source["kind"])) if Variant.parse(name).format in formats]
    if made:
        others = ", ".join(dict.fromkeys(Variant.parse(name).format for name in made))
        return UsageError(f"{msg}; its source {source['text']} can become {others}", hint=_add(made[0]))
    msg = f"{msg}; its source {source['text']}, a model of kind {source['kind']!r}, can become none of these"
    entries = details.manifest["variants"]
    converted = {Variant.parse(entry["name"]).format for entry in entries if entry["role"] == "converted"}
    for command, server in SERVERS.items():
        if converted & set(kind_of(command).formats):
            words = command_on(repository, command, details.model, str(details.version), "--out", "DIR")
            return UsageError(msg, hint=f"serve it by {server.title}: {words}")
    return UsageError(msg, hint="release the same model from a source that can become one of them")


def _add(target: str) -> str:
    return f"add {target} to targets of its spec, and release it: convert-and-validate run SPEC"


def _source_of(evidence: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the description of the source; None where the evidence, such as of an earlier version, has none."""
    reference = evidence.get("reference") or {}
    source: Mapping[str, Any] | None = reference.get("model")
    return source if source and source.get("kind") in set(map(str, SourceKind)) and source.get("text") else None
