"""Asking for help is instant, because nothing is imported that help does not need: counted, since seconds differ."""

from __future__ import annotations

import re
import subprocess
import sys

# Twice as many as there are. Each heavy package below brings hundreds.
MOST_MODULES = 250
# Each costs more than help may, or is on the way to something that does.
TOO_HEAVY_FOR_HELP = {"jinja2", "numpy", "onnx", "pydantic", "rich", "safetensors", "scipy", "tensorflow", "torch"}


def test_help_imports_little_and_nothing_heavy() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "paritygate", "--help"], check=True, capture_output=True, text=True
    )

    imported = re.findall(r"^import time:.*\|\s*(\S+)$", ran.stderr, re.MULTILINE)
    names = {name.split(".")[0] for name in imported}
    assert "click" in names
    assert names & TOO_HEAVY_FOR_HELP == set()
    assert len(imported) < MOST_MODULES
