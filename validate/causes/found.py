"""A cause of a failure, as results hold it, and what came of looking for it."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.validate.words.sentence import Words, render

# What came of looking for a cause.
NAMED = "named"
NOT_CONFIRMED = "not_confirmed"
NO_TIME = "no_time"
NOT_ASKED = "not_asked"
FAULT = "fault"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One cause, and what came of looking for it.

    Attributes:
        kind: Its name, such as `channels_reversed`.
        outcome: `named`, or why it is not: `not_confirmed`, `no_time`, `not_asked` or `fault`.
        words: The sentence about it.
        rows: How many rows confirm it; None without a trial.
        before: The largest difference in these rows as a multiple of its limit; None without a trial, or without an
            answer.
        after: The same with the change.
        detail: The sentence about it, as text.
    """

    kind: str
    outcome: str
    words: Words
    rows: int | None = None
    before: float | None = None
    after: float | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", render(self.words))
