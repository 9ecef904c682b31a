"""What is left out of a probe before any candidate is asked, by why: no answer to compare with, or no room left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

# More than this many of a kind are counted, not named.
_NAMED = 50


class DropKind(str, Enum):
    """Why a batch is left out; the first ones say something of the reference, the last two of the probe alone."""

    NOT_ANSWERED = "not_answered"
    # Of recordings of earlier versions alone: such ids are out-of-sample rows.
    ANY_ID = "any_id"
    UNSTEADY = "unsteady"
    SENSELESS = "senseless"
    SIZE = "size"
    NEVER_OCCURS = "never_occurs"
    NO_ROWS_LEFT = "no_rows_left"
    NO_TIME_LEFT = "no_time_left"

    def __str__(self) -> str:
        return self.value


# What is left out though it could be asked, so that something is not covered.
LEFT_OUT_FOR_WANT = frozenset({DropKind.NO_ROWS_LEFT, DropKind.NO_TIME_LEFT})

_WORDS: Mapping[DropKind, str] = {
    DropKind.NOT_ANSWERED: "that the reference refuses, or does not answer finitely and repeatably",
    DropKind.ANY_ID: "of ids outside of every table, where the reference accepts any integer as an id",
    DropKind.UNSTEADY: "whose answer hangs on the last digits of the inputs, or on the rows beside them",
    DropKind.SENSELESS: "that break what all samples keep to",
    DropKind.SIZE: "whose values a shape or a loop hangs on, and no sample holds",
    DropKind.NEVER_OCCURS: "that never occur, as roles say",
    DropKind.NO_ROWS_LEFT: "beyond the {rows}rows that a probe may use",
    DropKind.NO_TIME_LEFT: "beyond what probes may cost beside the samples",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """One batch that no candidate is asked.

    Attributes:
        about: What is special about it.
        kind: Why it is left out.
        reason: The same in words, with the numbers.
    """

    about: str
    kind: DropKind
    reason: str


class Drops:
    """Counts what is left out, and keeps the first ones of each kind by name."""

    def __init__(self) -> None:
        self._named: list[Dropped] = []
        self._counts: dict[DropKind, int] = {}

    def add(self, dropped: Dropped) -> None:
        """Take in one batch."""
        count = self._counts.get(dropped.kind, 0)
        self._counts[dropped.kind] = count + 1
        if count < _NAMED:
            self._named.append(dropped)

    @property
    def named(self) -> tuple[Dropped, ...]:
        """The first ones of each kind, in order."""
        return tuple(self._named)

    @property
    def counts(self) -> dict[DropKind, int]:
        """How many there are of each kind, in the order of the kinds."""
        return {kind: self._counts[kind] for kind in DropKind if kind in self._counts}


def batches_in_words(count: int, which: str = "") -> str:
    """Return so many batches in words, such as `3 more batches`."""
    return f"{count} {which}{' ' if which else ''}{'batch' if count == 1 else 'batches'}"


def drop_words(counts: Mapping[DropKind, int], *, rows: int = 0) -> list[str]:
    """Return what was left out in words, one phrase a kind.

    Args:
        counts: Batches of each kind.
        rows: Rows that the probe may use; 0 to say nothing of how many.
    """
    allowed = f"{rows} " if rows else ""
    return [f"{batches_in_words(count)} {_WORDS[kind].format(rows=allowed)}" for kind, count in counts.items() if count]
