"""Cache the outcome of a run, so that it is not done again while nothing changes.

It depends on what its jobs read, the spec, paritygate itself, installed packages, other runs of the model and its
alias. It also depends on the run's own files, which must be unchanged. After a change, the run is done, and each of its
jobs is checked by itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import paritygate
from paritygate.errors import StorageError
from paritygate.files import digest_of_file, digest_of_json
from paritygate.pipelines.cache.cache import Cache, cache_below
from paritygate.pipelines.cache.request import request_of
from paritygate.pipelines.cache.states import NotKept, first_difference
from paritygate.pipelines.process.child_result import NOT_OURS
from paritygate.pipelines.process.file_access.states import NAMES_OF_MODULES, identity_of, names_in

_WHAT = "run"
# Of use only during a run, and for people.
_JOBS = "jobs"
_COMPILED = "__pycache__"


class FinishedRun(Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

    folder: Path
    made_at: str  # in UTC
    lines: tuple[str, ...]  # printed
    verdict: str  # the line with it
    outcome: Mapping[str, Any]  # of `RunOutcome.to_json`

    def outcome_now(self) -> dict[str, Any]:
        """Return the outcome of an equal run as JSON data: it reuses all jobs of this one."""
        now = {"why": "", "is_judged_anew": False}
        jobs = [{**job, **now, "taken_from": job["taken_from"] or self.folder.name} for job in self.outcome["jobs"]]
        return {**self.outcome, "jobs": jobs}


class AskedOfRun(Struct, frozen=True, kw_only=True):
    """The request for a run, from before it began: a spec that is edited meanwhile is another request."""

    spec: str  # as on the command line
    options: Mapping[str, Any]  # all that affect a run, JSON data
    root: Path  # of run folders
    key: str  # digest of the request and of all that the parent of the jobs depends on
    cache: Cache  # has the digests of the files that were read for the key

    @classmethod
    def now(cls, spec: str, options: Mapping[str, Any], root: Path, cache: Cache | None = None) -> AskedOfRun:
        """Return the request at this moment; raise UsageError if the environment names a wrong cache."""
        cache = cache_below(root, root) if cache is None else cache
        request = {
            **request_of(_WHAT, {"spec": spec, **options}, root),
            "root": str(root.resolve()),
            # A link may change its target to an equal file in another folder. Texts that are not paths do no harm.
            "places": [os.path.realpath(text) for text in (spec, *options.values()) if isinstance(text, str)],
            "files": {path: _digest_of(path, cache) for path in _read_here(spec)},
            "installed": {place: _modules_in(place) for place in dict.fromkeys(sys.path)},
        }
        key = digest_of_json(request).removeprefix("sha256:")[:32]
        return cls(spec=spec, options=options, root=root, key=key, cache=cache)

    @property
    def is_as_it_was(self) -> bool:
        """Whether the request would be the same now."""
        return AskedOfRun.now(self.spec, self.options, self.root, self.cache).key == self.key


def find_finished_run(asked: AskedOfRun) -> FinishedRun | None:
    """Return the run since which nothing has changed; None where there is none."""
    cache = asked.cache
    if cache.store is None:
        return None
    try:
        for entry in cache.store.entries(asked.key):
            # Corrupt entries do not count.
            with contextlib.suppress(OSError, *NOT_OURS):
                value = entry.value
                run = FinishedRun(
                    folder=Path(value["folder"]),
                    made_at=entry.made_at,
                    lines=tuple(value["lines"]),
                    verdict=value["verdict"],
                    outcome=value["outcome"],
                )
                is_as_left = _is_as_left(run.folder, value["files"])
                if is_as_left and not first_difference(entry.read, asked.root, cache.memory, {}):
                    # Marks it as used, so that it is not the first to make room.
                    cache.store.restore(entry, {}, cache.memory)
                    return run
    finally:
        cache.close()
    return None


def keep_finished_run(
    asked: AskedOfRun,
    cache: Cache,
    run: FinishedRun,
    *,
    listed: Mapping[Path, str],
    released: Mapping[str, tuple[int, ...]],
) -> None:
    """Cache the outcome of a run for `find_finished_run`, if its request is unchanged; errors do not matter.

    `listed` has the folders in which a new name may change the next outcome, with the digest of the names. `released`
    has the files of the model's releases and log, by `files_as_left`. What the jobs of `cache` read must be certain.
    """
    if cache.store is None or not asked.is_as_it_was:
        return
    with contextlib.suppress(NotKept, OSError, StorageError):
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
        # With its own paths, because it is about this very run.
        cache.store.save(asked.key, replace(entry, read=replace(entry.read, folders=folders), value=value), {})
    cache.close()


def files_as_left(*folders: Path) -> dict[str, tuple[int, ...]]:
    """Return each file in these folders, with its identity as long as it is not written."""
    return {name: identity for folder in folders for name, identity in _files_of(folder)}


def _read_here(spec: str) -> Iterator[str]:
    """Yield the files that the parent of all jobs depends on: the spec, and paritygate with its data."""
    # A packaged spec is in there too.
    if Path(spec).is_file():
        yield str(Path(spec).absolute())
    for place, folders, names in os.walk(Path(paritygate.__file__).parent, followlinks=True):
        folders[:] = sorted(name for name in folders if name != _COMPILED)
        yield from (str(Path(place, name)) for name in sorted(names))


def _digest_of(path: str, cache: Cache) -> str:
    if cache.store is None:
        return digest_of_file(path)
    return cache.memory.digest(path, os.stat(path))  # noqa: PTH116 - of hundreds of paths, as texts


def _modules_in(place: str) -> str | None:
    """Return the digest of the names in a folder where Python looks for modules; None where there is none."""
    try:
        return names_in(place or ".", NAMES_OF_MODULES)
    except OSError:
        return None


def _files_of(folder: Path, *, below: Path | None = None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each file in a folder with its identity while it is not written; named relative to `below`, if given."""
    for place, folders, names in os.walk(folder):
        folders[:] = (name for name in folders if below is None or Path(place, name) != below / _JOBS)
        for name in names:
            path = Path(place, name)
            named = path.absolute() if below is None else path.relative_to(below)
            yield str(named), identity_of(path.stat())


def _is_as_left(folder: Path, files: Mapping[str, Iterable[int]]) -> bool:
    try:
        return all(identity_of(folder.joinpath(name).stat()) == tuple(identity) for name, identity in files.items())
    except OSError:
        return False
