"""Parse times and lists of numbers from the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

from paritygate.errors import UsageError

_Number = TypeVar("_Number", int, float)

_TIME = re.compile(r"(?P<number>[0-9]*\.?[0-9]+)\s*(?P<unit>us|ms|s)")
_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def microseconds(option: str, text: str, *, is_zero_allowed: bool = False) -> float:
    """Return a time such as `20ms`, `100us` or `0.5s` in microseconds.

    Raises:
        UsageError: It is malformed, or not above 0 where it has to be.
    """
    match = _TIME.fullmatch(text.strip())
    value = float(match["number"]) * _UNITS[match["unit"]] if match else math.nan
    if text.strip() == "0":
        value = 0.0
    if value > 0 or (value == 0 and is_zero_allowed):
        return value
    allowed = "0, or a number" if is_zero_allowed else "a number above 0"
    msg = f"{option} {text!r} is not a time (allowed: {allowed} with us, ms or s)"
    raise UsageError(msg, hint=f"write for example {option} {'100us' if is_zero_allowed else '20ms'}")


def whole_values(option: str, text: str) -> list[int]:
    """Return the whole numbers of a list such as `1,2,4`; raise UsageError for others, or below 1."""
    return _values(option, text, int, what="whole numbers from 1 on", example="1,2,4")


def rates_of(option: str, text: str) -> list[float]:
    """Return the numbers of a list such as `50,100`; raise UsageError for others, or not above 0."""
    return _values(option, text, float, what="numbers above 0", example="50,100")


def _values(option: str, text: str, read: Callable[[str], _Number], *, what: str, example: str) -> list[_Number]:
    try:
        values = [read(each) for each in text.split(",")]
    except ValueError:
        values = []
    if values and all(0 < value < math.inf for value in values):
        return values
    raise UsageError(f"{option} {text!r} is not a list of {what}", hint=f"write for example {option} {example}")
