"""Make and read the manifest of a release: its files with their digests, and what it was made and judged with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError
from paritygate.file_names import check_names
from paritygate.files import digest_of_bytes, json_of
from paritygate.pipelines.release.repository.candidate import (
    EVIDENCE_FILE,
    MANIFEST_FILE,
    ReleaseCandidate,
    VariantCandidate,
)
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.difference import FileDifference, compare_files
from paritygate.pipelines.release.repository.identity import identity_of
from paritygate.pipelines.release.repository.record import Record, utc_now
from paritygate.pipelines.release.repository.store import repository_of_release
from paritygate.pipelines.release.signing.oms import SIGNATURE_FILE
from paritygate.pipelines.release.stores.folders import reading_errors
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.stores.store import NotAFileError
from paritygate.roots import Root

_SCHEMA = 1


def make_manifest(candidate: ReleaseCandidate, version: int, folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest of the release whose complete files are in `folder`, as JSON data."""
    return {
        "schema": _SCHEMA,
        "model": candidate.model,
        "version": version,
        "created": utc_now(),
        "reason": candidate.reason,
        "despite": candidate.despite,
        "trust": candidate.trust,
        "signer": None if candidate.signer is None else candidate.signer.fingerprint,
        "identity": identity_of(
            [variant.to_json() for variant in candidate.variants], candidate.despite, candidate.trust
        ),
        "variants": [_variant_entry(variant, folder / variant.name) for variant in candidate.variants],
        "accepted": dict(candidate.accepted),
        "choice": dict(candidate.choice),
        "provenance": to_data(candidate.provenance),
        "files": dict(files),
    }


def _variant_entry(variant: VariantCandidate, folder: Path) -> dict[str, Any]:
    size = sum((folder / name).stat().st_size for name in variant.files)
    facts = (variant.record.get("made_by") or {}).get("facts") or {}
    kept = {"kept_in_fp32": facts["repair"]["kept"]} if "repair" in facts else {}
    return {**variant.to_json(), "main": variant.record.get("main", "."), "size_bytes": size, **kept}


def read_file(folder: Root, name: str) -> bytes | None:
    """Return the content of a file of a release, empty for a link or a folder in its place; None if it is missing."""
    with reading_errors(folder):
        try:
            return next(store_of(folder).read([name]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotAFileError:
            return b""


def read_manifest(folder: Root, record: Record) -> dict[str, Any]:
    """Return the manifest of the release in `folder`, after checking it against its record in the log.

    Raises:
        ArtifactIntegrityError: It is missing, or is not what was recorded.
    """
    path, content = folder / MANIFEST_FILE, read_file(folder, MANIFEST_FILE)
    if content is None or digest_of_bytes(content) != record.manifest:
        change = "is missing" if content is None else "is corrupt"
        msg = f"{path} {change} when version {record.version} was released"
        raise ArtifactIntegrityError(msg, hint="restore the release from a backup, or promote the model again")
    try:
        manifest: dict[str, Any] = json_of(content.decode())
        # Each is the name of a folder of the release, and of what a runtime opens in it.
        check_names(entry["name"] for entry in manifest["variants"])
        check_names(main for entry in manifest["variants"] if (main := entry.get("main", ".")) != ".")
    except (ValueError, LookupError, TypeError, AttributeError) as err:
        msg = f"{path} is not a manifest: {type(err).__name__}: {err}"
        raise ArtifactIntegrityError(msg, hint="promote the model again: its log was forged as well") from err
    return manifest


def read_released_evidence(folder: Root, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evidence of the release in `folder`, after checking it against its manifest.

    Raises:
        ArtifactIntegrityError: It is missing, or is not what was released.
    """
    path, content = folder / EVIDENCE_FILE, read_file(folder, EVIDENCE_FILE)
    if content is None or digest_of_bytes(content) != manifest["files"][EVIDENCE_FILE]:
        msg = f"{path} {'is missing' if content is None else 'is corrupt'}"
        see = command_on(repository_of_release(folder), "verify", manifest["model"], str(manifest["version"]))
        raise ArtifactIntegrityError(msg, hint=f"see all differences: {see}")
    try:
        evidence: dict[str, Any] = json_of(content.decode())
    except ValueError as err:
        msg = f"{path} is not evidence: {err}"
        raise ArtifactIntegrityError(msg, hint="promote the model again: its log was forged as well") from err
    return evidence


def difference_of_release(
    folder: Root, record: Record, note: Callable[[int], None] | None = None
) -> tuple[FileDifference, int]:
    """Return how the release in `folder` differs from what was recorded, and how many files were checked.

    The log has the digests of manifest and signature, and the manifest those of all other files. If the manifest is
    corrupt it proves nothing, and only that is returned. Reads every file; `note` gets the sizes of the parts read.

    Raises:
        InputFileError: A file cannot be read.
    """
    try:
        recorded = recorded_files(read_manifest(folder, record), record)
    except ArtifactIntegrityError:
        manifest = (MANIFEST_FILE,)
        is_there = read_file(folder, MANIFEST_FILE) is not None
        return (FileDifference(changed=manifest) if is_there else FileDifference(missing=manifest)), 1
    return compare_files(store_of(folder).digests(note), recorded), len(recorded)


def recorded_files(manifest: Mapping[str, Any], record: Record) -> dict[str, str]:
    """Return the digest of every file of a release: the log has those of the manifest and of the signature."""
    signature = {} if record.signature is None else {SIGNATURE_FILE: record.signature}
    return {**manifest["files"], MANIFEST_FILE: str(record.manifest), **signature}
