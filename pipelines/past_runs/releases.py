"""Find the releases of runs: the evidence of a release names its run, and the log vouches for the evidence."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paritygate.errors import InputFileError, ParitygateError, UsageError
from paritygate.pipelines.past_runs.finding import PastRun
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.manifest import read_manifest, read_released_evidence
from paritygate.pipelines.release.repository.state import state_of
from paritygate.pipelines.release.repository.store import release_folder
from paritygate.pipelines.release.repository_of_run import repository_of
from paritygate.pipelines.run.released_to import released_to
from paritygate.pipelines.run.workspace import open_run
from paritygate.pipelines.spec.names import check_name
from paritygate.roots import Root


class ReleaseOfRun(Struct, frozen=True, kw_only=True):
    """A release of a run: its version, its aliases, and the repository."""

    version: int
    aliases: tuple[str, ...]
    repository: Root


class ReleasesOfModel(Struct, frozen=True, kw_only=True):
    """The releases of a model.

    `by_run` has them by run id, the newest last. `noted` are the repositories in each run's own folder. `unknown` is
    why some may be missing, or empty.
    """

    by_run: Mapping[str, tuple[ReleaseOfRun, ...]] = field(default_factory=dict)
    noted: Mapping[str, tuple[Root, ...]] = field(default_factory=dict)
    unknown: str = ""


def releases_of(model: str, runs: Iterable[PastRun], root: Path, repositories: Iterable[Path]) -> ReleasesOfModel:
    """Return a model's releases in repositories that its runs' specs name, in that below `root`, and in others."""
    names, unknown = {model}, ""
    places: set[Root] = {root / "repository", *repositories}
    noted: dict[str, tuple[Root, ...]] = {}
    for run in runs:
        # A damaged run's repository is unknown; other runs of its model mostly name it.
        with contextlib.suppress(InputFileError, UsageError, OSError):
            opened = open_run(run.folder, is_held=False)
            # The folder may have been renamed since.
            names.add(check_name("model", opened.resolved.name))
            places.add(repository_of(opened, root))
        try:
            noted[run.run_id] = released_to(run.folder)
            places.update(noted[run.run_id])
        except InputFileError as err:
            unknown = unknown or str(err)
    by_run: dict[str, tuple[ReleaseOfRun, ...]] = {}
    for repository in sorted({_real(place) for place in places if _may_be_there(place)}, key=str):
        for name in sorted(names):
            problem = _add(by_run, repository, name)
            unknown = unknown or problem
    return ReleasesOfModel(by_run=by_run, noted=noted, unknown=unknown)


def _add(found: dict[str, tuple[ReleaseOfRun, ...]], repository: Root, model: str) -> str:
    """Add a repository's releases, and return why some may be missing, or an empty text."""
    try:
        # A place that cannot be listed, such as a dead link, may be a repository that is away now.
        if isinstance(repository, Path):
            next(repository.iterdir(), None)
        for run_id, release in _releases_in(repository, model):
            found[run_id] = (*found.get(run_id, ()), release)
    except ParitygateError as err:
        return str(err)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        return f"{repository} could not be read: {type(err).__name__}: {err}"
    return ""


def _real(place: Root) -> Root:
    return Path(os.path.realpath(place)) if isinstance(place, Path) else place


def _may_be_there(place: Root) -> bool:
    """Return whether a place exists, or cannot be checked."""
    if not isinstance(place, Path):
        return True
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _releases_in(repository: Root, model: str) -> Iterator[tuple[str, ReleaseOfRun]]:
    state = state_of(read_records(repository, model))
    for version, record in state.releases.items():
        folder = release_folder(repository, model, version)
        evidence = read_released_evidence(folder, read_manifest(folder, record))
        aliases = tuple(sorted(alias for alias, pointed in state.aliases.items() if pointed == version))
        release = ReleaseOfRun(version=version, aliases=aliases, repository=repository)
        yield from ((run_id, release) for run_id in sorted(_runs_in(evidence)))


def _runs_in(evidence: Mapping[str, Any]) -> set[str]:
    """Return the runs of a release's evidence, on all devices."""
    return {str(item["run"]) for item in (evidence, *evidence.get("others", ())) if "run" in item}
