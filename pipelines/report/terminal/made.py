"""The artifacts of a run in the terminal, with failures and their reasons, and a repaired one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.codec import to_data
from paritygate.pipelines.report.figures import size_words
from paritygate.pipelines.report.summary import Remark
from paritygate.pipelines.report.tables.table import Table, figure, heads, status, text
from paritygate.pipelines.report.terminal.comparison import remark_lines
from paritygate.pipelines.report.terminal.printing import Shown, print_errors, print_lines, print_message
from paritygate.pipelines.report.terminal.screen import WIDTH, path_line, screen_table
from paritygate.text import counted, first_line_of, one_line

# Operators in a list; the others are counted.
_LISTED = 8

if TYPE_CHECKING:
    from paritygate.artifact import Artifact
    from paritygate.pipelines.repair.result import HeldOut, RepairedVariant
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
            rows.append((status(what), text(name), figure(size_words(made.size_bytes)), text(made.digest[:19])))
        else:
            failure = failures[name]
            rows.append(
                (status(failure.verdict, remark=first_line_of(failure.message)), text(name), figure("-"), text("-"))
            )
    columns = heads("outcome", "variant", ">size", "digest")
    return Table(caption=f"{run.resolved.name}: {what}", columns=columns, rows=tuple(rows))


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


def print_repair(repaired: RepairedVariant) -> None:
    """Print outcome, kept operators, the verdict on other rows, and the next step."""
    print_lines(list(repair_lines(repaired)), err=False)


def repair_lines(repaired: RepairedVariant) -> Iterator[str]:
    """Yield the lines that `print_repair` prints."""
    repair = repaired.repair
    kept = f"{len(repair.kept)} of {counted(repair.switches, 'operator')} stay in fp32"
    yield from _wrapped(
        f"{repaired.outcome}: {repaired.variant}: {kept}, found in {counted(repair.runs, 'run')} on "
        f"{counted(repair.searched.rows + repair.checked.rows, 'row')}"
    )
    for item in repair.kept[:_LISTED]:
        yield from _wrapped(f"  {item.operator} {one_line(item.name)}: {item.reason}, values up to {item.largest:.3g}")
    if len(repair.kept) > _LISTED:
        yield f"  and {len(repair.kept) - _LISTED} more: see repair.json"
    yield from _wrapped(_held_out("other rows", repaired.held_out))
    if repaired.emulated is not None:
        yield from _wrapped(_held_out("other rows, emulated", repaired.emulated))
    low = "" if repair.multiply_adds_low is None else f"{repair.multiply_adds_low:.0%} of multiply-adds stay low, "
    size = f"{repair.file_bytes / max(1, repair.fp32_bytes):.0%} of the FP32 file"
    yield from _wrapped(f"{low}size: {size}, traffic: {repair.bytes_moved:.0%}")
    yield f"file: {repaired.file}"
    if repaired.target:
        yield from _wrapped(f"To release it, add this to targets in the spec: {repaired.target}")


def _held_out(what: str, found: HeldOut) -> str:
    used = "" if found.tolerance_used is None else f", {found.tolerance_used:.0%} of the tolerance used"
    failed = f" ({', '.join(found.failed)})" if found.failed else ""
    return f"{what}: {found.verdict}{failed} on {counted(found.rows, 'row')}{used}"


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
