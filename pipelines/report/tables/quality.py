"""Tables of user-visible quality: metrics against gold, and matched detections."""

from __future__ import annotations

from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.report.figures import number, number_pair
from paritygate.pipelines.report.tables.table import Row, Table, table_of
from paritygate.validate.detections.figures import MatchFigures, MatchStatistics
from paritygate.validate.gold.figures import GoldStatistics

_NOT_DEFINED = "not defined"


def quality_tables(result: ComparisonResult) -> tuple[Table, ...]:
    """Return a table of metrics and one of detections, where there are any."""
    tables = []
    if result.gold:
        tables.append(_gold_table(result))
    if result.matches:
        tables.append(_match_table(result))
    return tuple(tables)


def _gold_table(result: ComparisonResult) -> Table:
    rows: list[Row] = []
    for rule, statistics in result.gold.items():
        rows.append(_gold_row(rule, statistics))
        for name, values in statistics.strata.items():
            for stratum, item in values.items():
                difference = (
                    None if item.candidate is None or item.reference is None else item.candidate - item.reference
                )
                figures = (item.reference, item.candidate)
                rows.append(
                    (
                        f"{rule}, {name} {stratum}",
                        number(item.rows),
                        *(_shown(each) for each in figures),
                        number(difference, missing=_NOT_DEFINED),
                        "-",
                        "-",
                    )
                )
    titles = ("metric", ">rows", ">reference", ">candidate", ">difference", ">95 % interval", ">at least")
    return table_of("Against gold", titles, rows)


def _gold_row(rule: str, found: GoldStatistics) -> Row:
    interval = "not known"
    if found.difference_low_95 is not None and found.difference_high_95 is not None:
        interval = f"{number(found.difference_low_95)} to {number(found.difference_high_95)}"
    candidate, limit = _shown(found.candidate), "no limit" if found.limit is None else number(found.limit)
    if found.candidate is not None and found.limit is not None:
        candidate, limit = number_pair(found.candidate, found.limit)
    rows = number(found.rows)
    without = f" ({number(found.rows_without)} without gold)" if found.rows_without else ""
    return (
        rule,
        f"{rows}{without}",
        _shown(found.reference),
        candidate,
        number(found.difference, missing=_NOT_DEFINED),
        interval,
        limit,
    )


def _shown(found: float | None) -> str:
    return number(found, missing=_NOT_DEFINED)


_MATCH_FIGURES = {
    "rows": "rows",
    "reference": "expected",
    "candidate": "actual",
    "matched": "matched",
    "missing": "missing",
    "extra": "extra",
    "near the floor or end": "near_floor",
    "below the floor": "below_floor",
    "not finite": "non_finite",
    "smallest IoU": "min_iou",
    "largest box difference": "max_box_diff",
    "largest score difference": "max_score_diff",
    "largest other difference": "max_other_diff",
}


def _match_table(result: ComparisonResult) -> Table:
    rows: list[Row] = []
    for rule, statistics in result.matches.items():
        rows.append(_match_row(rule, statistics))
        for name, values in statistics.strata.items():
            rows += [_match_row(f"{rule}, {name} {stratum}", item) for stratum, item in values.items()]
    return table_of("Detections matched", ("detections", *(f">{title}" for title in _MATCH_FIGURES)), rows)


def _match_row(name: str, found: MatchStatistics | MatchFigures) -> Row:
    return (name, *(number(getattr(found, key), missing="-") for key in _MATCH_FIGURES.values()))
