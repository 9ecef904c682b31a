"""Words in messages: counts, as one row, two rows, and names in the order of what may be meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["counted", "meant", "nearest_first", "one_or_many"]

_HISSING = ("s", "x", "ch", "sh")


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: `1 batch`, `2 batches`.

    Args:
        count: How many.
        noun: In the singular; its last word takes the ending.
    """
    return f"{count} {noun if count == 1 else noun + ('es' if noun.endswith(_HISSING) else 's')}"


def one_or_many(count: int, one: str, many: str) -> str:
    """Return the word that agrees with the count: `is` or `are`, `differs` or `differ`."""
    return one if count == 1 else many


def meant(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean 'logits'?` for the name that is most like the one given; empty where none is near."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {found[0]!r}?" if found else ""


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are known, those first that are most like the one given; the others keep their order."""
    return sorted(known, key=lambda each: -difflib.SequenceMatcher(None, name, each).ratio())
