"""Numbers as the report writes them: short, and never rounded across a limit."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

_DIGITS = 3
# Digits that distinguish all float32 numbers, and all float64 numbers.
_VALUE_DIGITS = 9
_ALL_DIGITS = 17
# The ellipsis, and the space before it.
_ELLIPSIS_ROOM = 2
_OPENING, _CLOSING = "([{", ")]}"


def _short(number: float, digits: int) -> str:
    if number == int(number) and abs(number) < 10**6:
        return str(int(number))
    text = f"{number:.{digits}g}"
    # 4.77e-07 -> 4.77e-7
    return re.sub(r"e([+-])0+", r"e\1", text).replace("e+", "e") if "e" in text else text


def number(found: float | None, *, missing: str = "not measured") -> str:
    """Return a number with three digits, counts in full; `missing` for None."""
    if found is None:
        return missing
    if isinstance(found, int):
        return f"{found:,}"
    return _short(found, _DIGITS)


def amount(found: float | None, *, missing: str = "not measured") -> str:
    """Return a measured amount with three digits, and from 1,000 on as a whole number; `missing` for None."""
    is_large = found is not None and found >= 10**_DIGITS
    return f"{found:,.0f}" if is_large else number(found, missing=missing)


def value(found: float | None) -> str:
    """Return a value of an output with all digits of float32; None was not finite."""
    return "not finite" if found is None else _short(found, _VALUE_DIGITS)


def number_pair(measured: float, limit: float) -> tuple[str, str]:
    """Return two numbers with enough digits to show their difference."""
    for digits in range(_DIGITS, _ALL_DIGITS):
        texts = _short(measured, digits), _short(limit, digits)
        if texts[0] != texts[1] or measured == limit:
            return texts
    return _short(measured, _ALL_DIGITS), _short(limit, _ALL_DIGITS)


def share(measured: float, limit: float) -> str:
    """Return a number as a part of its limit: in percent, from ten times on as a factor; rounded up."""
    part = measured / limit
    if math.isinf(part):
        return "beyond"
    if part >= 10:  # noqa: PLR2004 - where percents become hard to read
        rounded = float(f"{part:.{_DIGITS}g}")
        return f"{rounded:,.0f} times" if 10**3 <= part < 10**6 else f"{_short(part, _DIGITS)} times"
    percents = math.ceil(part * 100)
    return f"{percents} %" if part > 0.01 or part == 0 else "< 1 %"  # noqa: PLR2004 - one percent


def times(ratio: float) -> str:
    """Return a speed-up as text: `5.57x`."""
    return f"{number(ratio)}x"


def percent(part: float, whole: float) -> str:
    """Return a part of a whole in percent."""
    return f"{part / whole:.1%}".replace("%", " %") if whole else "-"


def near_one(found: float | None) -> str:
    """Return a similarity, at most 1, so that only exactly 1 is written as 1."""
    if found is None or found == 1:
        return number(found)
    shown = _short(found, _VALUE_DIGITS)
    return f"1 - {_short(1 - found, _DIGITS)}" if shown == "1" else shown


def size_words(count: int | None) -> str:
    """Return a number of bytes in units of 1000."""
    if count is None:
        return "a file is missing"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


def seconds_words(seconds: float) -> str:
    """Return a time: `0.4 s`, `41 s`, `6 min 17 s`."""
    if round(seconds) < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def shorten(words: str, length: int) -> str:
    """Return the beginning of a text, at most `length` columns wide, with an ellipsis if it is cut.

    It ends with a sentence or clause, and before brackets that would be cut. Where that leaves less than a third of the
    width, it ends with a clause in brackets, or between words. Cut brackets are closed.
    """
    if cell_len(words) <= length:
        return words
    cut = _cut(words, length - _ELLIPSIS_ROOM)
    closing = _closing(cut)
    if closing:
        cut = _cut(words, length - _ELLIPSIS_ROOM - len(closing))
        closing = _closing(cut)
    return f"{cut} …{closing}"


def _cut(words: str, room: int) -> str:
    fits = chop_cells(words, room)[0]
    ends = [(at, depth) for at, depth in _clause_ends(words) if at <= len(fits) and cell_len(fits[:at]) >= room / 3]
    for places in ([at for at, depth in ends if not depth], [at for at, _ in ends]):
        if places:
            return fits[: places[-1]]
    return fits.rsplit(" ", 1)[0].rstrip(" ,;:(")


def _closing(words: str) -> str:
    """Return the brackets that close those that a text leaves open."""
    brackets = ""
    for letter in words:
        if letter in _OPENING:
            brackets = _CLOSING[_OPENING.index(letter)] + brackets
        elif letter in _CLOSING and brackets:
            brackets = brackets[1:]
    return brackets


def _clause_ends(words: str) -> Iterator[tuple[int, int]]:
    """Yield (position, depth of brackets) of each end of a clause, and of each outermost opening bracket."""
    depth = 0
    for at, (letter, following) in enumerate(itertools.pairwise(f"{words} ")):
        is_end = letter in ",;." and following == " "
        if is_end or (not depth and letter == " " and following in _OPENING):
            yield at, depth
        depth = max(0, depth + (letter in _OPENING) - (letter in _CLOSING))
