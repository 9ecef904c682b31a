"""The parity table of published practice, one row per output, for a run, a comparison and a release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.tables.table import Cell, Row, Table, status, table_of, text
from paritygate.validate.measure.bounds import upper_bound_text

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult, OutputResult
    from paritygate.pipelines.report.report_data import ReportData, VariantReport
    from paritygate.validate.detections.figures import MatchStatistics
    from paritygate.validate.measure.figures import DecisionStatistics

_COLUMNS = (
    "variant", "output", ">rows", ">0/1 mismatches", ">95 % bound", ">max diff", ">min diff", ">mean diff",
    ">std of diff", "device", "evidence", "verdict",
)  # fmt: skip
_DIFFERENCES = ("max_abs_diff", "min_abs_diff", "mean_abs_diff", "std_abs_diff")
_NOTHING = "-"
_CHECKS_NAMED = 2


def anchor_of(position: int) -> str:
    """Return the anchor of the variant at a position; never made of foreign text."""
    return f"variant-{position + 1}"


def parity_table(report: ReportData) -> Table:
    """Return the table of a run: one row per output of each variant."""
    rows: list[Row] = []
    for position, variant in enumerate(report.variants):
        rows += _variant_rows(variant, anchor_of(position))
    return table_of("Parity with the source: statistics of |actual - expected|", _COLUMNS, rows)


def comparison_table(result: ComparisonResult, evidence: str) -> Table:
    """Return the table of one comparison: one row per output."""
    where = (result.candidate.device or _NOTHING, evidence)
    return table_of(
        f"{result.candidate.name} against {result.reference.name}, judged as {result.precision}",
        _COLUMNS,
        _result_rows(result.precision, result, where, result.verdict),
    )


def released_table(numbers: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of a release's recorded numbers: one row per output and device."""
    rows = tuple(
        (
            item["variant"],
            item["output"],
            *(number(item[name], missing=_NOTHING) for name in ("rows", "mismatches")),
            _bound(item["mismatch_rate_upper_95"]),
            *(number(item[name], missing=_NOTHING) for name in _DIFFERENCES),
            item["device"] or _NOTHING,
            item["evidence"],
            status(item["verdict"]),
        )
        for item in numbers
    )
    return table_of("Numbers", _COLUMNS, rows)


def _bound(rate: float | None) -> str:
    return _NOTHING if rate is None else f"< {upper_bound_text(rate)}"


def _variant_rows(variant: VariantReport, anchor: str) -> Iterable[Row]:
    name = text(variant.name, anchor=anchor, remark="" if variant.is_required else "optional")
    yield from _result_rows(name, variant.result, (variant.device or _NOTHING, variant.evidence), variant.verdict)
    if variant.emulated is not None:
        kind = "emulated" if variant.emulated.error is None else "none"
        device = variant.emulated.candidate.device or _NOTHING
        name = text(variant.name, anchor=anchor, remark="emulated")
        yield from _result_rows(name, variant.emulated, (device, kind), variant.emulated.verdict)


def _result_rows(name: Cell | str, result: ComparisonResult | None, where: Row, verdict: str) -> Iterable[Row]:
    if result is None or not (result.outputs or result.matches or result.decisions):
        rows = number(result.rows) if result is not None else "0"
        yield (name, _NOTHING, rows, *[_NOTHING] * 6, *where, status(verdict, remark=_why(result, "")))
        return
    rows = number(result.rows)
    for output_name, cells in _measured(result).items():
        yield (name, *cells[:1], rows, *cells[1:], *where, status(verdict, remark=_why(result, output_name)))


def _measured(result: ComparisonResult) -> dict[str, Row]:
    by_output: dict[str, Row] = {}
    for name, output in result.outputs.items():
        shown = [number(getattr(output, key), missing=_NOTHING) for key in _DIFFERENCES]
        by_output[name] = (name, *_mismatch_cells(output, result.decisions.get(name)), *shown)
    for name, decision in result.decisions.items():
        if name not in result.outputs:
            by_output[name] = (text(name, remark="labels"), *_decision_cells(decision), *[_NOTHING] * 4)
    for name, match in result.matches.items():
        shown = [_match_diffs(match), *[_NOTHING] * 3]
        pairs = f"{number(match.matched)} of {number(match.expected)} matched"
        by_output[name] = (text(name, remark="detections"), pairs, _NOTHING, *shown)
    return by_output


def _match_diffs(match: MatchStatistics) -> str:
    figures = (("scores", match.max_score_diff), ("boxes", match.max_box_diff))
    return ", ".join(f"{what} {number(diff)}" for what, diff in figures if diff is not None) or _NOTHING


def _why(result: ComparisonResult | None, output: str) -> str:
    """Return the checks behind a verdict, as far as they are about the output; for a pass, its findings."""
    if result is None or not result.is_measured:
        return ""
    if result.verdict == "pass":
        return result.edge_words
    bad = [check for check in result.checks if check.status == result.verdict]
    names = dict.fromkeys(check.name for check in bad if check.output in {None, output})
    # A variant has one verdict, from whichever output.
    names = names or dict.fromkeys(f"{check.name} of {check.output}" for check in bad)
    shown, more = list(names)[:_CHECKS_NAMED], len(names) - _CHECKS_NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _mismatch_cells(output: OutputResult, decision: DecisionStatistics | None) -> tuple[str, str]:
    if decision is not None:
        return _decision_cells(decision)
    words = "no rule" if output.mismatches is None else f"{number(output.mismatches)} values"
    return words, _NOTHING


def _decision_cells(decision: DecisionStatistics) -> tuple[str, str]:
    return number(decision.mismatches), _bound(decision.mismatch_rate_upper_95)
