"""Results of versions that wrote sentences alone: only this module reads how a check came about in them."""

from __future__ import annotations

import re

from paritygate.validate.words.sentence import Words, say

# The measured number and its limit, as the sentences of most checks began.
_PAIR = re.compile(r"^(?:-?[\d.]+(?:e[+-]?\d+)?|nan|-?inf) (<=|>|>=|<) -?[\d.]+(?:e[+-]?\d+)?(?![\d%])(?! %)")
_REASONS = {"does not apply: ": ("probe.does_not_apply", "lacks"), "not asked: ": ("probe.not_asked", "reason")}
_SIGNS = {"<=": "at_most", ">": "above", ">=": "at_least", "<": "below_limit"}

_STARTS = {
    "not measured": "not_measured",
    "depends on": "depends",
    "does not apply": "does_not_apply",
    "not asked": "not_asked",
    "nothing of it could be asked": "not_asked",
}


def kind_before(status: str, detail: str) -> str:
    """Return the name of the kind of a check from a result that lacks it."""
    if status == "edge":
        return "edge"
    otherwise = "not_measured" if status == "error" else "measured"
    return next((kind for start, kind in _STARTS.items() if detail.startswith(start)), otherwise)


def words_before(detail: str, measured: float | None = None, limit: float | None = None) -> Words:
    """Return the sentences of a check from a result that holds text alone."""
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
