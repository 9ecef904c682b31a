"""What fails in a probe by a fault of this tool: an error of that probe, while everything else is measured."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import paritygate

_PACKAGE = str(Path(paritygate.__file__).parent)


def fault_words(error: Exception) -> str:
    """Print the traceback, which a child process has in its log, and return what failed and where, in words."""
    traceback.print_exception(error, file=sys.stderr)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    # Of a library that was called wrongly, the call says more than its insides.
    last = (own or frames)[-1:]
    place = "".join(f" in {Path(frame.filename).name}, line {frame.lineno}" for frame in last)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}{place}{f': {text[0]}' if text else ''}"
