"""The artifacts of a run in the terminal, with failures and their reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.codec import to_data
from paritygate.pipelines.report.figures import size_words
from paritygate.pipelines.report.summary import Remark
from paritygate.pipelines.report.tables.table import Table, status, table_of
from paritygate.pipelines.report.terminal.comparison import remark_lines
from paritygate.pipelines.report.terminal.printing import Shown, print_errors, print_lines, print_message
from paritygate.pipelines.report.terminal.screen import path_line, screen_table
from paritygate.text import first_line_of

if TYPE_CHECKING:
    from paritygate.artifact import Artifact
    from paritygate.pipelines.run.workspace import FailedVariant, RunFolder


def print_made(
    run: RunFolder, what: str, artifacts: Mapping[str, Artifact], failures: Mapping[str, FailedVariant], shown: Shown
) -> None:
    """Print the artifacts of a run, the failures with their reasons, and the run's path."""
    if shown.is_quiet or shown.is_verbose:
        print_failures(failures, is_verbose=shown.is_verbose)
    if shown.is_quiet:
        words = f"{what}: {', '.join(artifacts) or 'nothing'}"
        print_message(words + (f"; not {what}: {', '.join(failures)}" if failures else ""), err=shown.to_stderr)
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
            rows.append((status(what), name, size_words(made.size_bytes), made.digest[:19]))
        else:
            failure = failures[name]
            rows.append((status(failure.verdict, remark=first_line_of(failure.message)), name, "-", "-"))
    columns = ("outcome", "variant", ">size", "digest")
    return table_of(f"{run.resolved.name}: {what}", columns, rows)


def _hints_of_failures(failures: Mapping[str, FailedVariant], width: int | None) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for name, failure in failures.items():
        if failure.hint:
            names.setdefault(failure.hint, []).append(name)
    yield from remark_lines(
        (Remark(kind="hint", names=tuple(variants), words=first_line_of(hint)) for hint, variants in names.items()),
        width,
    )


def _notes_of(artifacts: Mapping[str, Artifact]) -> Iterator[str]:
    for name, artifact in artifacts.items():
        yield from (f"{name}: note: {note}" for note in artifact.made_by.get("notes", ()))


def made_to_json(
    run: RunFolder, artifacts: Mapping[str, Artifact], failures: Mapping[str, FailedVariant]
) -> dict[str, Any]:
    """Return the artifacts and failures of a run as JSON data."""
    return {
        "schema_version": 1,
        "run": str(run.folder),
        "artifacts": {name: {"digest": item.digest, "files": dict(item.files)} for name, item in artifacts.items()},
        "failures": {name: to_data(item) for name, item in failures.items()},
    }


def print_failures(failures: Mapping[str, FailedVariant], *, is_verbose: bool) -> None:
    """Print the reason of each failed variant, with the table of operators if they are the reason."""
    for name, failure in failures.items():
        print_errors(
            f"{failure.verdict}: {name}: {failure.message}",
            *(
                f"  {operator}  at {node}: {reason}" + (f"  ({hint})" if hint else "")
                for operator, node, reason, hint in failure.operators
            ),
            *([f"hint: {failure.hint}"] if _is_own_hint(failure) else ()),
            is_verbose=is_verbose,
        )


def _is_own_hint(failure: FailedVariant) -> bool:
    return bool(failure.hint) and all(failure.hint != hint for *_, hint in failure.operators)
