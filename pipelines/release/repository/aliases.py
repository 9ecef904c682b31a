"""Move aliases to a release: back to an earlier one, or to any by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import ArtifactIntegrityError, RepositoryError, UsageError
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.inspect import read_state, version_of
from paritygate.pipelines.release.repository.log import append_record
from paritygate.pipelines.release.repository.manifest import difference_of_release
from paritygate.pipelines.release.repository.record import Record, RecordKind, utc_now
from paritygate.pipelines.release.repository.state import ModelState, state_of
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.spec.names import check_alias
from paritygate.roots import Root
from paritygate.text import meant

_USUAL_ALIAS = "prod"


class Note(Struct, frozen=True, kw_only=True):
    """Keep why, by whom and on which host an alias was moved; each may be empty."""

    reason: str = ""
    who: str = ""
    host: str = ""


class OtherMove(Struct, frozen=True, kw_only=True):
    """Name an alias that the same record moves, its version now, and the one before; None for a new alias."""

    alias: str
    version: int
    previous: int | None


class AliasMove(Struct, frozen=True, kw_only=True):
    """Describe where an alias points to now, and where it did before."""

    model: str
    alias: str
    version: int  # whose files were verified
    previous: int | None  # None for a new alias
    past: tuple[int, ...]  # to which a rollback can go from here, the nearest first
    record: int | None  # its number in the model's log; None if nothing had to move
    is_rollback: bool
    also: tuple[OtherMove, ...] = ()  # of the same record

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names of all aliases."""
        return (self.alias, *(other.alias for other in self.also))

    @property
    def in_words(self) -> str:
        """A description for messages."""
        others = "".join(f", {move.alias} to {move.version}" for move in self.also)
        return f"moved alias {self.alias} of {self.model} to {self.version}{others}"


_NO_NOTE = Note()


def roll_back(  # noqa: PLR0913 - one argument for each option of the command
    repository: Root,
    model: str,
    *,
    alias: str | None = None,
    to: int | None = None,
    if_current: int | None = None,
    note: Note = _NO_NOTE,
    commit: Commit[AliasMove] | None = None,
) -> AliasMove:
    """Move an alias back to an earlier version, after verifying the files of that version.

    The version that it leaves is no longer in its past, so the next rollback goes further back. Without `alias` it
    moves `prod`, or the only alias; without `to` it moves to the nearest earlier version. `if_current` is the version
    that the alias must point to now, 0 for a new alias. `commit` receives the move before and after it is recorded.

    Raises:
        UsageError: There is no such model, alias or version, or the version is not in the alias's past.
        ArtifactIntegrityError: The release is corrupt; the alias stays.
        InputFileError: There is no such repository, or a file of the release cannot be read.
        RepositoryError: The log is corrupt, or the alias is not at `if_current`.
        StorageError: The disk is full, or the repository cannot be written.
    """

    def targets(state: ModelState) -> dict[str, int]:
        name = _alias_of(repository, state, model, alias)
        check_current(state, model, name, if_current)
        return {name: _version_before(repository, state, model, name, to)}

    return _move(repository, model, RecordKind.ROLLED_BACK, targets, note, commit)


def point_alias(  # noqa: PLR0913 - one argument for each option of the command
    repository: Root,
    model: str,
    alias: str,
    which: int | str,
    *,
    also: Mapping[str, int | str] | None = None,
    if_current: int | None = None,
    note: Note = _NO_NOTE,
    commit: Commit[AliasMove] | None = None,
) -> AliasMove:
    """Point a new or old alias to a release, after verifying its files; all of `also` move with it or none.

    `which` is a version, as a number or its digits, or another alias, as it pointed before the move. `also` has the
    same for further aliases of the same record. `if_current` is the version that `alias` must point to now, 0 for a new
    alias. `commit` receives the move before and after it is recorded.

    Raises:
        UsageError: There is no such model or version, or a name cannot be an alias or is given twice.
        ArtifactIntegrityError: A release is corrupt; every alias stays.
        InputFileError: There is no such repository, or a file of the release cannot be read.
        RepositoryError: The log is corrupt, or the alias is not at `if_current`.
        StorageError: The disk is full, or the repository cannot be written.
    """
    also = also or {}
    if alias in also:
        raise UsageError(f"alias {alias!r} is given twice", hint="give each alias once")
    for name in (alias, *also):
        check_alias(name)

    def targets(state: ModelState) -> dict[str, int]:
        check_current(state, model, alias, if_current)
        return {name: version_of(state, model, version) for name, version in {alias: which, **also}.items()}

    return _move(repository, model, RecordKind.ALIAS_MOVED, targets, note, commit)


