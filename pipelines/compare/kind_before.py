"""Results of versions that wrote sentences alone: this is the one place that reads how a check came about in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from paritygate.validate.measure.check import Kind, Status
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from paritygate.validate.words.sentence import Words

# The measured number and its limit, as the sentences of most checks began.
_PAIR = re.compile(r"^(?:-?[\d.]+(?:e[+-]?\d+)?|nan|-?inf) (<=|>|>=|<) -?[\d.]+(?:e[+-]?\d+)?(?![\d%])(?! %)")
_REASONS = {"does not apply: ": ("probe.does_not_apply", "lacks"), "not asked: ": ("probe.not_asked", "reason")}
_SIGNS = {"<=": "at_most", ">": "above", ">=": "at_least", "<": "below_limit"}

_STARTS = {
    "not measured": Kind.NOT_MEASURED,
    "depends on": Kind.DEPENDS,
    "does not apply": Kind.DOES_NOT_APPLY,
    "not asked": Kind.NOT_ASKED,
    "nothing of it could be asked": Kind.NOT_ASKED,
}


def kind_before(status: str, detail: str) -> Kind:
    """Return how a check came to its status, of a result that does not say it."""
    if status == Status.EDGE:
        return Kind.EDGE
    found = next((kind for start, kind in _STARTS.items() if detail.startswith(start)), None)
    if found is not None:
        return found
    return Kind.NOT_MEASURED if status == Status.ERROR else Kind.MEASURED


def words_before(detail: str, measured: float | None = None, limit: float | None = None) -> Words:
    """Return the sentences of a check, of a result that holds text alone."""
    for start, (key, value) in _REASONS.items():
        if detail.startswith(start):
            return say(key, **{value: detail.removeprefix(start)})
    line, _, below = detail.partition("\n")
    pair = _PAIR.match(line)
    words: Words = ()
    if pair and measured is not None and limit is not None:
        words, line = say(_SIGNS[pair[1]], measured=measured, limit=limit), line[pair.end() :]
    words += say("text", text=line) if line else ()
    return words + (say("below", text=below) if below else ())
