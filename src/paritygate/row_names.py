"""Rows of the samples in messages: always in one form, so that their ids can be left out of what leaves the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["HIDDEN", "row_name", "row_names", "row_range", "without_row_ids"]

HIDDEN = "(hidden)"
# What is cut off, as a long message is in a table, has no closing quote.
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*(?:'|\\?$)|"(?:[^"\\]|\\.)*(?:"|\\?$))"""
_NAMED = re.compile(rf"\b(rows?|ids?) {_QUOTED}(?:(?:, |\.\.){_QUOTED})*")


def row_name(row_id: str) -> str:
    """Return how a message names a row: `row 'a-1'`."""
    return f"row {row_id!r}"


def row_names(ids: Iterable[str]) -> str:
    """Return how a message names rows: `rows 'a-1', 'a-2'`, or `row 'a-1'` of one."""
    found = list(ids)
    return f"{'row' if len(found) == 1 else 'rows'} {', '.join(map(repr, found))}"


def row_range(first: str, last: str) -> str:
    """Return how a message names the rows of a batch: `rows 'a-1'..'a-9'`."""
    return f"rows {first!r}..{last!r}"


def without_row_ids(text: str) -> str:
    """Return a message without the ids of rows in it: `row (hidden)`."""
    return _NAMED.sub(lambda found: f"{found[1]} {HIDDEN}", text)
