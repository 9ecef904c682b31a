"""Runs in the terminal: a screen with the verdict of each variant, the reasons, and the next command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from paritygate.errors import ParitygateError
from paritygate.pipelines.compare.result import ComparisonResult, error_result, reasons
from paritygate.pipelines.release.repository_of_run import promote_command
from paritygate.pipelines.report.report_data import run_command
from paritygate.pipelines.report.summary import run_remarks, run_summary
from paritygate.pipelines.report.tables.parity import parity_table
from paritygate.pipelines.report.terminal.comparison import remark_lines
from paritygate.pipelines.report.terminal.comparison_details import (
    error_lines,
    finding_lines,
    match_lines,
    probes_of_all_line,
    shared_remarks,
)
from paritygate.pipelines.report.terminal.made import print_failures
from paritygate.pipelines.report.terminal.printing import Shown, print_errors, print_lines, print_message, print_table
from paritygate.pipelines.report.terminal.screen import WIDTH, command_lines, path_line, screen_table, wrapped
from paritygate.pipelines.run.workspace import targets_left_out
from paritygate.text import echo

if TYPE_CHECKING:
    from paritygate.pipelines.release.views.view_updates import ViewUpdate
    from paritygate.pipelines.report.report_data import ReportData
    from paritygate.pipelines.run_spec import RunOutcome

NOT_ASKED_FOR = "not asked for"


def print_error(name: str, error: ParitygateError, shown: Shown) -> None:
    """Print an error that ended one of several specs."""
    print_errors(*error_lines(error_result(error), name), is_verbose=shown.is_verbose)


def print_outcome(outcome: RunOutcome, report: ReportData, shown: Shown) -> None:
    """Print a run: one line per variant, reasons, the release, the report's path, and the next command."""
    if shown.is_quiet:
        _print_errors(outcome, report)
        print_message(_quiet_line(outcome, report), err=shown.to_stderr)
        if outcome.release is not None and outcome.release.is_older:
            from paritygate.pipelines.report.terminal.release import release_lines

            # The served version becomes older, perhaps by mistake.
            print_errors(f"warning: {next(release_lines(outcome.release))}")
        return
    if shown.is_verbose:
        _print_outcome_details(outcome, report, to_stderr=shown.to_stderr)
    print_lines(_outcome_lines(outcome, report, shown.width), err=shown.to_stderr)


def _print_outcome_details(outcome: RunOutcome, report: ReportData, *, to_stderr: bool = False) -> None:
    if not to_stderr:
        print_table(parity_table(report))
    if report.benchmark is not None:
        from paritygate.pipelines.report.terminal.benchmark import print_benchmark

        print_benchmark(report, Shown(is_verbose=True, to_stderr=to_stderr))
    print_failures(outcome.failures, is_verbose=True)
    results, emulated_results = dict(outcome.results), outcome.emulated
    shown: dict[str, ComparisonResult] = {}
    for name, result in outcome.results.items():
        shown[name] = result
        emulated = emulated_results.get(name)
        if emulated is not None:
            shown[f"{name}, emulated"] = results[f"{name} (emulated)"] = emulated
    for name, result in shown.items():
        _print_result(name, result, to_stderr=to_stderr)
    remarks = (*probes_of_all_line(shown.values()), *shared_remarks(shown), *finding_lines(results))
    for line in (*remarks, *_not_kept(outcome)):
        echo(line, err=to_stderr)


def _not_kept(outcome: RunOutcome) -> Iterator[str]:
    """Yield why later runs cannot reuse a job, one line per job."""
    for job in outcome.jobs:
        if job.not_kept:
            yield f"no later run can reuse {job.job}: {job.not_kept}"


def _print_result(name: str, result: ComparisonResult, *, to_stderr: bool) -> None:
    if result.error is not None:
        _print_result_error(name, result, is_verbose=True)
    elif result.is_measured:
        for line in (*reasons(result, with_findings=False), *match_lines(result)):
            echo(f"{name}: {line}", err=to_stderr)


def _print_result_error(name: str, result: ComparisonResult, *, is_verbose: bool) -> None:
    """Print why a comparison failed, if it did."""
    if result.error is not None:
        print_errors(*error_lines(result.error, name), is_verbose=is_verbose)


def outcome_screen(outcome: RunOutcome, report: ReportData) -> tuple[list[str], str]:
    """Return the lines that `print_outcome` prints within 80 columns, and the line of `-q`."""
    return list(_outcome_lines(outcome, report, WIDTH)), _quiet_line(outcome, report)


