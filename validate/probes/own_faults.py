"""Report a fault of this tool in a probe as that probe's error, while everything else is measured."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import paritygate

_PACKAGE = str(Path(paritygate.__file__).parent)


def internal_error_message(error: Exception) -> str:
    """Print the traceback (a child process logs it) and return the error and its place as text."""
    traceback.print_exception(error, file=sys.stderr)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    # If a library was called wrongly, our call is more telling than its insides.
    last = (own or frames)[-1:]
    place = "".join(f" in {Path(frame.filename).name}, line {frame.lineno}" for frame in last)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}{place}{f': {text[0]}' if text else ''}"
