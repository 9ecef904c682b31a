"""Copy a release to an OCI registry, in the layout of the CNCF's ModelPack.

Each file is a layer, so that its digest there is the one that the release's manifest names. What proves the release
refers to it, as artifacts of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import RepositoryError, UsageError
from paritygate.files import digest_of_bytes, json_bytes, json_of
from paritygate.pipelines.release.bom import bom_of
from paritygate.pipelines.release.oci.reference import Reference
from paritygate.pipelines.release.oci.registry import INDEX, MANIFEST, Registry
from paritygate.pipelines.release.repository.candidate import EVIDENCE_FILE, STATEMENT_FILE
from paritygate.pipelines.release.repository.inspect import check_release, show
from paritygate.pipelines.release.repository.manifest import recorded_files
from paritygate.pipelines.release.signing.oms import SIGNATURE_FILE
from paritygate.precision import Variant
from paritygate.roots import Root

MODEL = "application/vnd.cncf.model.manifest.v1+json"
FILE_PATH = "org.cncf.model.filepath"
STATUS = "org.cncf.ai.lifecycle.status"
_CONFIG = "application/vnd.cncf.model.config.v1+json"
_WEIGHT, _DOC = "application/vnd.cncf.model.weight.v1.raw", "application/vnd.cncf.model.doc.v1.raw"
_EMPTY = "application/vnd.oci.empty.v1+json"
_CREATED = "org.opencontainers.image.created"
# The name by which `oras pull` writes a layer.
_TITLE = "org.opencontainers.image.title"
_BOM_FILE = "bom.json"
_PROOFS = {
    EVIDENCE_FILE: "application/vnd.paritygate.evidence.v1+json",
    STATEMENT_FILE: "application/vnd.dsse.envelope.v1+json",
    SIGNATURE_FILE: "application/vnd.dev.sigstore.bundle.v0.3+json",
    _BOM_FILE: "application/vnd.cyclonedx+json",
}


class Pushed(Struct, frozen=True, kw_only=True):
    """Describe a release in a registry."""

    model: str
    version: int
    tag: str
    reference: str  # with the digest
    is_new: bool  # the tag was not at it before
    uploaded: int  # blobs that the registry did not have
    is_validated: bool
    referrers: Mapping[str, str]  # the digest of each by its type
    is_listed: bool  # by the registry itself; if not, an index under a tag lists them


def push(
    repository: Root, model: str, which: str, reference: Reference, note: Callable[[str, int, int], None]
) -> Pushed:
    """Copy a release whose files are verified first, and tag it last; the default tag is its version.

    Raises:
        UsageError: There is no such release, or the reference has a digest or the number of another version.
        ArtifactIntegrityError: The release is corrupt.
        RepositoryError: The tag of the version holds another release.
        StorageError: The registry refuses, or does not answer.
    """
    if reference.digest is not None:
        raise UsageError(f"{reference} has a digest (expected a tag)", hint="leave out the @ and the digest")
    details = show(repository, model, which)
    check_release(repository, details)
    registry, version = Registry(reference), str(details.version)
    tag = reference.tag or version
    if tag.isdecimal() and tag != version:
        msg = f"the tag {tag} is a version (got {tag}, expected {version} or a name)"
        raise UsageError(msg, hint=f"push {model}@{which} to {registry.place}")
    recorded, folder = recorded_files(details.manifest, details.record), details.local_folder()
    layers = {
        name: _descriptor(_WEIGHT if "/" in name else _DOC, digest, (folder / name).stat().st_size, name)
        for name, digest in sorted(recorded.items())
    }
    config = json_bytes(_config(details.manifest, [layer["digest"] for layer in layers.values()]))
    created = {_CREATED: details.manifest["created"]}
    is_validated = _is_validated(details.manifest)
    content = _manifest(
        MODEL,
        _of_bytes(_CONFIG, config),
        [*layers.values()],
        annotations={
            _TITLE: details.model,
            "org.opencontainers.image.version": str(details.version),
            **({STATUS: "validated"} if is_validated else {}),
            **created,
        },
    )
    subject, before = _of_bytes(MANIFEST, content), registry.manifest(tag)
    is_new = before is None or digest_of_bytes(before) != subject["digest"]
    if before is not None and is_new and tag == version:
        msg = f"{registry.place}:{tag} holds another release, so nothing was pushed"
        raise RepositoryError(msg, hint=f"push to a tag that may move: {registry.place}:TAG")
    bom = json_bytes(bom_of(details))
    blobs: dict[str, Path | bytes] = {layer["digest"]: folder / name for name, layer in layers.items()}
    blobs |= {digest_of_bytes(each): each for each in (config, bom, b"{}")}
    uploaded = 0
    for done, (digest, body) in enumerate(blobs.items()):
        note("pushing files", done, len(blobs))
        uploaded += registry.upload(digest, body)
    registry.put_manifest(content, subject["digest"])
    found = {**layers, _BOM_FILE: _of_bytes(_DOC, bom, _BOM_FILE)}
    referrers, is_listed = {}, True
    for name, kind in _PROOFS.items():
        if name in found:
            proof = {**found[name], "mediaType": kind}
            referring = _manifest(kind, _of_bytes(_EMPTY, b"{}"), [proof], subject=subject, annotations=created)
            referrers[kind] = _of_bytes(MANIFEST, referring)
            is_listed &= registry.put_manifest(referring, referrers[kind]["digest"])
    if not is_listed:
        _list(registry, subject["digest"], [{**each, "artifactType": kind} for kind, each in referrers.items()])
    registry.put_manifest(content, tag)
    return Pushed(
        model=details.model,
        version=details.version,
        tag=tag,
        reference=f"{registry.place}@{subject['digest']}",
        is_new=is_new,
        uploaded=uploaded,
        is_validated=is_validated,
        referrers={kind: each["digest"] for kind, each in referrers.items()},
        is_listed=is_listed,
    )


def _is_validated(manifest: Mapping[str, Any]) -> bool:
    """Return whether each variant passed in its own runtime, in a run that passed."""
    found = [(entry["role"], entry["evidence"] or {}) for entry in manifest["variants"]]
    items = [item for _, evidence in found for item in (evidence, *evidence.get("also", ()))]
    is_pass = all((item.get("verdict"), item.get("kind")) == ("pass", "verified") for item in items)
    return is_pass and all(role == "converted" for role, _ in found) and not manifest.get("despite")


def _config(manifest: Mapping[str, Any], digests: list[str]) -> dict[str, Any]:
    preferred = manifest["variants"][0]
    variant = Variant.parse(preferred["name"]) if preferred["role"] == "converted" else None
    return {
        "descriptor": {
            "name": manifest["model"],
            "version": str(manifest["version"]),
            "createdAt": manifest["created"],
        },
        "config": {} if variant is None else {"format": variant.format, "precision": str(variant.precision)},
        "modelfs": {"type": "layers", "diffIds": digests},
    }


def _manifest(kind: str, config: Mapping[str, Any], layers: list[dict[str, Any]], **others: Mapping[str, Any]) -> bytes:
    head = {"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind}
    return json_bytes({**head, "config": config, "layers": layers, **others})


def _of_bytes(kind: str, content: bytes, name: str = "") -> dict[str, Any]:
    return _descriptor(kind, digest_of_bytes(content), len(content), name)


def _descriptor(kind: str, digest: str, size: int, name: str = "") -> dict[str, Any]:
    named = {"annotations": {FILE_PATH: name, _TITLE: name}} if name else {}
    return {"mediaType": kind, "digest": digest, "size": size, **named}


def _list(registry: Registry, subject: str, referrers: list[dict[str, Any]]) -> None:
    """Add artifacts to the index that a registry without the API has under a tag."""
    tag, digests = subject.replace(":", "-"), {each["digest"] for each in referrers}
    before = json_of((registry.manifest(tag) or b"{}").decode()).get("manifests", [])
    others = [each for each in before if each["digest"] not in digests]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, *referrers]}
    registry.put_manifest(json_bytes(index), tag, INDEX)
