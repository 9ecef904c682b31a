"""Refuse to move an alias to content that it was rolled back from, unless somebody names that version."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from paritygate.errors import ArtifactIntegrityError, RepositoryError
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.identity import identity_in
from paritygate.pipelines.release.repository.manifest import read_manifest
from paritygate.pipelines.release.repository.record import Record
from paritygate.pipelines.release.repository.state import ModelState
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.roots import Root


class RolledBackError(RepositoryError):
    """The alias was rolled back from a release of exactly this content; `rollback` has the record, as JSON data."""

    def __init__(self, message: str, *, hint: str, command: str, rollback: Mapping[str, Any]) -> None:
        super().__init__(message, hint=hint, command=command)
        self.rollback = rollback


def check_not_rolled_back(repository: Root, model: str, alias: str, identity: str | None, state: ModelState) -> None:
    """Check that an alias was not rolled back from a release of the same content, whoever signed it.

    `identity` is that of `identity_of`; None is like no release.

    Raises:
        RolledBackError: It was, and nobody has moved the alias there since.
    """
    for version, number in sorted(state.left.get(alias, {}).items(), reverse=True):
        if identity is None or version not in state.releases:
            continue
        # A corrupt release does not show its content.
        with contextlib.suppress(ArtifactIntegrityError):
            manifest = read_manifest(release_folder(repository, model, version), state.releases[version])
            if identity_in(manifest) == identity:
                raise _rolled_back(repository, model, alias, version, number, state.history[number - 1])


def _rolled_back(  # noqa: PLR0913, PLR0917 - what the message names
    repository: Root, model: str, alias: str, version: int, number: int, record: Record
) -> RolledBackError:
    by = f" by {record.who}" if record.who else ""
    msg = (
        f"this is exactly version {version} of {model!r}; alias {alias!r} was rolled back from it at "
        f"{record.time[:16].replace('T', ' ')} UTC{by} (reason: {record.reason or 'none given'}), so it stays"
    )
    known = {name: getattr(record, name) for name in ("time", "reason", "who", "host")}
    return RolledBackError(
        msg,
        hint=f"to release version {version} all the same",
        command=command_on(repository, "alias", model, alias, str(version)),
        rollback={"alias": alias, "version": version, "record": number, **known},
    )