def check_current(state: ModelState, model: str, alias: str, version: int | None) -> None:
    """Check that an alias points to the version that the caller expects; 0 means no such alias, None anything.

    Raises:
        RepositoryError: It points elsewhere.
    """
    current = state.aliases.get(alias, 0)
    if version is not None and current != version:
        where = f"at version {current}" if current else "not set"
        msg = f"alias {alias!r} of {model!r} is {where}, so nothing was moved (expected: {version or 'no alias'})"
        raise RepositoryError(msg, hint="check who moved it, and give --if-current its current version")


def _alias_of(repository: Root, state: ModelState, model: str, alias: str | None) -> str:
    names = sorted(state.aliases)
    if alias is None and _USUAL_ALIAS in names:
        return _USUAL_ALIAS
    if alias is None and len(names) == 1:
        return names[0]
    if alias in names:
        return alias
    listed = ", ".join(names) or "none"
    if alias is None and names:
        msg = f"model {model!r} has several aliases, none of them {_USUAL_ALIAS!r} ({listed})"
        raise UsageError(msg, hint=f"name one of them, such as --alias {names[0]}")
    named, near = ("", "") if alias is None else (f" {alias!r}", meant(alias, names))
    msg = f"model {model!r} has no alias{named} (aliases: {listed}){near}"
    again = command_on(repository, "alias", model, alias or _USUAL_ALIAS, "VERSION")
    raise UsageError(msg, hint=f"set one with: {again}")


def _past_of(state: ModelState, alias: str) -> tuple[int, ...]:
    """Return the versions that an alias can be rolled back to, the nearest first, each once."""
    current = state.aliases[alias]
    # An alias may have been at one version twice, with others between, and staying there is no way back.
    return tuple(dict.fromkeys(version for version in reversed(state.pasts[alias]) if version != current))


def _version_before(repository: Root, state: ModelState, model: str, alias: str, to: int | None) -> int:
    current, past = state.aliases[alias], _past_of(state, alias)
    if to is None and past:
        return past[0]
    if to is not None:
        version_of(state, model, to)
    if to is not None and to in past:
        return to
    before = ", ".join(map(str, past)) or "none"
    elsewhere = str(to) if to is not None and to != current else "VERSION"
    hint = f"move it to any version with: {command_on(repository, 'alias', model, alias, elsewhere)}"
    if set(state.releases) == {current}:
        hint = "this is the only release; roll back after the next run that passes"
    if to is None:
        msg = f"alias {alias!r} of {model!r} is at version {current}, and there is no version before it to go back to"
    else:
        msg = f"version {to} is not a past version of alias {alias!r} of {model!r} (now: {current}; before: {before})"
    raise UsageError(msg, hint=hint)


def _move(  # noqa: PLR0913, PLR0917 - shared by the two ways to move an alias
    repository: Root,
    model: str,
    kind: RecordKind,
    targets: Callable[[ModelState], Mapping[str, int]],
    note: Note,
    commit: Commit[AliasMove] | None,
) -> AliasMove:
    """Record that aliases move to their targets, which are computed again if another process records first."""
    # A wrong call fails before anything is written.
    known = read_state(repository, model)
    targets(known)
    verified: set[int] = set()
    moves: list[AliasMove] = []
    commit = commit or Commit()

    def record_of(state: ModelState) -> Record | None:
        versions = targets(state)
        for alias, version in versions.items():
            if version not in verified:
                _check_intact(repository, model, alias, version, state)
                verified.add(version)
        changed = {alias: version for alias, version in versions.items() if state.aliases.get(alias) != version}
        record = Record(kind=kind, time=utc_now(), aliases=changed, reason=note.reason, who=note.who, host=note.host)
        (alias, version), *others = versions.items()
        after = state_of([*state.history, record]) if changed else state
        move = AliasMove(
            model=model,
            alias=alias,
            version=version,
            previous=state.aliases.get(alias),
            past=_past_of(after, alias),
            record=None,
            is_rollback=kind is RecordKind.ROLLED_BACK,
            also=tuple(OtherMove(alias=name, version=to, previous=state.aliases.get(name)) for name, to in others),
        )
        moves.append(move)
        if not changed:
            return None
        commit.begin(replace(move, record=len(state.history) + 1))
        return record

    with store_of(repository).staging() as staging:
        number = append_record(repository, model, record_of, staging, commit, known)
    return replace(moves[-1], record=number)


def _check_intact(repository: Root, model: str, alias: str, version: int, state: ModelState) -> None:
    folder = release_folder(repository, model, version)
    difference, _ = difference_of_release(folder, state.releases[version])
    if not difference.is_empty:
        msg = f"version {version} of {model!r} is corrupt, alias {alias!r} was not moved: {difference}"
        others = ", ".join(str(other) for other in sorted(state.releases) if other != version) or "none"
        again = command_on(repository, "alias", model, alias, "VERSION")
        hint = f"restore {folder} from a backup, or move the alias to another version ({others}) with: {again}"
        raise ArtifactIntegrityError(msg, hint=hint)
