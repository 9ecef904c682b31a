"""Remove runs that are not needed, and the stage cache, by a plan that is shown first.

A run is renamed before it is removed, so that an interruption leaves only whole runs. The evidence of failed runs
stays, because later runs of the same source are compared with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.errors import ParitygateError
from paritygate.files import (
    MARKER,
    is_plain_file,
    is_plain_folder,
    make_marked_folder,
    remove_marked_folder,
    storage_errors,
)
from paritygate.pipelines.cache.cache import cache_folder
from paritygate.pipelines.cache.folder import CACHE_MARKER, check_is_cache, others_in, parts_of, remove_cache
from paritygate.pipelines.past_runs.finding import models_below
from paritygate.pipelines.past_runs.listing import ListedRun, bytes_on_disk, list_runs
from paritygate.pipelines.run.in_use import is_in_use
from paritygate.pipelines.run.relaxed_rules import holds_failures
from paritygate.text import first_of

# Hidden, so that neither looks like a run; `relaxed_rules` finds failed ones there.
_GOING = ".removed-"
_FAILED = ".failed-"
_EVIDENCE = "evidence.json"
_IN_USE = "it is in use"
# Commands write these into a run, beside folders with a marker. A temporary file is left by a process that was killed.
_OWN = re.compile(
    rf"{re.escape(MARKER)}|(spec|evidence|export-failures|benchmark|selftest|stopped|released-to)\.json|selftest\.md|"
    r"(report|report-against-.+)\.(html|md)|\..+\.(tmp|partial)|bases|inputs|jobs|probes|repaired|scratch|unpacked"
)
_NAMED = 3

# A folder with these files is a run; one with these folders is a repository.
_RUN = {MARKER, "spec.json"}
_REPOSITORY = {"log", "store"}


class Kept(Struct, frozen=True, kw_only=True):
    """A run beyond the newest ones that stays, and why."""

    run: ListedRun
    why: str


class CleaningPlan(Struct, frozen=True, kw_only=True):
    """The plan of a removal.

    - `runs`: those removed. `kept`: those old enough that stay anyway. `leftovers`: of interrupted removals.
    - `cache`: the stage cache, or None. `beside_cache`: names of other things in its folder, which stay.
    - `evidence`: by run, the new place of a failed run's evidence. `sizes`: bytes on disk of leftovers and cache.
    """

    runs: tuple[ListedRun, ...]
    kept: tuple[Kept, ...]
    leftovers: tuple[Path, ...]
    cache: Path | None
    beside_cache: tuple[str, ...]
    evidence: dict[str, Path]
    sizes: dict[Path, int]

    @property
    def freed_bytes(self) -> int:
        """The bytes on disk of everything removed."""
        return sum(run.size_bytes for run in self.runs) + sum(self.sizes.values())

    @property
    def is_empty(self) -> bool:
        """True where there is nothing to remove."""
        return not (self.runs or self.leftovers or self.cache)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return {
            "removed": [run.to_json() for run in self.runs],
            "kept": [{**item.run.to_json(), "why": item.why} for item in self.kept],
            "evidence": {run: str(path) for run, path in self.evidence.items()},
            "leftovers": [str(path) for path in self.leftovers],
            "cache": None if self.cache is None else str(self.cache),
            "beside_cache": list(self.beside_cache),
            "freed_bytes": self.freed_bytes,
        }


def plan_cleaning(
    root: Path, *, model: str | None, keep: int | None, with_cache: bool, repositories: Iterable[Path] = ()
) -> CleaningPlan:
    """Return the plan for the runs below `root`: of one model or of all (None).

    `keep` newest runs of each model stay; None keeps all. Releases are looked up in `repositories`, and in those below
    the root and in the specs.

    Raises:
        UsageError: There are runs, and none of this model; or `model` cannot be a name, such as a path.
        StorageError: The folder of the stage cache has no marker of a cache.
    """
    going: list[ListedRun] = []
    staying: list[Kept] = []
    leftovers: tuple[Path, ...] = ()
    if keep is not None:
        listed = list_runs(root, model, repositories)
        for item in _beyond(listed, keep):
            why = _why_kept(item)
            if why:
                staying.append(Kept(run=item, why=why))
            else:
                going.append(item)
        leftovers = tuple(_leftovers(root, model))
    cache = cache_folder(root) if with_cache else None
    if cache is not None and not os.path.lexists(cache):
        cache = None
    sizes = {place: bytes_on_disk(place) for place in leftovers}
    if cache is not None:
        check_is_cache(cache)
        sizes[cache] = sum(map(bytes_on_disk, parts_of(cache)))
    return CleaningPlan(
        runs=tuple(going),
        kept=tuple(staying),
        leftovers=leftovers,
        cache=cache,
        beside_cache=() if cache is None else others_in(cache),
        evidence={item.run.run_id: _evidence_kept(item) for item in going if _holds_failures(item)},
        sizes=sizes,
    )


def shown_and_still_planned(shown: CleaningPlan, now: CleaningPlan) -> CleaningPlan:
    """Return the part of a shown plan that still holds, because runs may be released or started during the question."""
    folders = {item.run.folder for item in shown.runs}
    return replace(now, runs=tuple(item for item in now.runs if item.run.folder in folders))


def remove(plan: CleaningPlan) -> CleaningPlan:
    """Remove what is planned, and return what was removed, without runs opened meanwhile; may raise StorageError."""
    gone: list[ListedRun] = []
    staying = list(plan.kept)
    # The oldest first, so that an interruption leaves the newest.
    for item in reversed(plan.runs):
        if why := _why_kept_now(item):
            staying.append(Kept(run=item, why=why))
        else:
            _remove_run(item)
            gone.append(item)
    for folder in plan.leftovers:
        remove_marked_folder(folder)
    beside = () if plan.cache is None else remove_cache(plan.cache)
    names = {item.run.run_id for item in gone}
    evidence = {run: path for run, path in plan.evidence.items() if run in names}
    return replace(plan, runs=tuple(reversed(gone)), kept=tuple(staying), evidence=evidence, beside_cache=beside)


def _holds_failures(item: ListedRun) -> bool:
    return holds_failures(item.run.folder / _EVIDENCE)


def _evidence_kept(item: ListedRun) -> Path:
    """Return the place of a failed run's evidence after its removal."""
    folder = item.run.folder
    return folder.with_name(f"{_FAILED}{folder.name}") / _EVIDENCE


