"""Print the last outcome of `run` if nothing has changed since, and cache it for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.codec import to_data
from paritygate.pipelines.cache.finished_run import (
    AskedOfRun,
    FinishedRun,
    files_as_left,
    find_finished_run,
    keep_finished_run,
)
from paritygate.pipelines.process.file_access.states import names_in
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import wrapped

if TYPE_CHECKING:
    from paritygate.pipelines.cli.formats import Result
    from paritygate.pipelines.report.report_data import ReportData
    from paritygate.pipelines.run_spec import RunOutcome


def replay_last_run(asked: Sequence[AskedOfRun], written: Result) -> bool:
    """Print the outcomes of all runs if nothing has changed since, and return whether that is so."""
    finished_runs = [find_finished_run(item) for item in asked]
    runs = [run for run in finished_runs if run is not None]
    if len(runs) < len(finished_runs):
        return False
    for run in runs:
        since = f"nothing has changed since run {run.folder.name} of {run.made_at}: it is not done again"
        lines = (
            [run.verdict] if written.shown.is_quiet else [*wrapped(f"{since}; --no-cache runs it again"), *run.lines]
        )
        print_lines(lines, err=written.shown.to_stderr)
    written.write({"schema_version": 1, "exit_code": 0, "runs": [run.outcome_now() for run in runs]})
    return True


def keep_to_say_again(asked: AskedOfRun, outcome: RunOutcome, entry: Mapping[str, object], report: ReportData) -> None:
    """Cache the outcome of a run while nothing changes, unless the next run may differ.

    `asked` is the request from before the run began, `entry` the outcome as JSON data.
    """
    # Imported only after a run, because it imports all that runs and releases models.
    from paritygate.pipelines.report.terminal.run import NOT_ASKED_FOR, outcome_screen
    from paritygate.pipelines.run.workspace import BENCHMARK

    run, cache, release = outcome.run, outcome.run.cache, outcome.release
    benchmark = () if run.benchmark() is None else (BENCHMARK,)
    if cache is None or not cache.knows_all(*benchmark) or outcome.exit_code:
        return
    if any(result.error for result in outcome.results.values()) or any(view.error for view in outcome.views):
        return
    # Other runs of the model may fail.
    listed = {run.folder.parent: names_in(str(run.folder.parent))}
    released = {}
    if release is not None and outcome.repository is not None:
        from paritygate.pipelines.release.repository.inspect import read_state
        from paritygate.pipelines.release.repository.log import log_folder

        # Read before the alias: later moves add a name, and records may be edited. The reference may be a release.
        log, folder = log_folder(outcome.repository, release.model), release.folder
        if not (isinstance(log, Path) and isinstance(folder, Path)):
            # Nothing tells cheaply that an object store is unchanged.
            return
        released = files_as_left(log, folder.parent)
        listed[log] = names_in(str(log))
        aliases = read_state(outcome.repository, release.model).aliases
        if release.alias is not None and aliases.get(release.alias) != release.version:
            return
        # It is not new any more.
        release = replace(release, is_new=False, record=None, damaged=(), moved_from=None, unsigned_after=None)
    elif outcome.not_released != NOT_ASKED_FOR:
        return
    lines, verdict = outcome_screen(replace(outcome, release=release, views=(), after=None, jobs=()), report)
    finished = FinishedRun(
        folder=run.folder,
        made_at=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        lines=tuple(lines),
        verdict=verdict,
        outcome={**entry, "release": release and to_data(release), "views": [], "after": None},
    )
    keep_finished_run(asked, cache, finished, listed=listed, released=released)
