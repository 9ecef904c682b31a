"""Where a process died, out of what Python's faulthandler wrote into its log."""

from __future__ import annotations

from collections.abc import Sequence

_FATAL = "Fatal Python error:"
_FRAME = "File "
# What native code says itself stands before the dump: of an exception that nobody caught, two lines.
_LINES_BEFORE = 2
_FRAMES = 4


def innermost_frames(lines: Sequence[str]) -> list[str]:
    """Return what a dump says of the cause, and the frames nearest to it, of the thread that died.

    Args:
        lines: The lines of the log, without white space around them. The dump names the innermost frame first, and ends
            in the outermost ones, which are the same for every crash.

    Returns:
        At most two lines before the dump, its title and four frames; empty where there is no dump.

    Source:
        https://docs.python.org/3/library/faulthandler.html
    """
    titles = [at for at, line in enumerate(lines) if line.startswith(_FATAL)]
    if not titles:
        return []
    title = titles[-1]
    threads = [at for at in range(title, len(lines)) if lines[at].startswith(("Current thread", "Thread 0x"))]
    current = [at for at in threads if lines[at].startswith("Current thread")]
    frames: list[str] = []
    for line in lines[(current or threads)[0] + 1 :] if threads else ():
        if not line.startswith(_FRAME) or len(frames) == _FRAMES:
            break
        frames.append(line)
    before = lines[max(0, title - _LINES_BEFORE) : title]
    return [*before, lines[title], *frames]
