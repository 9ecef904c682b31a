"""Promote a checked candidate to an immutable, numbered release.

All files are copied and hashed outside the store, and then published under one number. They become a release by the one
record that also moves the alias. A crash at any point leaves the repository as it was or with the release complete.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from paritygate.artifact import ARTIFACT_FILE
from paritygate.codec import with_fields_of
from paritygate.errors import ArtifactIntegrityError, ParitygateError, RepositoryError
from paritygate.files import digest_of_bytes, json_bytes, json_of, storage_errors
from paritygate.pipelines.release.repository.aliases import check_current
from paritygate.pipelines.release.repository.candidate import (
    EVIDENCE_FILE,
    MANIFEST_FILE,
    STATEMENT_FILE,
    ReleaseCandidate,
    VariantCandidate,
    check_candidate,
    check_copies,
    check_files,
)
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.identity import identity_of
from paritygate.pipelines.release.repository.log import append_record, read_state_of
from paritygate.pipelines.release.repository.manifest import (
    difference_of_release,
    make_manifest,
    read_file,
    read_manifest,
)
from paritygate.pipelines.release.repository.parity import parity_of
from paritygate.pipelines.release.repository.record import Record, RecordKind, utc_now
from paritygate.pipelines.release.repository.rolled_back import check_not_rolled_back
from paritygate.pipelines.release.repository.state import ModelState
from paritygate.pipelines.release.repository.store import release_folder, release_name, stored_versions
from paritygate.pipelines.release.signing.oms import SIGNATURE_FILE, signature_of
from paritygate.pipelines.release.stores.disk import digests_below
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.stores.staging import CONTENT
from paritygate.roots import Root

_READERS = 8
# What this process has read of manifests, by their digests; a release that may be the same is verified each time.
_READ: dict[str, tuple[str | None, str | None]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRelease:
    """Describe a release that was made, or an existing one with the same artifacts and findings."""

    model: str
    version: int
    folder: Root
    alias: str | None
    record: int | None  # its number in the model's log; None if nothing had to be recorded
    manifest: str  # digest of manifest.json
    variants: tuple[str, ...]  # the preferred one first
    reason: str
    choice: Mapping[str, Any] = field(default_factory=dict)
    despite: str = ""
    trust: str = ""
    is_new: bool = True  # if not, at most its alias was moved
    damaged: tuple[int, ...] = ()  # versions of the same content that are corrupt
    moved_from: int | None = None  # the alias's version before; None where it is new, or did not move
    unsigned_after: int | None = None  # the version released before, if that is signed and this one is not

    @property
    def aliases(self) -> tuple[str, ...]:
        """The alias, if there is one."""
        return () if self.alias is None else (self.alias,)

    @property
    def is_older(self) -> bool:
        """Whether its alias moved back to it from a later version."""
        return self.moved_from is not None and self.moved_from > self.version

    @property
    def in_words(self) -> str:
        """A description for messages."""
        return f"released {self.version} of {self.model}"


def released_manifest(release: StoredRelease) -> dict[str, Any]:
    """Return the manifest of a release that was just made."""
    manifest: dict[str, Any] = json_of((read_file(release.folder, MANIFEST_FILE) or b"").decode())
    return manifest


def promote(
    repository: Root, candidate: ReleaseCandidate, commit: Commit[StoredRelease] | None = None
) -> StoredRelease:
    """Release `candidate` under the next version of its model and move its alias there.

    If a release of the model has the same artifacts with the same findings, no version is made, and the alias moves to
    that one. A corrupt release does not count.

    Reads every file three times: before, while and after it is copied. Several processes may promote at the same time.
    Each gets a version of its own unless they release the same, and the alias points to the one recorded last. The
    repository is created where it does not exist. `commit` receives the release before and after it is recorded; an
    error after that undoes nothing.

    Raises:
        UsageError: A name cannot be a folder or file of the repository.
        RepositoryError: A variant must not be released, the log is corrupt, or the alias is not at `if_current`.
        RolledBackError: The alias was rolled back from a release of the same preferred variant.
        ArtifactIntegrityError: Files differ from their record, before or after copying.
        ArtifactIntegrityError: The alias was rolled back from a release whose manifest is corrupt.
        InputFileError: A file to release is missing or cannot be read.
        StorageError: The disk is full, or the repository cannot be written.
    """
    check_candidate(candidate)
    for variant in candidate.variants:
        check_files(variant)
    # A corrupt log stops the release before anything is copied.
    state = read_state_of(repository, candidate.model)
    _check_current(candidate, state)
    same, damaged = _same_release(repository, candidate, state)
    _check_not_rolled_back(repository, candidate, state, same)
    commit = commit or Commit()

    def release_of(version: int, manifest: str, number: int | None, *, now: ModelState, is_new: bool) -> StoredRelease:
        before = None if candidate.alias is None else now.aliases.get(candidate.alias)
        return with_fields_of(
            StoredRelease,
            candidate,
            version=version,
            folder=release_folder(repository, candidate.model, version),
            record=number,
            manifest=manifest,
            variants=tuple(variant.name for variant in candidate.variants),
            is_new=is_new,
            damaged=damaged,
            moved_from=None if before == version else before,
            unsigned_after=_signed_before(candidate, now, version, before),
        )

    with store_of(repository).staging() as staging:
        if same is None:
            return _release(repository, candidate, staging, commit, release_of, state)
        manifest, before = str(state.releases[same].manifest), state

        def record_of(now: ModelState) -> Record | None:
            nonlocal before
            _check_current(candidate, now)
            _check_not_rolled_back(repository, candidate, now, same)
            before, record = now, _move_to(candidate, same, now)
            if record is not None:
                commit.begin(release_of(same, manifest, len(now.history) + 1, now=now, is_new=False))
            return record

        number = append_record(repository, candidate.model, record_of, staging, commit, state)
        return release_of(same, manifest, number, now=before, is_new=False)


def _signed_before(candidate: ReleaseCandidate, state: ModelState, version: int, at_alias: int | None) -> int | None:
    """Return the version at the alias, or else the newest one, if it is signed and `version` is not."""
    before = at_alias or max(state.releases, default=0)
    record = state.releases.get(version)
    is_signed = candidate.signer is not None if record is None else record.signature is not None
    return before if not is_signed and before in state.releases and state.releases[before].signature else None


def _check_current(candidate: ReleaseCandidate, state: ModelState) -> None:
    if candidate.alias is not None:
        check_current(state, candidate.model, candidate.alias, candidate.if_current)


def _check_not_rolled_back(repository: Root, candidate: ReleaseCandidate, state: ModelState, same: int | None) -> None:
    if candidate.alias is not None and (same is None or same != state.aliases.get(candidate.alias)):
        check_not_rolled_back(repository, candidate, candidate.alias, state)


def _identity(candidate: ReleaseCandidate) -> str | None:
    return identity_of([variant.to_json() for variant in candidate.variants], candidate.despite, candidate.trust)


def _same_release(
    repository: Root, candidate: ReleaseCandidate, state: ModelState
) -> tuple[int | None, tuple[int, ...]]:
    """Return the intact release of the same content as the candidate, or None, and the corrupt releases of it.

    An intact release at the candidate's alias comes first, then the newest.
    """
    identity = _identity(candidate)
    damaged: list[int] = []
    if identity is None:
        return None, ()
    current = None if candidate.alias is None else state.aliases.get(candidate.alias)
    order = sorted(state.releases, key=lambda version: (version == current, version), reverse=True)
    folders = {version: release_folder(repository, candidate.model, version) for version in order}
    # The first alone, since it is often the one; then several at once.
    for versions in (order[:1], order[1:]):
        with ThreadPoolExecutor(_READERS) as readers:
            found = list(readers.map(lambda version: _what_is_in(folders[version], state.releases[version]), versions))
        for version, (identity_there, signer) in zip(versions, found, strict=True):
            # Any signature will do where none is asked for.
            is_signed_so = candidate.signer is None or candidate.signer.fingerprint == signer
            if identity_there == identity and is_signed_so:
                if difference_of_release(folders[version], state.releases[version])[0].is_empty:
                    return version, tuple(damaged)
                damaged.append(version)
    return None, tuple(damaged)


def _what_is_in(folder: Root, record: Record) -> tuple[str | None, str | None]:
    """Return the identity and the signer in a release's manifest; None for both if that is corrupt."""
    digest = str(record.manifest)
    if digest not in _READ:
        try:
            manifest = read_manifest(folder, record)
        except ArtifactIntegrityError:
            # It is no reason to make no other release.
            return None, None
        _READ[digest] = (manifest.get("identity"), manifest.get("signer"))
    return _READ[digest]