def _remove_run(item: ListedRun) -> None:
    folder = item.run.folder
    if _holds_failures(item):
        copy = _evidence_kept(item)
        make_marked_folder(copy.parent)
        with storage_errors(copy):
            shutil.copyfile(folder / _EVIDENCE, copy)
    going = folder.with_name(f"{_GOING}{folder.name}-{secrets.token_hex(2)}")
    with storage_errors(folder):
        folder.rename(going)
    remove_marked_folder(going)
    with contextlib.suppress(OSError):
        # Fails, as it should, if the model has other runs.
        folder.parent.rmdir()


def _beyond(listed: Sequence[ListedRun], keep: int) -> Iterator[ListedRun]:
    seen: dict[str, int] = {}
    for item in listed:
        if item.run.is_ours:
            seen[item.run.model] = seen.get(item.run.model, 0) + 1
            if seen[item.run.model] > keep:
                yield item


def _why_kept(item: ListedRun) -> str:
    folder = item.run.folder
    link = next((path for path in (folder.parent.parent, folder.parent) if path.is_symlink()), None)
    if link is not None:
        return f"it lies behind the link {link}"
    if item.releases:
        names = ", ".join(str(release.version) for release in item.releases)
        return f"version {names} is released of it"
    if item.unknown_releases:
        return f"it is not known whether it was released: {item.unknown_releases}"
    return _why_kept_now(item)


def _why_kept_now(item: ListedRun) -> str:
    """Return why a run without releases stays at this time, or an empty text."""
    folder, place = item.run.folder, _evidence_kept(item).parent
    if is_in_use(folder):
        return _IN_USE
    if place.is_symlink() and _holds_failures(item):
        return f"its evidence is to stay, and {place} is a link"
    return what_else_lies_in(folder)


def _leftovers(root: Path, model: str | None) -> Iterator[Path]:
    for name in models_below(root) if model is None else (model,):
        place = root / "runs" / name
        if not place.is_symlink() and not place.parent.is_symlink():
            yield from sorted(path for path in place.glob(f"{_GOING}*") if _is_left_over(path))


def _is_left_over(folder: Path) -> bool:
    # Its own files are not told from those of a user once a part of them is removed, and none of a user were there.
    return is_plain_folder(folder) and is_plain_file(folder / MARKER) and not _place_in(folder)


def what_else_lies_in(folder: Path) -> str:
    """Return what must not be removed with a folder, or an empty text. Links are not followed."""
    place = _place_in(folder)
    if place:
        return place
    foreign = sorted(path.relative_to(folder).as_posix() for path in _foreign_in(folder))
    return f"it holds files that are not of the run: {first_of(foreign, _NAMED)}" if foreign else ""


def _place_in(folder: Path) -> str:
    """Return which repository, cache, run or filesystem lies in a folder, or an empty text."""
    device = folder.stat().st_dev
    for parent, folders, names in os.walk(folder):
        place = Path(parent)
        if place.stat().st_dev != device:
            return f"another filesystem is mounted at {place}"
        if set(folders) >= _REPOSITORY:
            return f"a repository lies in it: {place}"
        if CACHE_MARKER in names:
            return f"a stage cache lies in it: {place}"
        if place != folder and set(names) >= _RUN:
            return f"another run lies in it: {place}"
    return ""


def _foreign_in(folder: Path) -> Iterator[Path]:
    """Yield what lies directly in a run, or below an artifact in it, and was not written there by a command."""
    yield from (path for path in folder.iterdir() if not (_OWN.fullmatch(path.name) or (path / MARKER).is_file()))
    for record in (*folder.glob(f"*/{ARTIFACT_FILE}"), *folder.glob(f"bases/*/{ARTIFACT_FILE}")):
        with contextlib.suppress(ParitygateError):
            own = {*Artifact.read_record(record.parent).files, ARTIFACT_FILE, MARKER}
            files = (path for path in record.parent.rglob("*") if not is_plain_folder(path))
            yield from (path for path in files if path.relative_to(record.parent).as_posix() not in own)
