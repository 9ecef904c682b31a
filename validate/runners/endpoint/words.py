"""Texts of a server in messages: in one short line, and quoted below it where there is more."""

from __future__ import annotations

import json
from typing import Any

_SHOWN = 300
# The most lines of a page of HTML or a traceback.
_MOST_LINES, _MOST_OF_A_LINE = 200, 1000
# The part of a body that is read to find its error.
_MOST_READ = 1 << 18
_NOTHING = "nothing was said"


def said_in(body: bytes) -> str:
    """Return the error in a body, of any of the forms that servers have, or the body itself."""
    text = body[:_MOST_READ].decode(errors="replace").strip()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return text or _NOTHING
    if isinstance(content, dict):
        for error in (content.get("error"), content.get("detail")):
            if isinstance(error, str) and error:
                return error
            # FastAPI lists values that do not fit its declarations, each with its place.
            if isinstance(error, list) and error and all(map(_is_complaint, error)):
                return "; ".join(map(_complaint, error))
    return text or _NOTHING


def _is_complaint(said: object) -> bool:
    return isinstance(said, dict) and isinstance(said.get("msg"), str)


def _complaint(said: dict[str, Any]) -> str:
    place = said.get("loc")
    steps = place if isinstance(place, list) else ()
    where = ".".join(str(step) for step in steps if isinstance(step, str | int))
    return f"{where}: {said['msg']}" if where else str(said["msg"])


def in_short(text: str) -> str:
    """Return a text in one line, cut off between two words where it is long."""
    line = " ".join(text.split())
    if len(line) <= _SHOWN:
        return line
    # Text without blanks, such as a list of numbers, is cut anywhere.
    return f"{line[: _SHOWN + 1].rpartition(' ')[0] or line[:_SHOWN]} ..."


def in_full(text: str) -> str:
    """Return the lines of a text to be quoted below a message; empty where `in_short` is all of it."""
    is_short = len(text.splitlines()) <= 1 and len(" ".join(text.split())) <= _SHOWN
    return "" if is_short else quoted(text)


def quoted(text: str) -> str:
    """Return the lines of a text to be quoted below a message, in the form of quoted logs."""
    lines = [line.rstrip()[:_MOST_OF_A_LINE] for line in text.splitlines() if line.strip()]
    return "".join(f"\n  | {line}" for line in lines[:_MOST_LINES])
