"""Lock run folders that are open, so that others see it.

The kernel drops the lock when the process ends, however it ends. On a filesystem without locks nothing is known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from paritygate.files import MARKER


class RunLock:
    """A shared lock on a run folder; it ends with the object."""

    def __init__(self, folder: Path) -> None:
        """Take the lock, or none where the filesystem has no locks."""
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(folder / MARKER, os.O_RDONLY)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def is_in_use(folder: Path) -> bool:
    """Return whether a process, this one included, has the run open."""
    try:
        descriptor = os.open(folder / MARKER, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # No locks here.
        return False
    finally:
        os.close(descriptor)
    return False
