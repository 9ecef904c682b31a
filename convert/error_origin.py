"""Find the origin of a framework's error in its traceback."""

from __future__ import annotations

import traceback
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_LONGEST = 300


def causes(err: BaseException) -> list[BaseException]:
    """Return the error and all that it was raised from, the last cause last."""
    chain = []
    cause: BaseException | None = err
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def one_line(err: BaseException) -> str:
    """Return the error's message on one line of at most 300 characters; its type where it has none."""
    text = " ".join(str(err).split()) or type(err).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def users_line(err: BaseException) -> str:
    """Return ` at FILE:LINE: code` of the user's line that the error came from; empty if there is none."""
    for frame in reversed(traceback.extract_tb(err.__traceback__)):
        path = Path(frame.filename)
        is_library = "site-packages" in path.parts or frame.filename.startswith("<")
        # The demo's models count as a user's.
        is_ours = _PACKAGE in path.parents and _PACKAGE / "fixtures" not in path.parents
        if not is_library and not is_ours:
            # The caller's sentence has its own colon.
            return f" at {frame.filename}:{frame.lineno}: {(frame.line or '').rstrip(' :')}"
    return ""
