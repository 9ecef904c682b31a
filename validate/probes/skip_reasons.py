"""Batches left out of a probe before any candidate runs, by reason: no reference output to compare with, or no room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paritygate.text import StrEnum

# The rest of a kind is only counted.
_NAMED = 50


class DropKind(StrEnum):
    """The reason for leaving out a batch: one about the reference, or (the last two) the probe's limits."""

    NOT_ANSWERED = "not_answered"
    UNSTEADY = "unsteady"
    SENSELESS = "senseless"
    SIZE = "size"
    NEVER_OCCURS = "never_occurs"
    NO_ROWS_LEFT = "no_rows_left"
    NO_TIME_LEFT = "no_time_left"


# Reasons that leave something uncovered, because the batch could have run.
LEFT_OUT_FOR_WANT = frozenset({DropKind.NO_ROWS_LEFT, DropKind.NO_TIME_LEFT})

_WORDS: Mapping[DropKind, str] = {
    DropKind.NOT_ANSWERED: "that the reference refuses, or does not answer finitely and repeatably",
    DropKind.UNSTEADY: "whose answer hangs on the last digits of the inputs, or on the rows beside them",
    DropKind.SENSELESS: "that break what all samples keep to",
    DropKind.SIZE: "on whose values a shape or a loop depends, and no sample holds",
    DropKind.NEVER_OCCURS: "that never occur, as roles say",
    DropKind.NO_ROWS_LEFT: "beyond the {rows}rows that a probe may use",
    DropKind.NO_TIME_LEFT: "beyond what probes may cost beside the samples",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A batch that runs on no candidate; `reason` is a sentence with the numbers."""

    about: str
    kind: DropKind
    reason: str


class Drops:
    """Counts the batches left out, and keeps the first ones of each kind."""

    def __init__(self) -> None:
        self._named: list[Dropped] = []
        self._counts: dict[DropKind, int] = {}

    def add(self, dropped: Dropped) -> None:
        """Count one batch."""
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
        """The number of batches of each kind, in the order of the kinds."""
        return {kind: self._counts[kind] for kind in DropKind if kind in self._counts}


def batches_in_words(count: int, which: str = "") -> str:
    """Return a count as text, such as `3 more batches`."""
    return f"{count} {which}{' ' if which else ''}{'batch' if count == 1 else 'batches'}"


def drop_words(counts: Mapping[DropKind, int], *, rows: int = 0) -> list[str]:
    """Return one phrase per kind left out; `rows` are those that the probe may use (0: do not mention them)."""
    allowed = f"{rows} " if rows else ""
    return [f"{batches_in_words(count)} {_WORDS[kind].format(rows=allowed)}" for kind, count in counts.items() if count]
