"""Refuse to move an alias to content that it was rolled back from, unless somebody names that version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paritygate.errors import ArtifactIntegrityError, RepositoryError
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.manifest import read_manifest
from paritygate.pipelines.release.repository.record import Record, RecordKind
from paritygate.pipelines.release.repository.state import ModelState
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.roots import Root


class RolledBackError(RepositoryError):
    """The alias was rolled back from a release of this preferred variant; `rollback` has the record, as JSON data."""

    def __init__(self, message: str, *, hint: str, command: str, rollback: Mapping[str, Any]) -> None:
        super().__init__(message, hint=hint, command=command)
        self.rollback = rollback


def remembered(state: ModelState) -> set[int]:
    """Return the versions that an alias was rolled back from, unless what it is at now was released after that."""
    released = {
        record.version: number
        for number, record in enumerate(state.history, start=1)
        if record.kind is RecordKind.RELEASED
    }
    return {
        version
        for alias, left in state.left.items()
        for version, number in left.items()
        if released[state.aliases[alias]] < number
    }


def check_not_rolled_back(repository: Root, candidate: ReleaseCandidate, alias: str, state: ModelState) -> None:
    """Check that an alias was not rolled back from a release of the same files, whoever signed it.

    Rules, devices, reasons and the order of the variants do not count: none of them changes what was bad.

    Raises:
        RolledBackError: It was, and nobody has moved the alias there since.
        ArtifactIntegrityError: It was rolled back from a corrupt release, so nobody knows of what.
    """
    variants = [variant.to_json() for variant in candidate.variants]
    for version, number in sorted(state.left.get(alias, {}).items(), reverse=True):
        if version not in state.releases:
            continue
        left = _variants_of(repository, candidate.model, alias, version, state.releases[version])
        if _files_of(left[0]) in map(_files_of, variants) and _files_of(variants[0]) in map(_files_of, left):
            raise _rolled_back(repository, candidate, alias, version, number, state.history[number - 1])


def _files_of(variant: Mapping[str, Any]) -> tuple[str, str, str]:
    return variant["name"], variant["role"], variant["digest"]


def _variants_of(repository: Root, model: str, alias: str, version: int, record: Record) -> Sequence[Mapping[str, Any]]:
    try:
        variants: Sequence[Mapping[str, Any]] = read_manifest(release_folder(repository, model, version), record)[
            "variants"
        ]
    except ArtifactIntegrityError as err:
        msg = (
            f"alias {alias!r} was rolled back from version {version} of {model!r}, whose manifest is corrupt: "
            "these files may be the same, so they are not released"
        )
        raise ArtifactIntegrityError(
            msg,
            hint=f"restore version {version} from a backup, or promote to another alias; check its files with",
            command=command_on(repository, "verify", model, str(version)),
        ) from err
    return variants


def _rolled_back(  # noqa: PLR0913, PLR0917 - what the message names
    repository: Root, candidate: ReleaseCandidate, alias: str, version: int, number: int, record: Record
) -> RolledBackError:
    by = f" by {record.who}" if record.who else ""
    msg = (
        f"{candidate.variants[0].name} has the files of version {version} of {candidate.model!r}; "
        f"alias {alias!r} was rolled back from it at {record.time[:16].replace('T', ' ')} UTC{by} "
        f"(reason: {record.reason or 'none given'}), so it stays"
    )
    known = {name: getattr(record, name) for name in ("time", "reason", "who", "host")}
    return RolledBackError(
        msg,
        # It lets failed runs through, which is another decision.
        hint=f"{'--despite undoes no rollback; ' * bool(candidate.despite)}to release version {version} all the same",
        command=command_on(repository, "alias", candidate.model, alias, str(version)),
        rollback={"alias": alias, "version": version, "record": number, **known},
    )
