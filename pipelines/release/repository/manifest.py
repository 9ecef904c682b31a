"""Make and read the manifest of a release: its files with their digests, and what it was made and judged with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError
from paritygate.file_names import check_names
from paritygate.files import digest_of_file, read_json
from paritygate.pipelines.release.repository.candidate import (
    EVIDENCE_FILE,
    MANIFEST_FILE,
    ReleaseCandidate,
    VariantCandidate,
)
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.difference import FileDifference, compare_files
from paritygate.pipelines.release.repository.disk import reading_errors
from paritygate.pipelines.release.repository.identity import identity_of
from paritygate.pipelines.release.repository.record import Record, utc_now
from paritygate.pipelines.release.repository.store import repository_of_release

_SCHEMA = 1
# Stands where the digest of a file would: a release holds no links, whatever they point to.
SYMBOLIC_LINK = "a symbolic link"
_NO_FILE = "no plain file"


def released_files(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a release by relative path, the manifest left out.

    Nothing is skipped and no link is followed: a link counts as a file whose content is `SYMBOLIC_LINK`. A pipe or
    device counts as one with a content of its own. Reads every file.

    Raises:
        InputFileError: A file cannot be read.
    """
    found: dict[str, str] = {}
    with reading_errors(folder):
        for parent, folders, names in os.walk(folder, onerror=_raise):
            paths = [Path(parent) / name for name in (*folders, *names)]
            for path in sorted(path for path in paths if path.is_symlink() or not path.is_dir()):
                name = path.relative_to(folder).as_posix()
                if path.is_symlink():
                    found[name] = SYMBOLIC_LINK
                else:
                    # A pipe would be waited at, and a device may have no end.
                    found[name] = digest_of_file(path) if path.is_file() else _NO_FILE
    found.pop(MANIFEST_FILE, None)
    return found


def _raise(error: OSError) -> None:
    # os.walk passes over what it cannot list, unless told otherwise.
    raise error


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
    return {**variant.to_json(), "main": variant.record.get("main", "."), "size_bytes": size}


def read_manifest(folder: Path, record: Record) -> dict[str, Any]:
    """Return the manifest of the release in `folder`, after checking it against its record in the log.

    Raises:
        ArtifactIntegrityError: It is missing, or is not what was recorded.
    """
    path = folder / MANIFEST_FILE
    is_intact = path.is_file() and not path.is_symlink() and digest_of_file(path) == record.manifest
    if not is_intact:
        change = "is corrupt" if path.exists() else "is missing"
        msg = f"{path} {change} when version {record.version} was released"
        raise ArtifactIntegrityError(msg, hint="restore the release from a backup, or promote the model again")
    try:
        manifest: dict[str, Any] = read_json(path)
        # Each is the name of a folder of the release, and of what a runtime opens in it.
        check_names(entry["name"] for entry in manifest["variants"])
        check_names(main for entry in manifest["variants"] if (main := entry.get("main", ".")) != ".")
    except (ValueError, LookupError, TypeError, AttributeError) as err:
        msg = f"{path} is no manifest: {type(err).__name__}: {err}"
        raise ArtifactIntegrityError(msg, hint="promote the model again: its log was forged as well") from err
    return manifest


def read_released_evidence(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evidence of the release in `folder`, after checking it against its manifest.

    Raises:
        ArtifactIntegrityError: It is missing, or is not what was released.
    """
    path = folder / EVIDENCE_FILE
    is_intact = path.is_file() and not path.is_symlink() and digest_of_file(path) == manifest["files"][EVIDENCE_FILE]
    if not is_intact:
        msg = f"{path} {'is corrupt' if path.exists() else 'is missing'}"
        see = command_on(repository_of_release(folder), "verify", manifest["model"], str(manifest["version"]))
        raise ArtifactIntegrityError(msg, hint=f"see what else: {see}")
    try:
        evidence: dict[str, Any] = read_json(path)
    except ValueError as err:
        msg = f"{path} is no evidence: {err}"
        raise ArtifactIntegrityError(msg, hint="promote the model again: its log was forged as well") from err
    return evidence


def difference_of_release(folder: Path, record: Record) -> tuple[FileDifference, int]:
    """Return how the release in `folder` differs from what was recorded, and how many files were checked.

    The log has the digest of the manifest, and the manifest those of all other files. If the manifest is corrupt it
    proves nothing, and only that is returned. Reads every file.

    Raises:
        InputFileError: A file cannot be read.
    """
    try:
        recorded = read_manifest(folder, record)["files"]
    except ArtifactIntegrityError:
        manifest = (MANIFEST_FILE,)
        is_there = (folder / MANIFEST_FILE).exists()
        return (FileDifference(changed=manifest) if is_there else FileDifference(missing=manifest)), 1
    return compare_files(released_files(folder), recorded), len(recorded) + 1
