"""Add up the records of a model: its releases, its aliases, and where each alias was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paritygate.errors import RepositoryError
from paritygate.pipelines.release.repository.record import Record, RecordKind


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelState:
    """Hold the sum of the records of a model.

    An alias can go back to the versions in `pasts`, oldest first: those that it was released or moved to before the
    present one. Versions that it was rolled back from, and collected ones, are not among them.
    """

    releases: Mapping[int, Record]  # by version, in the order of release; only those whose files are there
    collected: Mapping[int, Record]  # by version, the record of its collection
    aliases: Mapping[str, int]  # the version of each
    pasts: Mapping[str, tuple[int, ...]]
    # Versions that an alias was rolled back from and not moved to since, each with the number of that record.
    left: Mapping[str, Mapping[int, int]]
    stacks: Mapping[str, tuple[int, ...]]  # of each alias: `pasts` with those versions, and the present one
    history: tuple[Record, ...]  # the first has number 1


def state_of(records: Sequence[Record], since: ModelState | None = None) -> ModelState:
    """Return the sum of `records`, in the order of their numbers. `since` is that of the first of them, if it is known.

    Raises:
        RepositoryError: They contradict each other, such as by a version that is released twice.
    """
    known = since if since is not None and tuple(records[: len(since.history)]) == since.history else _NOTHING
    releases, collected = dict(known.releases), dict(known.collected)
    # The last of each is where the alias points to; a rollback takes the end off and adds nothing, so that the next
    # one goes further back.
    stacks = dict(known.stacks)
    # An alias may have been at a version twice, and the version that it was rolled back from is no way back.
    left = {alias: dict(versions) for alias, versions in known.left.items()}
    for number, record in enumerate(records[len(known.history) :], start=len(known.history) + 1):
        problem = _contradiction(record, releases, collected, stacks)
        if problem:
            msg = f"record {number} of the log ({record.kind}) contradicts those before it: {problem}"
            raise RepositoryError(msg, hint="restore the log from a backup: records are never edited")
        if record.version is not None and record.kind is RecordKind.RELEASED:
            releases[record.version] = record
        elif record.version is not None and record.kind is RecordKind.COLLECTED:
            # What a killed promotion left was never released.
            releases.pop(record.version, None)
            collected[record.version] = record
            stacks = {alias: _without(stack, record.version) for alias, stack in stacks.items()}
        for alias, version in record.aliases.items():
            before, is_back = stacks.get(alias, ()), record.kind is RecordKind.ROLLED_BACK
            from_here = before[-1:] if is_back and version in before else ()
            left[alias] = {**left.get(alias, {}), **dict.fromkeys(from_here, number)}
            left[alias].pop(version, None)
            stacks[alias] = _moved(before, version, is_back=is_back)
    return ModelState(
        releases=releases,
        collected=collected,
        aliases={alias: stack[-1] for alias, stack in stacks.items()},
        pasts={alias: tuple(item for item in stack[:-1] if item not in left[alias]) for alias, stack in stacks.items()},
        left=left,
        stacks=stacks,
        history=tuple(records),
    )


_NOTHING = ModelState(releases={}, collected={}, aliases={}, pasts={}, left={}, stacks={}, history=())


def _moved(stack: tuple[int, ...], version: int, *, is_back: bool) -> tuple[int, ...]:
    if is_back and version in stack:
        return stack[: len(stack) - stack[::-1].index(version)]
    return stack if stack[-1:] == (version,) else (*stack, version)


def _without(stack: tuple[int, ...], collected: int) -> tuple[int, ...]:
    left: tuple[int, ...] = ()
    for version in stack:
        if version != collected:
            left = _moved(left, version, is_back=False)
    return left


def contradiction(record: Record, state: ModelState) -> str:
    """Return what makes `record` impossible after those that led to `state`, or an empty text."""
    return _contradiction(record, state.releases, state.collected, state.stacks)


def _contradiction(
    record: Record,
    releases: Mapping[int, Record],
    collected: Mapping[int, Record],
    stacks: Mapping[str, tuple[int, ...]],
) -> str:
    problem = _why_impossible(record, releases, collected, stacks)
    moves = (_why_not_moved(record, alias, releases, collected, stacks.get(alias, ())) for alias in record.aliases)
    return problem or next(filter(None, moves), "")


def _why_impossible(
    record: Record,
    releases: Mapping[int, Record],
    collected: Mapping[int, Record],
    stacks: Mapping[str, tuple[int, ...]],
) -> str:
    """Return what is wrong with a record apart from its aliases; each text is made only if it applies."""
    version, is_collection = record.version, record.kind is RecordKind.COLLECTED
    if not is_collection and record.kind is not RecordKind.RELEASED:
        return "" if record.aliases else "it names no alias"
    if version is None or version < 1:
        return f"version {version} is not a version"
    if version in collected or (not is_collection and version in releases):
        return f"version {version} was {'collected' if is_collection else 'released'} before"
    if not is_collection:
        return "it names no manifest" if record.manifest is None else ""
    if record.aliases:
        return "it moves an alias"
    return f"an alias points to version {version}" if any(stack[-1] == version for stack in stacks.values()) else ""


def _why_not_moved(
    record: Record, alias: str, releases: Mapping[int, Record], collected: Mapping[int, Record], stack: tuple[int, ...]
) -> str:
    target = record.aliases[alias]
    if target in collected:
        return f"version {target} was collected by then"
    if target not in releases and not (record.kind is RecordKind.RELEASED and target == record.version):
        return f"version {target} was not released by then"
    if record.kind is not RecordKind.ROLLED_BACK:
        return ""
    if not stack:
        return f"alias {alias!r} did not exist by then"
    is_possible = target in stack[:-1] and target != stack[-1]
    return "" if is_possible else f"alias {alias!r} was not at version {target} before"