def _move_to(candidate: ReleaseCandidate, version: int, state: ModelState) -> Record | None:
    """Return the record that points the candidate's alias to an existing release; None if it points there already."""
    if candidate.alias is None or state.aliases.get(candidate.alias) == version:
        return None
    return _record(candidate, RecordKind.ALIAS_MOVED, {candidate.alias: version})


class _ReleaseOf(Protocol):
    def __call__(
        self, version: int, manifest: str, number: int | None, *, now: ModelState, is_new: bool
    ) -> StoredRelease:
        """Return the release of a version, by the digest of its manifest, its record, and the state before that."""


def _release(  # noqa: PLR0913, PLR0917 - a part of `promote`
    repository: Root,
    candidate: ReleaseCandidate,
    staging: Path,
    commit: Commit[StoredRelease],
    release_of: _ReleaseOf,
    state: ModelState,
) -> StoredRelease:
    """Make a version, and return its release.

    If another process released the same meanwhile, return that release and take this version back.
    """
    content = staging / CONTENT
    files = _copy(candidate, content)
    version, manifest, signature = _claim_version(repository, candidate, staging, files, state)
    aliases = {} if candidate.alias is None else {candidate.alias: version}
    released = replace(
        _record(candidate, RecordKind.RELEASED, aliases), version=version, manifest=manifest, signature=signature
    )
    attempts: list[tuple[int, str, ModelState]] = []

    def record_of(now: ModelState) -> Record | None:
        _check_current(candidate, now)
        same, _ = _same_release(repository, candidate, now)
        _check_not_rolled_back(repository, candidate, now, same)
        made, of = (version, manifest) if same is None else (same, str(now.releases[same].manifest))
        attempts.append((made, of, now))
        if made in now.collected:
            msg = f"version {made} of {candidate.model!r} was deleted by gc before it could be recorded"
            raise RepositoryError(msg, hint="promote again; gc deletes uploads without a record after a day")
        record = released if same is None else _move_to(candidate, same, now)
        if record is not None:
            commit.begin(release_of(made, of, len(now.history) + 1, now=now, is_new=same is None))
        return record

    try:
        number = append_record(repository, candidate.model, record_of, staging, commit, state)
    except BaseException:
        withdraw_unrecorded(staging, repository, candidate.model, version)
        raise
    made, of, before = attempts[-1]
    if made != version:
        withdraw_unrecorded(staging, repository, candidate.model, version)
    return release_of(made, of, number, now=before, is_new=made == version)


