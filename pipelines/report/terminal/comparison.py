"""A comparison in the terminal: a screen with the verdict and why, and every detail with `-v`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.report.summary import (
    SEE_VERBOSE,
    Remark,
    comparison_remarks,
    comparison_summary,
    variants_in_words,
)
from paritygate.pipelines.report.tables.parity import comparison_table
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.terminal.comparison_details import comparison_details, error_lines
from paritygate.pipelines.report.terminal.printing import (
    Shown,
    print_errors,
    print_lines,
    print_message,
    print_table,
)
from paritygate.pipelines.report.terminal.screen import screen_table, wrapped
from paritygate.text import as_message, counted

_NAMES_DIFFER = {"contract.inputs", "contract.outputs"}
_OF_NUMPY = {"function", "recorded outputs"}
# Other kinds of candidates are recorded outputs.
_RUN_KINDS = {str(kind) for kind in SourceKind}
# A message quotes lines like this, and ends like this if they are a log's.
_QUOTED, _LOG = "\n  | ", "\n  log: "


def print_comparison(result: ComparisonResult, shown: Shown) -> None:
    """Print the comparison for people; errors, or everything if standard output holds JSON, go to standard error."""
    err = shown.to_stderr
    if result.error is not None:
        print_errors(*_error_lines(result, is_whole=shown.is_verbose), is_verbose=shown.is_verbose)
        return
    if shown.is_quiet:
        print_message(_verdict_line(result), err=err)
        return
    if shown.is_verbose:
        if not err:
            print_table(_table(result))
        print_lines(comparison_details(result), err=err)
    print_lines(_comparison_lines(result, shown.width), err=err)


def comparison_text(result: ComparisonResult) -> str:
    """Return everything that a verbose `print_comparison` prints on both streams without a terminal."""
    if result.error is not None:
        return "\n".join(map(as_message, _error_lines(result, is_whole=True)))
    details = map(as_message, comparison_details(result))
    return "\n".join((*screen_table(_table(result), None), *details, *_comparison_lines(result, None)))


def _table(result: ComparisonResult) -> Table:
    return comparison_table(result, _evidence_in_words(result))


def _comparison_lines(result: ComparisonResult, width: int | None) -> Iterator[str]:
    yield from screen_table(comparison_summary(result), width)
    yield from remark_lines(comparison_remarks(result), width)
    failed = {check.name for check in result.checks if check.status == "fail"}
    # Recorded outputs have the names under which they were recorded.
    if result.candidate.kind != "recording" and failed & _NAMES_DIFFER:
        words = "hint: where one is the other under another name, rename it: --map CANDIDATE=REFERENCE"
        yield from wrapped(words, width=width)
    # NumPy computes in float64 where nothing says otherwise.
    if "contract.dtype" in failed and _OF_NUMPY & {result.reference.kind, result.candidate.kind}:
        words = "hint: convert the outputs to the other side's dtype, as y.astype('float32') does"
        yield from wrapped(words, width=width)
    yield from wrapped(_verdict_line(result), width=width)


def _error_lines(result: ComparisonResult, *, is_whole: bool) -> Iterator[str]:
    """Yield why a comparison failed, its progress, and the hint; a server's long message only with `is_whole`."""
    assert result.error is not None  # noqa: S101 - the caller looked
    first, *hint = error_lines(result.error)
    short, _, quoted = first.partition(_QUOTED)
    yield first if is_whole or not quoted or _LOG in first else f"{short} (-v prints all that was said)"
    if result.rows:
        yield f"{counted(result.rows, 'row')} had been compared by then, and a part gives no verdict"
    yield from hint


def _verdict_line(result: ComparisonResult) -> str:
    return f"verdict: {result.verdict_words}"


def remark_lines(remarks: Iterable[Remark], width: int | None) -> Iterator[str]:
    """Yield remarks as lines of at most this width; None for any width, without those on what -v shows."""
    for remark in remarks:
        if width is None and remark.words.endswith(SEE_VERBOSE):
            continue
        # In full where lines may be as wide as they are.
        names = ", ".join(remark.names) if width is None else variants_in_words(remark.names)
        yield from wrapped(": ".join(filter(None, (remark.kind, names, remark.words))), width=width)


def _evidence_in_words(result: ComparisonResult) -> str:
    if result.candidate.runtime is None or result.candidate.kind not in _RUN_KINDS:
        return "recorded"
    is_emulated = (result.candidate.device or "").startswith("emulated")
    return "emulated" if is_emulated else "verified"
