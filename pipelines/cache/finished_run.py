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
from paritygate.files import digest_of_file, digest_of_json
from paritygate.pipelines.cache.cache import Cache, cache_below
from paritygate.pipelines.cache.request import request_of
from paritygate.pipelines.cache.states import first_difference
from paritygate.pipelines.cache.store import Entry
from paritygate.pipelines.process.child_result import NOT_OURS
from paritygate.pipelines.process.witness.states import NAMES_OF_MODULES, identity_of, names_in

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
        """Return the outcome of a run that comes to the same, JSON data: all jobs are reused from this one."""
        now = {"why": "", "is_judged_anew": False}
        jobs = [{**job, **now, "taken_from": job["taken_from"] or self.folder.name} for job in self.outcome["jobs"]]
        return {**self.outcome, "jobs": jobs}


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedOfRun:
    """What is asked of a run, as it was before the run began: a spec that is edited meanwhile is another question.

    Attributes:
        spec: The spec, as the command line has it.
        options: All options that a run follows from, JSON data.
        root: What run folders lie below.
        key: The key that what it came to is kept by: what is asked, and what the parent of its jobs follows.
    """

    spec: str
    options: Mapping[str, Any]
    root: Path
    key: str

    @classmethod
    def now(cls, spec: str, options: Mapping[str, Any], root: Path) -> AskedOfRun:
        """Return what is asked at this moment."""
        asked = {
            **request_of(_WHAT, {"spec": spec, **options}, root),
            "root": str(root.resolve()),
            # A link may be led elsewhere, to a file of the same content in another folder. What is no path is harmless.
            "places": [os.path.realpath(text) for text in (spec, *options.values()) if isinstance(text, str)],
            "files": {path: digest_of_file(Path(path)) for path in _read_here(spec)},
            "installed": {place: _modules_in(place) for place in dict.fromkeys(sys.path)},
        }
        return cls(spec=spec, options=options, root=root, key=digest_of_json(asked).removeprefix("sha256:")[:32])

    @property
    def is_as_it_was(self) -> bool:
        """Whether the same would be asked now."""
        return AskedOfRun.now(self.spec, self.options, self.root) == self


def find_finished_run(asked: AskedOfRun) -> FinishedRun | None:
    """Return the run of which nothing has changed since; None where there is none, or something has."""
    cache = cache_below(asked.root, asked.root)
    if cache.store is None:
        return None
    try:
        for entry in cache.store.entries(asked.key):
            # What is corrupt is no entry.
            with contextlib.suppress(OSError, *NOT_OURS):
                run = _finished(entry)
                is_as_left = _is_as_left(run.folder, entry.value["files"])
                if is_as_left and not first_difference(entry.read, asked.root, cache.memory, {}):
                    # It was used now, and is not the first to make room.
                    cache.store.restore(entry, {}, cache.memory)
                    return run
    finally:
        cache.close()
    return None


def _finished(entry: Entry) -> FinishedRun:
    value = entry.value
    return FinishedRun(
        folder=Path(value["folder"]),
        made_at=entry.made_at,
        lines=tuple(value["lines"]),
        verdict=value["verdict"],
        outcome=value["outcome"],
    )


def keep_finished_run(
    asked: AskedOfRun,
    cache: Cache,
    run: FinishedRun,
    *,
    listed: Mapping[Path, str],
    released: Mapping[str, tuple[int, ...]],
) -> None:
    """Keep what a run came to, for `find_finished_run`; where it cannot be kept, the next run is done.

    Args:
        asked: What was asked.
        cache: That of the run, whose jobs are all known.
        run: What it came to.
        listed: The folders in which a new name may change what the next run comes to, and the digest of the names.
        released: The files of what was released of the model, and of its log: `files_as_left` of them.
    """
    if cache.store is None or not asked.is_as_it_was:
        return
    with contextlib.suppress(OSError, StorageError):
        value = {
            "folder": str(run.folder),
            "files": {
                name: list(identity)
                for name, identity in {**released, **dict(_files_of(run.folder, below=run.folder))}.items()
            },
            "lines": list(run.lines),
            "verdict": run.verdict,
            "outcome": dict(run.outcome),
        }
        entry = cache.entry_of_all(f"the run of {asked.spec}", None)
        folders = {**entry.read.folders, **{str(folder): names for folder, names in listed.items()}}
        # As it is: it is about this very run, wherever the next one would lie.
        cache.store.save(asked.key, replace(entry, read=replace(entry.read, folders=folders), value=value), {})
    cache.close()


def files_as_left(*folders: Path) -> dict[str, tuple[int, ...]]:
    """Return each file in these folders, and what stays the same as long as it is not written."""
    return {name: identity for folder in folders for name, identity in _files_of(folder)}


def _read_here(spec: str) -> Iterator[str]:
    """Yield the files that the parent of all jobs follows: the spec, and paritygate with what belongs to it."""
    # A packaged spec lies there as well.
    if Path(spec).is_file():
        yield str(Path(spec).absolute())
    for place, folders, names in os.walk(Path(paritygate.__file__).parent, followlinks=True):
        folders[:] = sorted(name for name in folders if name != _COMPILED)
        yield from (str(Path(place, name)) for name in sorted(names))


def _modules_in(place: str) -> str | None:
    """Return the digest of the names in a folder where Python looks for modules; None where there is none."""
    try:
        return names_in(place or ".", NAMES_OF_MODULES)
    except OSError:
        return None


def _files_of(folder: Path, *, below: Path | None = None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each file in a folder, and what stays the same as long as it is not written.

    Args:
        folder: The folder.
        below: The folder of the run: what lies there is named by its path from it; None of all others.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = (name for name in folders if below is None or Path(place, name) != below / _JOBS)
        for name in names:
            path = Path(place, name)
            named = path.absolute() if below is None else path.relative_to(below)
            yield str(named), identity_of(path.stat())


def _is_as_left(folder: Path, files: Mapping[str, Iterable[int]]) -> bool:
    try:
        return all(identity_of(folder.joinpath(name).stat()) == tuple(found) for name, found in files.items())
    except OSError:
        return False