def _copy(candidate: ReleaseCandidate, content: Path) -> dict[str, str]:
    """Copy all files except the manifest into `content`, checked; return their digests."""
    with storage_errors(content):
        for variant in candidate.variants:
            _copy_variant(variant, content / variant.name)
        for name, contents in candidate.reports.items():
            (content / name).write_bytes(contents())
        (content / EVIDENCE_FILE).write_bytes(json_bytes(dict(candidate.evidence)))
        for path in content.rglob("*"):
            if path.is_file():
                _make_read_only(path)
    files = digests_below(content)
    check_copies(candidate, files)
    if candidate.signer is not None:
        files[STATEMENT_FILE] = _write(content / STATEMENT_FILE, parity_of(candidate, files, candidate.signer))
    return files


def _copy_variant(variant: VariantCandidate, folder: Path) -> None:
    for name in variant.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        # Why not a hard link? The run folder's file could still be changed, and the release with it.
        shutil.copyfile(variant.folder / name, folder / name)
    (folder / ARTIFACT_FILE).write_bytes(json_bytes(dict(variant.record)))


def _write(path: Path, content: bytes) -> str:
    """Write a read-only file, in place of an earlier one, and return its digest."""
    with storage_errors(path):
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        _make_read_only(path)
    return digest_of_bytes(content)


def _make_read_only(path: Path) -> None:
    path.chmod(path.stat().st_mode & ~0o222)


def next_version(repository: Root, model: str, known: ModelState | None = None) -> int:
    """Return the number after all those in the store or in the log, 1 for a new model.

    `known` is a state that was read before.
    The number of a folder without record counts, so nobody takes the leftover of a crash for a release.
    """
    # The store first: gc records a number and then deletes its files, so one of the two has it.
    stored = stored_versions(repository, model)
    state = read_state_of(repository, model, known)
    return max([*stored, *state.releases, *state.collected], default=0) + 1


def _claim_version(
    repository: Root, candidate: ReleaseCandidate, staging: Path, files: Mapping[str, str], known: ModelState
) -> tuple[int, str, str | None]:
    """Publish the staged release under the next free version; return it with the digests of manifest and signature."""
    content = staging / CONTENT
    version = next_version(repository, candidate.model, known)
    while True:
        digest = _write(content / MANIFEST_FILE, json_bytes(make_manifest(candidate, version, content, files)))
        signature = None
        if candidate.signer is not None:
            signed = signature_of(candidate.model, {**files, MANIFEST_FILE: digest}, candidate.signer)
            signature = _write(content / SIGNATURE_FILE, signed)
        if store_of(repository).publish(staging, release_name(candidate.model, version)):
            return version, digest, signature
        version += 1


def _record(candidate: ReleaseCandidate, kind: RecordKind, aliases: Mapping[str, int]) -> Record:
    names = ("reason", "despite", "trust", "who", "host")
    same = {name: getattr(candidate, name) for name in names}
    return Record(kind=kind, time=utc_now(), aliases=aliases, **same)


def withdraw_unrecorded(staging: Path, repository: Root, model: str, version: int) -> None:
    """Take back what was published without a record, so that a full disk does not stay full of it.

    If the record may be there after all, nothing is taken back: a folder without a record is invisible, but a record
    without its folder is a broken release.
    """
    with contextlib.suppress(OSError, ParitygateError):
        if version not in read_state_of(repository, model).releases:
            store_of(repository).withdraw(release_name(model, version), staging)
