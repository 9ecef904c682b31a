"""A run of which nothing has changed is not done again: what it came to is kept, with all that it follows from.

That is what its jobs read, the spec, paritygate itself, what is installed, the other runs of the model, where its alias
points, and the run's own files, which are still to be there as it left them. Where one of these is otherwise, the run
is done, and each of its jobs is looked at for itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paritygate
from paritygate.errors import StorageError
from paritygate.files import digest_of_json
from paritygate.pipelines.cache.cache import Cache, cache_below
from paritygate.pipelines.cache.request import request_of
from paritygate.pipelines.cache.states import Memory, Read, first_difference
from paritygate.pipelines.process.witness.listener import identity_of, names_in

__all__ = ["AskedOfRun", "FinishedRun", "find_finished_run", "keep_finished_run"]

_WHAT = "run"
# Of use while a run is done, and to whoever looks into it.
_JOBS = "jobs"
_COMPILED = "__pycache__"


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """What a run came to.

    Attributes:
        folder: Its folder.
        made_at: When it was done, in UTC.
        lines: What it printed, line by line.
        verdict: The line with its verdict.
        outcome: `RunOutcome.to_json` of it.
    """

    folder: Path
    made_at: str
    lines: tuple[str, ...]
    verdict: str
    outcome: Mapping[str, Any]

    def outcome_now(self) -> dict[str, Any]:
        """Return the outcome of a run that comes to the same, JSON data: all jobs were taken over from this one."""
        taken = {"taken_from": self.folder.name, "why": "", "not_kept": "", "is_judged_anew": False}
        jobs = [{**job, **taken, "made_at": job["made_at"]} for job in self.outcome["jobs"]]
        return {**self.outcome, "jobs": jobs}


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedOfRun:
    """What is asked of a run.

    Attributes:
        spec: The spec, as the command line has it.
        options: All options that a run follows from, JSON data.
        root: What run folders lie below.
    """

    spec: str
    options: Mapping[str, Any]
    root: Path

    @property
    def key(self) -> str:
        """The key that what it came to is kept by."""
        asked = request_of(_WHAT, {"spec": self.spec, **self.options}, self.root)
        return digest_of_json({**asked, "root": str(self.root.resolve())}).removeprefix("sha256:")[:32]


def find_finished_run(asked: AskedOfRun) -> FinishedRun | None:
    """Return the run of which nothing has changed since; None where there is none, or something has."""
    cache = cache_below(asked.root, asked.root)
    if cache.store is None:
        return None
    try:
        for entry in cache.store.entries(asked.key):
            folder = Path(entry.value["folder"])
            if _is_as_left(folder, entry.value["files"]) and not first_difference(
                entry.read, asked.root, cache.memory, {}
            ):
                return FinishedRun(
                    folder=folder,
                    made_at=entry.made_at,
                    lines=tuple(entry.value["lines"]),
                    verdict=entry.value["verdict"],
                    outcome=entry.value["outcome"],
                )
    finally:
        cache.close()
    return None


def keep_finished_run(asked: AskedOfRun, cache: Cache, run: FinishedRun, *, listed: Iterable[Path]) -> None:
    """Keep what a run came to, for `find_finished_run`; where it cannot be kept, the next run is done.

    Args:
        asked: What was asked.
        cache: That of the run, whose jobs are all known.
        run: What it came to.
        listed: The folders in which a new name may change what the next run comes to.
    """
    if cache.store is None:
        return
    with contextlib.suppress(OSError, StorageError):
        value = {
            "folder": str(run.folder),
            "files": {name: list(identity) for name, identity in _files_of(run.folder)},
            "lines": list(run.lines),
            "verdict": run.verdict,
            "outcome": dict(run.outcome),
        }
        entry = cache.entry_of_all(f"the run of {asked.spec}", None)
        read = _read(entry.read, asked.spec, listed, cache.memory)
        # As it is: it is about this very run, wherever the next one would lie.
        cache.store.save(asked.key, replace(entry, read=read, value=value), {})
    cache.close()


def _read(of_jobs: Read, spec: str, listed: Iterable[Path], memory: Memory) -> Read:
    """Return all that a run read, its jobs included."""
    files = list(_read_here())
    # A packaged spec makes way for a file of its name.
    absent = [] if Path(spec).exists() else [str(Path(spec).absolute())]
    if not absent:
        files.append(str(Path(spec).absolute()))
    places = dict.fromkeys(str(Path(place).absolute()) for place in sys.path)
    return replace(
        of_jobs,
        files={**of_jobs.files, **{path: memory.digest(path, Path(path).stat()) for path in files}},
        folders={**of_jobs.folders, **{str(folder): names_in(str(folder)) for folder in listed if folder.is_dir()}},
        modules_in={
            **{place: names_in(place, is_of_modules=True) for place in places if Path(place).is_dir()},
            **of_jobs.modules_in,
        },
        absent=(*of_jobs.absent, *absent),
    )


def _read_here() -> Iterator[str]:
    """Yield the files of paritygate, which the parent of all jobs follows."""
    for place, folders, names in os.walk(Path(paritygate.__file__).parent, followlinks=True):
        folders[:] = (name for name in folders if name != _COMPILED)
        yield from (str(Path(place, name)) for name in names)


def _files_of(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the path of each file of a run, below its folder, and what stays the same as long as it is not written."""
    for place, folders, names in os.walk(folder):
        folders[:] = (name for name in folders if Path(place, name) != folder / _JOBS)
        for name in names:
            path = Path(place, name)
            yield str(path.relative_to(folder)), identity_of(path.stat())


def _is_as_left(folder: Path, files: Mapping[str, Iterable[int]]) -> bool:
    try:
        return all(identity_of(folder.joinpath(name).stat()) == tuple(found) for name, found in files.items())
    except OSError:
        return False
