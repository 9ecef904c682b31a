"""Mounts a small file system for tests of a full disk."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["small_disk_at"]


@contextmanager
def small_disk_at(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of this size at a new folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        # A process of a failed test may still use it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
