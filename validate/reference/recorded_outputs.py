"""Recognise recorded outputs."""

from __future__ import annotations

from pathlib import Path

# In the folder of a recording.
RECORD_FILE = "record.json"


def is_recorded_outputs(path: Path) -> bool:
    """Return whether `path` holds recorded outputs rather than a model."""
    return (path.is_dir() and (path / RECORD_FILE).is_file()) or path.suffix == ".npz"
