"""Counts in messages: one row, two rows."""

from __future__ import annotations

__all__ = ["counted", "one_or_many"]

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
