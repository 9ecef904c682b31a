"""Which runs the releases of a model rest on: the evidence of a release names its run, and the log vouches for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.errors import ArtifactIntegrityError, InputFileError, RepositoryError, UsageError
from paritygate.pipelines.past_runs.finding import PastRun
from paritygate.pipelines.release.promote import repository_of
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.manifest import read_manifest, read_released_evidence
from paritygate.pipelines.release.repository.state import state_of
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.pipelines.run.released_to import released_to
from paritygate.pipelines.run.workspace import open_run
from paritygate.pipelines.spec.names import check_name


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseOfRun:
    """A release that a run came to: its version, the aliases that point to it, and the repository."""

    version: int
    aliases: tuple[str, ...]
    repository: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasesOfModel:
    """What is released of a model.

    Attributes:
        by_run: The releases that rest on each run, by its id, the newest last.
        noted: The repositories that each run's own folder notes, by its id.
        unknown: Why not all of them are known, in words; empty where they are.
    """

    by_run: Mapping[str, tuple[ReleaseOfRun, ...]] = field(default_factory=dict)
    noted: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    unknown: str = ""


def releases_of(model: str, runs: Iterable[PastRun], root: Path, repositories: Iterable[Path]) -> ReleasesOfModel:
    """Return what is released of a model.

    Args:
        model: Its name.
        runs: Its runs, whose specs say where they are released to.
        root: What the runs lie below; a repository there is looked at as well.
        repositories: Others, which no spec names.
    """
    names, places, unknown = {model}, {root / "repository", *repositories}, ""
    noted: dict[str, tuple[Path, ...]] = {}
    for run in runs:
        # Where a damaged run was to be released to is not known; the others of its model mostly say it.
        with contextlib.suppress(InputFileError, UsageError, OSError):
            opened = open_run(run.folder, is_held=False)
            # The folder may have been given another name since.
            names.add(check_name("model", opened.resolved.name))
            places.add(repository_of(opened, root))
        try:
            noted[run.run_id] = released_to(run.folder)
            places.update(noted[run.run_id])
        except InputFileError as err:
            unknown = unknown or str(err)
    found: dict[str, tuple[ReleaseOfRun, ...]] = {}
    for repository in sorted({Path(os.path.realpath(place)) for place in places if _may_be_there(place)}):
        for name in sorted(names):
            problem = _add(found, repository, name)
            unknown = unknown or problem
    return ReleasesOfModel(by_run=found, noted=noted, unknown=unknown)


def _add(found: dict[str, tuple[ReleaseOfRun, ...]], repository: Path, model: str) -> str:
    """Add what a repository holds, and return why that is not all; empty where it is."""
    try:
        # What cannot be listed, such as a file or a link that leads nowhere, may be a repository that is not there now.
        next(repository.iterdir(), None)
        for run_id, release in _releases_in(repository, model):
            found[run_id] = (*found.get(run_id, ()), release)
    except (RepositoryError, ArtifactIntegrityError, InputFileError) as err:
        return str(err)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        return f"{repository} could not be read: {type(err).__name__}: {err}"
    return ""


def _may_be_there(place: Path) -> bool:
    """Return whether something is there, or cannot be looked for."""
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _releases_in(repository: Path, model: str) -> Iterator[tuple[str, ReleaseOfRun]]:
    state = state_of(read_records(repository, model))
    for version, record in state.releases.items():
        folder = release_folder(repository, model, version)
        evidence = read_released_evidence(folder, read_manifest(folder, record))
        aliases = tuple(sorted(alias for alias, pointed in state.aliases.items() if pointed == version))
        release = ReleaseOfRun(version=version, aliases=aliases, repository=repository)
        yield from ((run_id, release) for run_id in sorted(_runs_in(evidence)))


def _runs_in(evidence: Mapping[str, Any]) -> set[str]:
    """Return the runs that the evidence of a release is of, on all devices."""
    return {str(item["run"]) for item in (evidence, *evidence.get("others", ())) if "run" in item}
