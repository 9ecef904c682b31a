"""Which runs the releases of a model rest on: the evidence of a release names its run, and the log vouches for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.errors import ArtifactIntegrityError, InputFileError, RepositoryError
from paritygate.pipelines.past_runs.finding import PastRun
from paritygate.pipelines.release.promote import repository_of
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.manifest import read_manifest, read_released_evidence
from paritygate.pipelines.release.repository.state import state_of
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.pipelines.run.workspace import open_run

__all__ = ["ReleaseOfRun", "ReleasesOfModel", "releases_of"]


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
        unknown: Why not all of them are known, in words; empty where they are.
    """

    by_run: Mapping[str, tuple[ReleaseOfRun, ...]] = field(default_factory=dict)
    unknown: str = ""


def releases_of(model: str, runs: Iterable[PastRun], root: Path, repositories: Iterable[Path]) -> ReleasesOfModel:
    """Return what is released of a model.

    Args:
        model: Its name.
        runs: Its runs, whose specs say where they are released to.
        root: What the runs lie below; a repository there is looked at as well.
        repositories: Others, which no spec names.
    """
    found: dict[str, tuple[ReleaseOfRun, ...]] = {}
    unknown = ""
    for repository in _places(runs, root, repositories):
        problem = _add(found, repository, model)
        unknown = unknown or problem
    return ReleasesOfModel(by_run=found, unknown=unknown)


def _add(found: dict[str, tuple[ReleaseOfRun, ...]], repository: Path, model: str) -> str:
    """Add what a repository holds, and return why that is not all; empty where it is."""
    try:
        for run_id, release in _releases_in(repository, model):
            found[run_id] = (*found.get(run_id, ()), release)
    except (RepositoryError, ArtifactIntegrityError, InputFileError) as err:
        return str(err)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        return f"{repository} could not be read: {type(err).__name__}: {err}"
    return ""


def _places(runs: Iterable[PastRun], root: Path, others: Iterable[Path]) -> list[Path]:
    places = [root / "repository", *others]
    for run in runs:
        # Where a damaged run was to be released to is not known; the others of its model mostly say it.
        with contextlib.suppress(InputFileError, OSError):
            places.append(repository_of(open_run(run.folder, is_held=False), root))
    return sorted({place.resolve() for place in places if place.is_dir()})


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
