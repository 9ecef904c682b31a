"""Inspect the repository: list its models, show one release in full, and verify its files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.difference import FileDifference
from paritygate.pipelines.release.repository.figures import figures_of
from paritygate.pipelines.release.repository.local_copy import local_folder
from paritygate.pipelines.release.repository.log import logged_models, read_records
from paritygate.pipelines.release.repository.manifest import (
    difference_of_release,
    read_file,
    read_manifest,
    read_released_evidence,
    recorded_files,
)
from paritygate.pipelines.release.repository.record import Record
from paritygate.pipelines.release.repository.signature import SignatureCheck, SignatureStatus, check_signature
from paritygate.pipelines.release.repository.state import ModelState, state_of
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.pipelines.release.signing.keys import VerifyingKey
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.spec.names import check_name
from paritygate.roots import Root
from paritygate.text import meant

# No version has as many digits, and Python refuses numbers of some thousands of digits.
_MOST_DIGITS = 18
_LONGEST_NAMED = 100


class ModelSummary(Struct, frozen=True, kw_only=True):
    """Summarize one model of the repository."""

    model: str
    versions: tuple[int, ...]  # of releases whose files are there, ascending
    collected: tuple[int, ...]  # versions whose files were collected, ascending
    aliases: Mapping[str, int]  # the version of each
    changed: str  # the time of the last record, UTC, ISO 8601


class ReleaseDetails(Struct, frozen=True, kw_only=True):
    """Hold one release in full.

    `numbers` has one mapping for each variant, output and machine: how often answers differ, and by how much. It has
    none for a source that is released as it is.
    """

    model: str
    version: int
    folder: Root
    aliases: tuple[str, ...]
    record: Record
    manifest: Mapping[str, Any]
    numbers: tuple[Mapping[str, Any], ...]
    history: tuple[Record, ...]  # all records of the model, oldest first

    def local_folder(self) -> Path:
        """Return the folder of its files on this machine, verified if they come from an object store."""
        return local_folder(self.folder, recorded_files(self.manifest, self.record))

    def to_json(self) -> dict[str, Any]:
        """Return the release as JSON data."""
        return {
            "model": self.model,
            "version": self.version,
            "folder": str(self.folder),
            "aliases": list(self.aliases),
            "record": to_data(self.record),
            "manifest": dict(self.manifest),
            "numbers": [dict(item) for item in self.numbers],
            "history": [{"number": n, **to_data(record)} for n, record in enumerate(self.history, start=1)],
        }


class Verification(Struct, frozen=True, kw_only=True):
    """Hold whether the files of a release are those that were released.

    `files_checked` counts the manifest. It is 1 if the manifest is corrupt, because then it proves nothing about the
    others.
    """

    model: str
    version: int
    files_checked: int
    difference: FileDifference
    signature: SignatureCheck | None = None  # None for an unsigned release that no key was given for

    @property
    def is_intact(self) -> bool:
        """Whether every file is there, unchanged, and no other is."""
        return self.difference.is_empty

    @property
    def is_accepted(self) -> bool:
        """Whether it is intact, and signed by the key if one was given."""
        signature = self.signature
        return self.is_intact and (
            signature is None or signature.key is None or signature.status is SignatureStatus.VALID
        )

    @property
    def problem(self) -> str:
        """What is wrong, as the end of a sentence; empty if it is accepted."""
        if self.is_accepted:
            return ""
        return f"refused: {self.signature}" if self.is_intact else f"corrupt: {self.difference}"

    def to_json(self) -> dict[str, Any]:
        """Return the verification as JSON data."""
        return {
            "model": self.model,
            "version": self.version,
            "is_intact": self.is_intact,
            "files_checked": self.files_checked,
            "changed": list(self.difference.changed),
            "missing": list(self.difference.missing),
            "added": list(self.difference.added),
            "signature": None if self.signature is None else self.signature.to_json(),
        }


def has_records(repository: Root, model: str) -> bool:
    """Return whether anything was ever released of a model; not where there is no repository."""
    return store_of(repository).is_there() and bool(read_records(repository, model))


def list_models(repository: Root) -> tuple[ModelSummary, ...]:
    """Return the models that have a record, sorted by name; none for an empty repository.

    Raises:
        InputFileError: There is no such folder.
        RepositoryError: A model's log is corrupt.
    """
    _check_repository(repository)
    summaries = []
    for name in logged_models(repository):
        state = state_of(read_records(repository, name))
        # A release that was begun and never recorded leaves an empty log: the model does not exist yet.
        if state.history:
            summary = ModelSummary(
                model=name,
                versions=tuple(sorted(state.releases)),
                collected=tuple(sorted(state.collected)),
                aliases=dict(sorted(state.aliases.items())),
                changed=state.history[-1].time,
            )
            summaries.append(summary)
    return tuple(summaries)


def show(repository: Root, model: str, which: int | str | None = None) -> ReleaseDetails:
    """Return one release in full, its manifest checked against the log, and its evidence against the manifest.

    `which` is a version, as a number or its digits, or an alias; None for the highest version.

    Raises:
        UsageError: There is no such model or release.
        InputFileError: There is no such repository.
        RepositoryError: The log is corrupt.
        ArtifactIntegrityError: The manifest or the evidence is corrupt.
    """
    state = read_state(repository, model)
    version = version_of(state, model, which)
    folder = release_folder(repository, model, version)
    manifest = read_manifest(folder, state.releases[version])
    return ReleaseDetails(
        model=model,
        version=version,
        folder=folder,
        aliases=tuple(sorted(alias for alias, pointed in state.aliases.items() if pointed == version)),
        record=state.releases[version],
        manifest=manifest,
        numbers=tuple(figures_of(manifest["variants"], read_released_evidence(folder, manifest))),
        history=state.history,
    )


def verify_release(  # noqa: PLR0913 - each is a condition of its own
    repository: Root,
    model: str,
    which: int | str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    *,
    key: VerifyingKey | None = None,
    manifest_digest: str | None = None,
) -> Verification:
    """Return whether a release is byte for byte what was released, reading every file of it.

    The log has the digest of the manifest, and the manifest those of all other files. `which` is as in `show`. With
    `key`, the release must also be signed by it. `manifest_digest` takes the place of that in the log, which may be
    forged. `progress` gets what is done, and how many of how many bytes were read.

    Raises:
        UsageError: There is no such model or release.
        InputFileError: There is no such repository, or a file of the release cannot be read.
        RepositoryError: The log is corrupt.
    """
    state = read_state(repository, model)
    version = version_of(state, model, which)
    record = state.releases[version]
    record = record if manifest_digest is None else replace(record, manifest=manifest_digest)
    folder = release_folder(repository, model, version)
    note = None if progress is None else _counted(progress, store_of(folder).size_bytes(""))
    difference, count = difference_of_release(folder, record, note)
    manifest = read_manifest(folder, record) if difference.is_empty else {}
    signer = manifest.get("signer")
    signature = None
    if key is not None and difference.is_empty:
        recorded = recorded_files(manifest, record)
        signature = check_signature(manifest, recorded, lambda name: read_file(folder, name), key, (model, version))
    elif key is not None or signer is not None:
        fingerprint = None if key is None else key.fingerprint
        signature = SignatureCheck(status=SignatureStatus.UNCHECKED, signer=signer, key=fingerprint)
    return Verification(model=model, version=version, files_checked=count, difference=difference, signature=signature)


def _counted(progress: Callable[[str, int, int], None], total: int) -> Callable[[int], None]:
    """Return a function for the sizes of parts that several threads read."""
    done, lock = 0, threading.Lock()

    def note(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            progress("reading", done, total)

    return note


def check_release(repository: Root, details: ReleaseDetails) -> None:
    """Check that a release is byte for byte what was released, reading every file of it.

    Raises:
        ArtifactIntegrityError: It is not.
    """
    if not isinstance(details.folder, Path):
        details.local_folder()
        return
    verification = verify_release(repository, details.model, details.version)
    if not verification.is_intact:
        msg = f"version {details.version} of {details.model!r} is corrupt: {verification.difference}"
        command = command_on(repository, "verify", details.model, str(details.version))
        raise ArtifactIntegrityError(msg, hint="see", command=command)


def _check_repository(repository: Root) -> None:
    if not store_of(repository).is_there():
        msg = f"no repository exists at {repository}"
        hint = "name the folder of the releases with --repository, or make the first release"
        raise InputFileError(msg, hint=hint, command="convert-and-validate run SPEC")


def read_state(repository: Root, model: str) -> ModelState:
    """Return what the log of a model adds up to.

    Raises:
        UsageError: There is no such model.
        InputFileError: There is no such repository.
        RepositoryError: The log is corrupt.
    """
    name, at, which = model.partition("@")
    if at:
        msg = f"{model!r} is not the name of a model (expected the model and the release separately)"
        raise UsageError(msg, hint=f"write {name}, or where the command takes a release: {name} {which or 'prod'}")
    check_name("model", model)
    _check_repository(repository)
    state = state_of(read_records(repository, model))
    if not state.history:
        models = [summary.model for summary in list_models(repository)]
        listed = ", ".join(models) or "none"
        msg = f"repository {repository} has no release of model {model!r} (models: {listed}){meant(model, models)}"
        raise UsageError(msg, hint="list its content with", command=command_on(repository, "list"))
    return state


def version_of(state: ModelState, model: str, which: int | str | None) -> int:
    """Return the version that a number, its digits or an alias names; the highest one for None.

    Raises:
        UsageError: There is no such release, or its files were collected.
    """
    is_alias = isinstance(which, str) and not which.isdecimal()
    if which is None:
        version = max(state.releases, default=0)
    else:
        version = state.aliases.get(str(which), 0) if is_alias else _number(str(which))
    if version in state.releases:
        return version
    versions = ", ".join(str(number) for number in sorted(state.releases)) or "none"
    aliases = ", ".join(sorted(state.aliases)) or "none"
    what = "has no release" if which is None else f"has no release {_named(str(which))!r}"
    if version in state.collected:
        what += f" any more: its files were collected on {state.collected[version].time}"
    msg = f"model {model!r} {what} (versions: {versions}; aliases: {aliases}){meant(str(which), state.aliases)}"
    raise UsageError(msg, hint="name one of the versions or aliases above")


def _number(text: str) -> int:
    """Return a version; 0, which no release has, for a number that is too long."""
    return int(text) if len(text) <= _MOST_DIGITS else 0


def _named(text: str) -> str:
    return text if len(text) <= _LONGEST_NAMED else f"{text[:_LONGEST_NAMED]}..."
