"""List runs with their state, from their own files and the repository; nothing is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import ExitCode, ParitygateError, UsageError
from paritygate.files import MARKER, read_json
from paritygate.pipelines.past_runs.finding import PastRun, models_below, runs_below
from paritygate.pipelines.past_runs.releases import ReleaseOfRun, ReleasesOfModel, releases_of
from paritygate.pipelines.run.in_use import is_in_use
from paritygate.pipelines.run.stopped import why_stopped
from paritygate.pipelines.run.workspace import open_run, required_variants, worst_code
from paritygate.text import meant

_VERDICTS = {
    ExitCode.PASS: "pass",
    ExitCode.PARITY_FAILED: "fail",
    ExitCode.USAGE: "wrong usage",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.NOT_BUILT: "not built",
    ExitCode.NOT_MEASURED: "not measured",
}
_NOT_VALIDATED = "not validated"
_IN_USE = "in use"
_STOPPED = "stopped"
_HALF_MADE = "half made"
_DAMAGED = "damaged"
_NO_RUN = "no run"
# The operating system's unit of blocks on any filesystem.
_BLOCK_BYTES = 512


class ListedRun(Struct, frozen=True, kw_only=True):
    """A run and its state.

    - `verdict`: `pass`, `fail`, `inconclusive`, `not built`, `not measured` or `wrong usage` of required variants.
      Without evidence: `stopped` by an error, `not validated`, or `in use` by a process. Else `half made`, `damaged` or
      `no run`.
    - `exit_code`: of the evidence, or of the error; else None. `problem`: of the folder, or the error; empty for none.
    - `unknown_releases`: why there may be more releases, or empty. `size_bytes`: on disk.
    """

    run: PastRun
    verdict: str
    exit_code: int | None
    problem: str
    releases: tuple[ReleaseOfRun, ...]
    unknown_releases: str
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON data."""
        return {
            "model": self.run.model,
            "run": self.run.run_id,
            "folder": str(self.run.folder),
            "begun": self.run.begun.isoformat(timespec="seconds"),
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "problem": self.problem,
            "releases": [
                {"version": item.version, "aliases": list(item.aliases), "repository": str(item.repository)}
                for item in self.releases
            ],
            "unknown_releases": self.unknown_releases,
            "size_bytes": self.size_bytes,
        }


def list_runs(root: Path, model: str | None = None, repositories: Iterable[Path] = ()) -> tuple[ListedRun, ...]:
    """Return the runs below `root`, the newest first, corrupt ones included: of one model or of all (None).

    Releases are looked up in `repositories`, below the root and in the specs. Raises UsageError if only other models
    exist.
    """
    runs = runs_below(root, model)
    models = models_below(root)
    if model is not None and not runs and models:
        names = ", ".join(models)
        msg = f"no run of model {model!r} exists below {root / 'runs'} (models: {names}){meant(model, models)}"
        raise UsageError(msg, hint="see all of them", command="convert-and-validate runs")
    others = tuple(repositories)
    released = {
        name: releases_of(name, (run for run in runs if run.model == name), root, others)
        for name in {run.model for run in runs}
    }
    return tuple(_listed(run, released[run.model]) for run in runs)


def _listed(run: PastRun, released: ReleasesOfModel) -> ListedRun:
    try:
        verdict, code, problem = _state(run)
    except (ParitygateError, OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        verdict, code, problem = _DAMAGED, None, str(err)
    releases = tuple(item for name in sorted(_ids(run)) for item in released.by_run.get(name, ()))
    return ListedRun(
        run=run,
        verdict=verdict,
        exit_code=code,
        problem=problem,
        releases=releases,
        unknown_releases=released.unknown or _noted_and_not_found(run, releases, released),
        size_bytes=bytes_on_disk(run.folder),
    )


def _noted_and_not_found(run: PastRun, releases: Iterable[ReleaseOfRun], released: ReleasesOfModel) -> str:
    """Return a message if a run's own folder notes a release that its repository lacks, else an empty text."""
    places = {item.repository for item in releases}
    missing = [place for place in released.noted.get(run.run_id, ()) if place not in places]
    return f"{run.folder} notes a release to {missing[0]}, which holds none of it" if missing else ""


def _ids(run: PastRun) -> set[str]:
    """Return the ids that a release may have for a run: of its folder, which may be renamed, and of its evidence."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        return {run.run_id, str(read_json(run.folder / "evidence.json")["run"])}
    return {run.run_id}


def _state(run: PastRun) -> tuple[str, int | None, str]:
    """Return the verdict, the exit code and the problem; raise ParitygateError if spec or evidence are corrupt."""
    if not run.is_ours:
        return _NO_RUN, None, f"it has no {MARKER} file, so it is left alone"
    if not run.is_whole:
        return _HALF_MADE, None, "it holds no spec: it was stopped while it was begun"
    opened = open_run(run.folder, is_held=False)
    evidence = opened.evidence()
    stopped = why_stopped(run.folder)
    if stopped is not None:
        return _STOPPED, stopped.exit_code, stopped.message
    if evidence is None:
        return (_IN_USE if is_in_use(run.folder) else _NOT_VALIDATED), None, ""
    codes = {name: failure.exit_code for name, failure in opened.failures().items()}
    codes.update({entry.variant: entry.exit_code for entry in evidence.variants})
    code = worst_code([codes.get(name, int(ExitCode.NOT_MEASURED)) for name in required_variants(opened)])
    return _VERDICTS[ExitCode(code)], code, ""


def bytes_on_disk(folder: Path) -> int:
    """Return a folder's bytes on disk, with hard links counted once and links not followed."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for parent, folders, names in os.walk(folder):
        for name in ("", *folders, *names) if parent == str(folder) else (*folders, *names):
            with contextlib.suppress(OSError):
                stat = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - of many files
                if (stat.st_dev, stat.st_ino) not in seen:
                    seen.add((stat.st_dev, stat.st_ino))
                    total += stat.st_blocks * _BLOCK_BYTES
    return total