def _quiet_line(outcome: RunOutcome, report: ReportData) -> str:
    """Return the one line of `-q`: the verdict, and the version that holds the variants."""
    release = outcome.release
    if release is not None:
        from paritygate.pipelines.report.terminal.release import alias_of_same

        alias = f", alias {release.alias}" if release.alias else ""
        done = f"Released version {release.version}{alias}"
        same = f"Already released as version {release.version}{alias_of_same(release)}"
        return f"{_verdict_of_run(report)} {done if release.is_new else same}."
    if outcome.exit_code == 0 and outcome.not_released != NOT_ASKED_FOR:
        return f"{_verdict_of_run(report)} Nothing was released."
    return _verdict_of_run(report)


def _verdict_of_run(report: ReportData) -> str:
    return f"verdict: {report.verdict}: {report.model}: {report.headline}"


def _print_errors(outcome: RunOutcome, report: ReportData) -> None:
    """Print only what went wrong: failed variants and comparisons, and a failed release."""
    print_failures(outcome.failures, is_verbose=False)
    for name, result in outcome.results.items():
        _print_result_error(name, result, is_verbose=False)
    print_errors(*_view_lines(outcome, [view for view in outcome.views if view.error is not None], None))
    print_errors(*_after_lines(outcome, is_failure=True))
    if outcome.release is None and outcome.exit_code not in {0, report.exit_code}:
        print_errors(f"not released: {outcome.not_released}")


def _outcome_lines(outcome: RunOutcome, report: ReportData, width: int | None) -> Iterator[str]:
    def lines(*messages: str) -> Iterator[str]:
        for message in messages:
            yield from wrapped(message, width=width)

    yield from lines(*_reused(outcome))
    yield from screen_table(run_summary(report), width)
    yield from remark_lines(run_remarks(report), width)
    yield from lines(_verdict_of_run(report))
    if outcome.release is not None:
        from paritygate.pipelines.report.terminal.release import release_lines

        yield from lines(*release_lines(outcome.release, in_run=True))
    elif outcome.not_released != NOT_ASKED_FOR or width is None:
        yield from lines(f"not released: {outcome.not_released}")
        if outcome.would_release:
            yield from lines(f"would have released: {outcome.would_release}")
    yield from _view_lines(outcome, outcome.views, width)
    yield from lines(*_after_lines(outcome))
    yield from lines(*outcome.advice)
    if width is None:
        yield f"run: {outcome.folder}"
    for path in outcome.reports:
        if path.suffix == ".html":
            yield from path_line("report", path, width)
    if command := _next_command(outcome):
        yield from command_lines(f"next: {command}", width=width)


def _view_lines(outcome: RunOutcome, views: Iterable[ViewUpdate], width: int | None) -> Iterator[str]:
    if outcome.repository is not None and outcome.views:
        from paritygate.pipelines.report.terminal.serving.views import update_lines

        yield from update_lines(views, outcome.repository, width)


def _after_lines(outcome: RunOutcome, *, is_failure: bool = False) -> Iterator[str]:
    """Yield how the command after the release ended; with `is_failure` only if it failed."""
    if outcome.after is not None and (outcome.after.problem or not is_failure):
        from paritygate.pipelines.report.terminal.release import after_command_lines

        yield from after_command_lines(outcome.after, promote_command(outcome.run, outcome.repository))


def _reused(outcome: RunOutcome) -> Iterator[str]:
    taken = [job for job in outcome.jobs if job.taken_from]
    changed = [job for job in outcome.jobs if job.why]
    if changed:
        jobs = "1 job was" if len(changed) == 1 else f"{len(changed)} jobs were"
        yield f"{jobs} done again, because {changed[0].why}"
    if not taken:
        return
    judged = sum(job.is_judged_anew for job in taken)
    if judged:
        were = "1 comparison was" if judged == 1 else f"{judged} comparisons were"
        yield f"{were} judged again without running a model"
    taken = [job for job in taken if not job.is_judged_anew]
    if not taken:
        return
    runs = sorted({job.taken_from for job in taken})
    whence = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} earlier runs"
    how_many = f"all {len(taken)}" if len(taken) == len(outcome.jobs) else f"{len(taken)} of {len(outcome.jobs)}"
    why = "since nothing that they read has changed"
    were = "was" if len(taken) == 1 else "were"
    yield f"{how_many} jobs {were} reused from {whence}, {why}; --no-cache runs them again"


def _next_command(outcome: RunOutcome) -> str:
    """Return the command that follows a successful run; empty if its advice has one."""
    if outcome.release is not None and outcome.repository is not None:
        from paritygate.pipelines.report.terminal.release import show_command

        return show_command(outcome.release.model, outcome.release.alias, outcome.repository)
    if outcome.not_released == NOT_ASKED_FOR and outcome.exit_code == 0:
        is_part = targets_left_out(outcome.run)
        return run_command(outcome.run) if is_part else promote_command(outcome.run, outcome.repository)
    return ""
