"""What is left out of results, evidence and reports where inputs are hidden: rows are data of the user.

Figures, checks and verdicts stay. Which rows differ most and how they were answered, examples, ids of rows in messages,
the places of the batches that a probe failed at, and actual against expected values do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from paritygate.codec import from_data, to_data
from paritygate.text import without_row_ids

__all__ = ["hidden", "without_inputs"]

_T = TypeVar("_T")

_WORST, _EXAMPLES, _ROW_ID, _GRID = "worst_rows", "examples", "max_row_rel_id", "grid"
_OF_WORST: dict[str, Any] = {"row_id": "", "index": [], "actual": None, "expected": None}
_OF_FAILURE = frozenset({"about", "check", "inputs", "again"})


def without_inputs(data: Any) -> Any:  # noqa: ANN401 - any JSON data
    """Return JSON data of a result or of evidence without what is data of the user."""
    if isinstance(data, str):
        return without_row_ids(data)
    if isinstance(data, list):
        return [without_inputs(item) for item in data]
    if not isinstance(data, Mapping):
        return data
    found = {key: _without(key, value) for key, value in data.items()}
    if found.keys() >= _OF_FAILURE:
        found.update(inputs=None, again="")
    return found


def _without(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON data
    # An output may have any name, but what is measured of it is a mapping.
    if key == _WORST and isinstance(value, list):
        return [{**row, **_OF_WORST} for row in value]
    if key == _EXAMPLES and isinstance(value, list):
        return []
    if key == _ROW_ID and isinstance(value, str):
        return ""
    if key == _GRID and isinstance(value, Mapping) and "cells" in value:
        # A cell with one value in it says how one row was answered.
        return None
    return without_inputs(value)


def hidden(value: _T) -> _T:
    """Return a result or evidence without what is data of the user."""
    return from_data(type(value), without_inputs(to_data(value)))
