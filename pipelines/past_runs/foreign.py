"""Find things in a folder to remove that do not belong to it: a repository, another run, a cache, a mount."""

from __future__ import annotations

import os
from pathlib import Path

from paritygate.files import MARKER
from paritygate.pipelines.cache.folder import CACHE_MARKER

_RUN = {MARKER, "spec.json"}
_REPOSITORY = {"log", "store"}


def what_else_lies_in(folder: Path) -> str:
    """Return what must not be removed with a folder, or an empty text. Links are not followed."""
    device = folder.stat().st_dev
    for parent, folders, names in os.walk(folder):
        place = Path(parent)
        if place.stat().st_dev != device:
            return f"another filesystem is mounted at {place}"
        if set(folders) >= _REPOSITORY:
            return f"a repository lies in it: {place}"
        if CACHE_MARKER in names:
            return f"a stage cache lies in it: {place}"
        if place != folder and set(names) >= _RUN:
            return f"another run lies in it: {place}"
    return ""
