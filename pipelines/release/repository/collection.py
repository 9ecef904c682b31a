"""Delete unneeded releases: the log records it first, so that no alias moves to them any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from paritygate.pipelines.release.repository.aliases import Note
from paritygate.pipelines.release.repository.inspect import read_state
from paritygate.pipelines.release.repository.log import append_record
from paritygate.pipelines.release.repository.record import CHAINED_SCHEMA, UPLOAD_SCHEMA, Record, RecordKind, utc_now
from paritygate.pipelines.release.repository.rolled_back import remembered
from paritygate.pipelines.release.repository.state import ModelState
from paritygate.pipelines.release.repository.store import release_name, stored_versions
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.roots import Root

# A promotion takes minutes. One that lasts longer finds its number recorded as collected, and fails as a whole.
_GRACE_S = 24 * 3600.0


class CollectedRelease(Struct, frozen=True, kw_only=True):
    """Name a deleted release, the number of its record, and how much space it took."""

    version: int
    record: int | None
    size_bytes: int


class Collection(Struct, frozen=True, kw_only=True):
    """List what was deleted of a model, or would be."""

    model: str
    kept: tuple[int, ...]  # ascending
    collected: tuple[CollectedRelease, ...]
    abandoned: tuple[CollectedRelease, ...]  # stored a day ago or longer, and never recorded as released
    leftovers: tuple[CollectedRelease, ...]  # recorded by an earlier, interrupted collection
    is_dry_run: bool


def collect(repository: Root, model: str, *, keep: int, note: Note, is_dry_run: bool = False) -> Collection:
    """Delete the releases of a model that neither an alias nor one of the last `keep` records names.

    Records of collections do not count among the last ones. What killed promotions stored is deleted too, after a day.
    A killed collection is completed by the next one.

    Raises:
        UsageError: There is no such model.
        InputFileError: There is no such repository.
        RepositoryError: The log is corrupt.
        StorageError: The repository cannot be written.
    """
    state = read_state(repository, model)
    store = store_of(repository)
    if not is_dry_run:
        # Opened and closed, it deletes what dead processes left.
        with store.staging():
            pass

    def deleted(version: int, is_unneeded: Callable[[ModelState], bool]) -> list[CollectedRelease]:
        number = None if is_dry_run else _record(repository, model, version, is_unneeded, note)
        is_kept = not is_dry_run and number is None
        return [] if is_kept else [_delete(repository, model, version, number, is_dry_run=is_dry_run)]

    # Some servers list a folder for a while after its last object is gone, so names do not count.
    left = [version for version in state.collected if store.size_bytes(release_name(model, version))]
    leftovers = tuple(_delete(repository, model, version, None, is_dry_run=is_dry_run) for version in left)
    collected = [
        release
        for version in _dispensable(state, keep)
        for release in deleted(version, partial(_is_dispensable, version, keep))
    ]
    abandoned = [
        release
        for version in stored_versions(repository, model)
        if _is_unrecorded(version, state) and store.age_s(release_name(model, version)) > _GRACE_S
        for release in deleted(version, partial(_is_unrecorded, version))
    ]
    gone = {release.version for release in collected}
    return Collection(
        model=model,
        kept=tuple(sorted(version for version in read_state(repository, model).releases if version not in gone)),
        collected=tuple(collected),
        abandoned=tuple(abandoned),
        leftovers=leftovers,
        is_dry_run=is_dry_run,
    )


def _is_dispensable(version: int, keep: int, state: ModelState) -> bool:
    return version in _dispensable(state, keep)


def _is_unrecorded(version: int, state: ModelState) -> bool:
    return version not in state.releases and version not in state.collected


def _dispensable(state: ModelState, keep: int) -> list[int]:
    """Return the versions that neither an alias nor one of the last `keep` records names, ascending.

    A version that an alias was rolled back from is kept until the alias is at one that was released after that.
    """
    # A collection names what it deletes, so counting it would make the next one delete more.
    last = [record for record in state.history if record.kind is not RecordKind.COLLECTED][-keep:]
    named = {version for record in last for version in (record.version, *record.aliases.values())}
    # Without its files, the content of a release that was rolled back would count as new.
    needed = {*state.aliases.values(), *named, *remembered(state)}
    return sorted(version for version in state.releases if version not in needed)


def _record(
    repository: Root, model: str, version: int, is_unneeded: Callable[[ModelState], bool], note: Note
) -> int | None:
    """Record that a version is collected, and return the number; None if somebody needs it by now."""

    def record_of(state: ModelState) -> Record | None:
        if not is_unneeded(state):
            return None
        return Record(
            kind=RecordKind.COLLECTED,
            time=utc_now(),
            version=version,
            reason=note.reason,
            who=note.who,
            host=note.host,
            schema=CHAINED_SCHEMA if version in state.releases else UPLOAD_SCHEMA,
        )

    with store_of(repository).staging() as staging:
        return append_record(repository, model, record_of, staging)


def _delete(repository: Root, model: str, version: int, number: int | None, *, is_dry_run: bool) -> CollectedRelease:
    """Move a collected release into a staging folder, which is deleted, also by the next process after a kill."""
    store, name = store_of(repository), release_name(model, version)
    size = store.size_bytes(name)
    if not is_dry_run:
        with store.staging() as staging:
            store.withdraw(name, staging)
    return CollectedRelease(version=version, record=number, size_bytes=size)
