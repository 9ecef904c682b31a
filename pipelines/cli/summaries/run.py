"""Runs and comparisons in the terminal: one screen with the verdict of each variant, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.models.source import SourceKind
from paritygate.pipelines.cli.console import Shown, print_errors, print_lines, print_table, table_text
from paritygate.pipelines.cli.details import (
    comparison_details,
    error_lines,
    print_failures,
    print_outcome_details,
    print_result_error,
)
from paritygate.pipelines.cli.screen import WIDTH, command_lines, path_line, screen_table, wrapped
from paritygate.pipelines.cli.summaries.release import release_lines, show_command
from paritygate.pipelines.cli.summaries.serving import following_lines
from paritygate.pipelines.compare.result import ComparisonResult, error_result
from paritygate.pipelines.release.promote import promote_command
from paritygate.pipelines.report.figures import size_words
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.report.summary import (
    Remark,
    comparison_remarks,
    comparison_summary,
    run_remarks,
    run_summary,
    variants_in_words,
)
from paritygate.pipelines.report.tables.parity import comparison_table
from paritygate.pipelines.report.tables.table import Column, Table, figure, status, text
from paritygate.text import as_message, counted, echo, first_line_of

if TYPE_CHECKING:
    from paritygate.pipelines.release.following import FollowingView
    from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
    from paritygate.pipelines.run_spec import RunOutcome

__all__ = [
    "NOT_ASKED_FOR",
    "comparison_text",
    "made_to_json",
    "outcome_screen",
    "print_comparison",
    "print_error",
    "print_made",
    "print_outcome",
]

_NAMES_DIFFER = {"contract.inputs", "contract.outputs"}
# A candidate of another kind was not run here: its outputs were recorded before.
_RUN_KINDS = {str(kind) for kind in SourceKind}
NOT_ASKED_FOR = "not asked for"
# How a message quotes lines, and what it names last where they are those of a log.
_QUOTED, _LOG = "\n  | ", "\n  log: "


def print_comparison(result: ComparisonResult, shown: Shown) -> None:
    """Print the comparison for people; an error, and all where standard output holds JSON, on standard error."""
    err = shown.to_stderr
    if result.error is not None:
        print_errors(*_error_lines(result, is_whole=shown.is_verbose), is_verbose=shown.is_verbose)
        return
    if shown.is_quiet:
        echo(_verdict_line(result), err=err)
        return
    if shown.is_verbose:
        if not err:
            print_table(_table(result))
        print_lines(comparison_details(result), err=err)
    print_lines(_comparison_lines(result, shown.width), err=err)


def comparison_text(result: ComparisonResult) -> str:
    """Return all that `print_comparison` prints if it is to be verbose, on either stream, where that is no terminal."""
    if result.error is not None:
        return "\n".join(map(as_message, _error_lines(result, is_whole=True)))
    details = map(as_message, comparison_details(result))
    return "\n".join((table_text(_table(result)), *details, *_comparison_lines(result, None)))


def _table(result: ComparisonResult) -> Table:
    return comparison_table(result, _evidence_in_words(result))


def _comparison_lines(result: ComparisonResult, width: int | None) -> Iterator[str]:
    yield from screen_table(comparison_summary(result), width)
    yield from _remark_lines(comparison_remarks(result), width)
    if result.candidate.kind != "recording" and any(
        check.status == "fail" and check.name in _NAMES_DIFFER for check in result.checks
    ):
        # A folder of recorded outputs has the names that they were recorded under.
        words = "hint: where one is the other under another name, rename it: --map CANDIDATE=REFERENCE"
        yield from wrapped(words, width=width)
    yield from wrapped(_verdict_line(result), width=width)


def _error_lines(result: ComparisonResult, *, is_whole: bool) -> Iterator[str]:
    """Yield why a comparison could not be made, how far it came, and the hint.

    What a server says at length is printed if it is to be whole; the last lines of a log always are.
    """
    assert result.error is not None  # noqa: S101 - the caller looked
    said, *hint = error_lines(result.error)
    short, _, quoted = said.partition(_QUOTED)
    yield said if is_whole or not quoted or _LOG in said else f"{short} (-v prints all that was said)"
    if result.rows:
        yield f"{counted(result.rows, 'row')} had been compared by then: nothing is judged by a part of them"
    yield from hint


def _verdict_line(result: ComparisonResult) -> str:
    return f"verdict: {result.verdict_words}"


def _remark_lines(remarks: Iterable[Remark], width: int | None) -> Iterator[str]:
    for remark in remarks:
        # In full where lines may be as wide as they are.
        names = ", ".join(remark.names) if width is None else variants_in_words(remark.names)
        yield from wrapped(": ".join(filter(None, (remark.kind, names, remark.words))), width=width)


def _evidence_in_words(result: ComparisonResult) -> str:
    if result.candidate.runtime is None or result.candidate.kind not in _RUN_KINDS:
        return "recorded"
    is_emulated = (result.candidate.device or "").startswith("emulated")
    return "emulated" if is_emulated else "verified"


def print_error(name: str, error: ParitygateError, shown: Shown) -> None:
    """Print an error that ended one of several specs."""
    print_errors(*error_lines(error_result(error), name), is_verbose=shown.is_verbose)


def print_made(
    run: RunFolder,
    what: str,
    artifacts: Mapping[str, Artifact],
    failures: Mapping[str, FailedVariant],
    shown: Shown,
) -> None:
    """Print what was made of a run, what could not be and why, and where the run is."""
    if shown.is_quiet or shown.is_verbose:
        print_failures(failures, is_verbose=shown.is_verbose)
    if shown.is_quiet:
        words = f"{what}: {', '.join(artifacts) or 'nothing'}"
        echo(words + (f"; not {what}: {', '.join(failures)}" if failures else ""), err=shown.to_stderr)
        return
    lines = [
        *(screen_table(_made_table(run, what, artifacts, failures), shown.width) if artifacts or failures else ()),
        *_hints_of_failures(failures, shown.width),
        *(_notes_of(artifacts) if shown.is_verbose else ()),
        *path_line("run", run.folder, shown.width),
    ]
    print_lines(lines, err=shown.to_stderr)


def _made_table(
    run: RunFolder, what: str, artifacts: Mapping[str, Artifact], failures: Mapping[str, FailedVariant]
) -> Table:
    rows = []
    for name in (name for name in run.resolved.target_names if name in artifacts or name in failures):
        if name in artifacts:
            made = artifacts[name]
            rows.append((status(what), text(name), figure(size_words(made.size_bytes)), text(made.digest[:19])))
        else:
            failure = failures[name]
            rows.append(
                (status(failure.verdict, remark=first_line_of(failure.message)), text(name), figure("-"), text("-"))
            )
    columns = (
        Column(title="outcome"),
        Column(title="variant"),
        Column(title="size", is_figure=True),
        Column(title="digest"),
    )
    return Table(caption=f"{run.resolved.name}: {what}", columns=columns, rows=tuple(rows))


def _hints_of_failures(failures: Mapping[str, FailedVariant], width: int | None) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for name, failure in failures.items():
        if failure.hint:
            names.setdefault(failure.hint, []).append(name)
    yield from _remark_lines(
        (Remark(kind="hint", names=tuple(found), words=first_line_of(hint)) for hint, found in names.items()), width
    )


def _notes_of(artifacts: Mapping[str, Artifact]) -> Iterator[str]:
    for name, artifact in artifacts.items():
        yield from (f"{name}: note: {note}" for note in artifact.made_by.get("notes", ()))


def made_to_json(
    run: RunFolder, artifacts: Mapping[str, Artifact], failures: Mapping[str, FailedVariant]
) -> dict[str, Any]:
    """Return as JSON data what was made of a run, and what could not be."""
    return {
        "schema_version": 1,
        "run": str(run.folder),
        "artifacts": {name: {"digest": item.digest, "files": dict(item.files)} for name, item in artifacts.items()},
        "failures": {name: to_data(item) for name, item in failures.items()},
    }


def print_outcome(outcome: RunOutcome, shown: Shown) -> None:
    """Print a run: a line a variant, why it is no pass, the release, where the report is, and what to do next."""
    report = collect_report(outcome.run, release=None if outcome.release is None else to_data(outcome.release))
    if shown.is_quiet:
        _print_errors(outcome, report)
        echo(_verdict_of_run(report), err=shown.to_stderr)
        return
    if shown.is_verbose:
        print_outcome_details(outcome, report, to_stderr=shown.to_stderr)
    print_lines(_outcome_lines(outcome, report, shown.width), err=shown.to_stderr)


def outcome_screen(outcome: RunOutcome) -> tuple[list[str], str]:
    """Return the lines that `print_outcome` prints within 80 columns, and the line with the verdict, for `-q`."""
    report = collect_report(outcome.run, release=None if outcome.release is None else to_data(outcome.release))
    return list(_outcome_lines(outcome, report, WIDTH)), _verdict_of_run(report)


def _verdict_of_run(report: ReportData) -> str:
    return f"verdict: {report.verdict}: {report.model}: {report.headline}"


def _print_errors(outcome: RunOutcome, report: ReportData) -> None:
    """Print what went wrong, in place of all else: what could not be made or measured, and a release not made."""
    print_failures(outcome.failures, is_verbose=False)
    for name, result in outcome.results.items():
        print_result_error(name, result, is_verbose=False)
    print_errors(*_view_lines(outcome, [view for view in outcome.views if view.error is not None], None))
    if outcome.exit_code not in {0, report.exit_code}:
        print_errors(f"not released: {outcome.not_released}")


def _outcome_lines(outcome: RunOutcome, report: ReportData, width: int | None) -> Iterator[str]:
    def lines(*messages: str) -> Iterator[str]:
        for message in messages:
            yield from wrapped(message, width=width)

    yield from lines(*_taken_over(outcome))
    yield from screen_table(run_summary(report), width)
    yield from _remark_lines(run_remarks(report), width)
    yield from lines(_verdict_of_run(report))
    if outcome.release is not None:
        yield from lines(*release_lines(outcome.release, in_run=True))
    elif outcome.not_released != NOT_ASKED_FOR or width is None:
        yield from lines(f"not released: {outcome.not_released}")
        if outcome.would_release:
            yield from lines(f"would have released: {outcome.would_release}")
    yield from _view_lines(outcome, outcome.views, width)
    yield from lines(*outcome.advice)
    if width is None:
        yield f"run: {outcome.folder}"
    for path in outcome.reports:
        if path.suffix == ".html":
            yield from path_line("report", path, width)
    if command := _next_command(outcome):
        yield from command_lines(f"next: {command}", width=width)


def _view_lines(outcome: RunOutcome, views: Iterable[FollowingView], width: int | None) -> Iterator[str]:
    """Yield what became of views that follow the alias; there are none where nothing was released."""
    if outcome.repository is not None:
        yield from following_lines(views, outcome.repository, width)


def _taken_over(outcome: RunOutcome) -> Iterator[str]:
    """Yield how much was taken over from earlier runs."""
    taken = [job for job in outcome.jobs if job.taken_from]
    changed = [job for job in outcome.jobs if job.why]
    if changed:
        jobs = "1 job was" if len(changed) == 1 else f"{len(changed)} jobs were"
        yield f"{jobs} done again: {changed[0].why}"
    if not taken:
        return
    judged = sum(job.is_judged_anew for job in taken)
    if judged:
        were = "1 comparison was" if judged == 1 else f"{judged} comparisons were"
        yield f"{were} judged anew, and no model was asked"
    taken = [job for job in taken if not job.is_judged_anew]
    if not taken:
        return
    runs = sorted({job.taken_from for job in taken})
    whence = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} earlier runs"
    how_many = f"all {len(taken)}" if len(taken) == len(outcome.jobs) else f"{len(taken)} of {len(outcome.jobs)}"
    why = "since nothing that they read has changed"
    were = "was" if len(taken) == 1 else "were"
    yield f"{how_many} jobs {were} taken over from {whence}, {why}; --no-cache does them anew"


def _next_command(outcome: RunOutcome) -> str:
    """Return the command that follows a run which went well; nothing where its advice says what to do."""
    if outcome.release is not None and outcome.repository is not None:
        return show_command(outcome.release.model, outcome.release.alias, outcome.repository)
    if outcome.not_released == NOT_ASKED_FOR and outcome.exit_code == 0:
        return promote_command(outcome.run, outcome.repository)
    return ""
