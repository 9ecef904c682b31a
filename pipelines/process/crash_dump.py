"""Find where a process died in the dump of Python's faulthandler."""

from __future__ import annotations

from collections.abc import Sequence

_FATAL = "Fatal Python error:"
_FRAME = "File "
# Native code writes its own message before the dump: two lines for an uncaught exception.
_LINES_BEFORE = 2
_FRAMES = 4


def innermost_frames(lines: Sequence[str]) -> list[str]:
    """Return at most two lines before the dump, its title and four frames of the dead thread; empty without a dump.

    `lines` are stripped. The dump has the innermost frame first. The outermost ones are the same for every crash.
    Source: https://docs.python.org/3/library/faulthandler.html
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
