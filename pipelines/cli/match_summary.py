"""Detections in the terminal: how many of them matched, and in which strata how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paritygate.pipelines.compare.result import ComparisonResult, MatchResult, MatchStratumResult

__all__ = ["match_lines"]

# More values of a stratum than this stand in the report only.
_NAMED_VALUES = 5


def match_lines(result: ComparisonResult) -> Iterator[str]:
    """Yield one line for each list of detections, and one for each stratum of it: the worst values first."""
    for name, found in result.matches.items():
        yield f"detections {name}: {_counted(found)}, {found.missing} missing, {found.extra} extra (rows: {found.rows})"
        for stratum, values in found.strata.items():
            yield f"detections {name} by {stratum}: {_by_value(values)}"


def _counted(found: MatchResult | MatchStratumResult) -> str:
    return f"{found.matched} of {found.expected} matched"


def _by_value(values: Mapping[str, MatchStratumResult]) -> str:
    worst = sorted(values.items(), key=lambda item: -(item[1].missing + item[1].extra))
    words = [f"{value!r} {_counted(found)} (rows: {found.rows})" for value, found in worst[:_NAMED_VALUES]]
    more = f", and {len(values) - len(words)} other values" if len(values) > len(words) else ""
    return ", ".join(words) + more
