"""Word in one sentence why a variant has its verdict: the worst check, its place and its size."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paritygate.pipelines.report.figures import number, number_pair
from paritygate.text import HIDDEN, counted, first_line_of, one_or_many, row_name
from paritygate.validate.words.sentence import AT_LEAST, first_line, pair_of, render

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult, OutputResult
    from paritygate.pipelines.report.report_data import VariantReport
    from paritygate.validate.measure.check import Check
    from paritygate.validate.measure.figures import WorstRow

# Order of failed checks: missing outputs, then values of outputs by rows beyond a limit, and generated inputs last.
_ORDER = ("contract", "accepts_inputs", "distinct", "resolution", "finite")
_OF_VALUES = (
    *("exact", "fill_values", "max_abs_diff", "p9999_abs_diff"),
    *("max_row_rel_diff", "mean_abs_diff", "decision_mismatches"),
)
_OF_ROWS = {"max_abs_diff": "", "max_row_rel_diff": " of the row"}
_NUMBER_NAMES = {"mean_abs_diff": "the mean difference is"}
_PROBE = "probe_"


def why(result: ComparisonResult) -> str:
    """Return why a comparison is not a pass, in one sentence; empty for a pass."""
    if not result.is_measured:
        return first_line_of(result.why_not_measured)
    bad = _bad(result)
    if not bad:
        return ""
    checks = {check.name for check in bad} - {bad[0].name}
    # An output that is missing and one that is too many may be the same under two names.
    outputs = {check.output for check in bad if not _is_extra(check) or _is_extra(bad[0])} - {bad[0].output, None}
    also = [counted(len(checks), "more check")] if checks else []
    also += [counted(len(outputs), "more output")] if outputs and bad[0].output else []
    return _sentence(bad[0], result) + (f" (and {', '.join(also)})" if also else "")


def _is_extra(check: Check) -> bool:
    return any(sentence.key == "contract.more_output" for sentence in check.words)


def headline_check(result: ComparisonResult) -> Check | None:
    """Return the check in the sentence of a comparison that is not a pass; None for a pass."""
    return next(iter(_bad(result)), None)


def _bad(result: ComparisonResult) -> list[Check]:
    if result.verdict == "pass":
        return []
    bad = (check for check in result.checks if check.status == result.verdict)
    return sorted(bad, key=functools.partial(_rank, result))


def why_of_variant(variant: VariantReport) -> str:
    """Return why a variant of a run is not a pass, in one sentence; empty for a pass."""
    if variant.result is not None and variant.result.is_measured:
        return why(variant.result)
    if not variant.operators:
        return first_line_of(variant.reason)
    operator, node, reason, *_ = variant.operators[0]
    words = first_line_of(variant.reason)
    return f"{words}{'' if words.endswith(operator) else f': {operator}'} at {node}: {reason}"


def _rank(result: ComparisonResult, check: Check) -> tuple[int, int, int, float]:
    """Return the sort key of a check: its group, the rows of its output, its name, and how far beyond its limit."""
    beyond = -abs(check.measured) / check.limit if check.measured is not None and check.limit else 0.0
    name = check.name.partition(".")[0]
    if name in _ORDER:
        return _ORDER.index(name), 0, 0, beyond
    if name not in _OF_VALUES:
        return len(_ORDER) + 1 + name.startswith(_PROBE), 0, 0, beyond
    output = result.outputs.get(check.output or "")
    rows = 0 if output is None else output.rows_beyond
    # A fault in an output without rows of its own may be in all of them.
    return len(_ORDER), -(result.rows if rows is None else rows), _OF_VALUES.index(name), beyond


def _sentence(check: Check, result: ComparisonResult) -> str:
    of = f"{check.output}: " if check.output and len(result.outputs) > 1 else ""
    output = result.outputs.get(check.output or "")
    if check.name in _OF_ROWS and output is not None and check.measured is not None and check.limit is not None:
        return of + _of_rows(check, output, check.measured, check.limit)
    pair, words = pair_of(check.words)
    if pair and check.measured is not None and check.limit is not None:
        measured, limit = number_pair(check.measured, check.limit)
        least = "at least " if pair in AT_LEAST else ""
        name = _NUMBER_NAMES.get(check.name, f"{check.name} is")
        return f"{of}{name} {measured} against a limit of {least}{limit}{words}"
    if check.name.startswith(_PROBE):
        return f"{of}probe {check.name.removeprefix(_PROBE)}: {render(check.words)}"
    return of + first_line(check.words)


def _of_rows(check: Check, output: OutputResult, measured: float, limit: float) -> str:
    texts = number_pair(measured, limit)
    of_what = _OF_ROWS[check.name]
    row = _worst(check, output)
    # Withheld ids are not named.
    where = f" ({row_name(row)})" if row and row != HIDDEN else ""
    by = f"{texts[0]}{of_what} against a limit of {texts[1]}"
    if not output.rows_beyond:
        return f"the largest difference{where} is {by}"
    count = output.rows_beyond
    every = f"{number(output.rows)} {one_or_many(output.rows, 'row', 'rows')}"
    rows = f"{number(count)} of {every} {one_or_many(count, 'differs', 'differ')}"
    return f"{rows}{where if count == 1 else where.replace('(', '(worst: ', 1)}: {by}"


def _worst(check: Check, output: OutputResult) -> str:
    """Return the id of the row that a check is about; empty where it is unknown."""
    if check.name == "max_row_rel_diff":
        return output.max_row_rel_id
    return next((row.row_id for row in _nearest_first(output.worst_rows, check)), "")


def _nearest_first(rows: Sequence[WorstRow], check: Check) -> list[WorstRow]:
    return sorted(rows, key=lambda row: (row.max_abs_diff != check.measured, row.limit != check.limit))
