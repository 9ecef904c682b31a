"""Moving an alias to a release that is there: back to where it was before, or anywhere by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.inspect import read_state, version_of
from paritygate.pipelines.release.repository.log import append_record
from paritygate.pipelines.release.repository.manifest import difference_of_release
from paritygate.pipelines.release.repository.record import Record, RecordKind, utc_now
from paritygate.pipelines.release.repository.staging import staging_folder
from paritygate.pipelines.release.repository.state import ModelState, state_of
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.pipelines.spec.names import check_alias
from paritygate.text import meant

_USUAL_ALIAS = "prod"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What the log keeps of why and by whom an alias was moved.

    Attributes:
        reason: Why, in words.
        who: Who did it; may be empty.
        host: Where; may be empty.
    """

    reason: str = ""
    who: str = ""
    host: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AliasMove:
    """Where an alias points to now, and where it did before.

    Attributes:
        model: The model's name.
        alias: The alias.
        version: The version that it points to, whose files were verified.
        previous: The version that it pointed to before; None if there was no such alias.
        past: The versions that it can be rolled back to from here, the nearest first.
        record: Number of the record in the model's log; None if the alias was there already.
        is_rollback: Whether it was rolled back.
    """

    model: str
    alias: str
    version: int
    previous: int | None
    past: tuple[int, ...]
    record: int | None
    is_rollback: bool

    @property
    def in_words(self) -> str:
        """What it is, in words."""
        return f"moved alias {self.alias} of {self.model} to {self.version}"


_NO_NOTE = Note()


def roll_back(  # noqa: PLR0913 - one argument for each option of the command
    repository: Path,
    model: str,
    *,
    alias: str | None = None,
    to: int | None = None,
    note: Note = _NO_NOTE,
    commit: Commit[AliasMove] | None = None,
) -> AliasMove:
    """Move an alias back to a version that it pointed to before, whose files are verified first.

    What it is rolled back from is no longer in its past, so that the next rollback goes further back.

    Args:
        repository: The root of the repository.
        model: The model's name.
        alias: The alias; `prod`, or the only one there is, if None.
        to: A version in the alias's past; the nearest one if None.
        note: What the log keeps of why and by whom.
        commit: Is told what is about to be recorded, and that it was.

    Raises:
        UsageError: There is no such model, alias or version, or the version is not in the alias's past.
        ArtifactIntegrityError: The release is not what was released; the alias stays where it is.
        InputFileError: There is no such repository, or a file of the release cannot be read.
        RepositoryError: The log is corrupt.
        StorageError: The disk is full, or the repository cannot be written.
    """

    def target(state: ModelState) -> tuple[str, int]:
        name = _alias_of(repository, state, model, alias)
        return name, _version_before(repository, state, model, name, to)

    return _move(repository, model, RecordKind.ROLLED_BACK, target, note, commit)


def point_alias(  # noqa: PLR0913 - one argument for each option of the command
    repository: Path,
    model: str,
    alias: str,
    which: int | str,
    *,
    note: Note = _NO_NOTE,
    commit: Commit[AliasMove] | None = None,
) -> AliasMove:
    """Point an alias, which need not exist, to a release whose files are verified first.

    Args:
        repository: The root of the repository.
        model: The model's name.
        alias: The alias.
        which: A version, as a number or its digits, or another alias.
        note: What the log keeps of why and by whom.
        commit: Is told what is about to be recorded, and that it was.

    Raises:
        UsageError: There is no such model or version, or `alias` cannot be an alias.
        ArtifactIntegrityError: The release is not what was released; the alias stays where it is.
        InputFileError: There is no such repository, or a file of the release cannot be read.
        RepositoryError: The log is corrupt.
        StorageError: The disk is full, or the repository cannot be written.
    """
    check_alias(alias)

    def target(state: ModelState) -> tuple[str, int]:
        return alias, version_of(state, model, which)

    return _move(repository, model, RecordKind.ALIAS_MOVED, target, note, commit)


def _alias_of(repository: Path, state: ModelState, model: str, alias: str | None) -> str:
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
    # An alias may have been at the same version twice, with others between: to stay where it is would be no way back.
    return tuple(dict.fromkeys(version for version in reversed(state.pasts[alias]) if version != current))


def _version_before(repository: Path, state: ModelState, model: str, alias: str, to: int | None) -> int:
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
        msg = f"version {to} is not in the past of alias {alias!r} of {model!r} (it is at {current}; before: {before})"
    raise UsageError(msg, hint=hint)


def _move(  # noqa: PLR0913, PLR0917 - what the two ways to move an alias share
    repository: Path,
    model: str,
    kind: RecordKind,
    target: Callable[[ModelState], tuple[str, int]],
    note: Note,
    commit: Commit[AliasMove] | None,
) -> AliasMove:
    """Record that an alias moves to `target`, which is asked again where another process recorded something first."""
    # What is wrong with the call is said before anything is written.
    target(read_state(repository, model))
    verified: set[int] = set()
    moves: list[AliasMove] = []
    commit = commit or Commit()

    def record_of(state: ModelState) -> Record | None:
        alias, version = target(state)
        if version not in verified:
            _check_intact(repository, model, alias, version, state)
            verified.add(version)
        record = Record(
            kind=kind, time=utc_now(), aliases={alias: version}, reason=note.reason, who=note.who, host=note.host
        )
        move = AliasMove(
            model=model,
            alias=alias,
            version=version,
            previous=state.aliases.get(alias),
            past=_past_of(state_of([*state.history, record]), alias),
            record=None,
            is_rollback=kind is RecordKind.ROLLED_BACK,
        )
        moves.append(move)
        if move.previous == version:
            return None
        commit.begin(replace(move, record=len(state.history) + 1))
        return record

    with staging_folder(repository) as staging:
        number = append_record(repository, model, record_of, staging, commit)
    return replace(moves[-1], record=number)


def _check_intact(repository: Path, model: str, alias: str, version: int, state: ModelState) -> None:
    folder = release_folder(repository, model, version)
    difference, _ = difference_of_release(folder, state.releases[version])
    if not difference.is_empty:
        msg = f"version {version} of {model!r} is corrupt, alias {alias!r} was not moved: {difference}"
        others = ", ".join(str(other) for other in sorted(state.releases) if other != version) or "none"
        again = command_on(repository, "alias", model, alias, "VERSION")
        hint = f"restore {folder} from a backup, or move the alias to another version ({others}) with: {again}"
        raise ArtifactIntegrityError(msg, hint=hint)
