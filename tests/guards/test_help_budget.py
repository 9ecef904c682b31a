"""Asking for help is instant, because nothing is imported that help does not need."""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys

BUDGET_S = 0.15
RUNS = 7
# Each costs more than the whole budget allows, or is on the way to something that does.
TOO_HEAVY_FOR_HELP = {"jinja2", "numpy", "onnx", "pydantic", "rich", "safetensors", "scipy", "tensorflow", "torch"}


def cpu_seconds_of_help() -> float:
    """Return user and system time of one `convert-and-validate --help`, which a busy machine stretches little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "paritygate", "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_help_stays_within_its_budget() -> None:
    cpu_seconds_of_help()  # the first run may write the bytecode

    taken = sorted(cpu_seconds_of_help() for _ in range(RUNS))

    assert statistics.median(taken) < BUDGET_S, f"CPU seconds of each run: {[round(value, 3) for value in taken]}"


def test_help_imports_nothing_heavy() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "paritygate", "--help"], check=True, capture_output=True, text=True
    )

    imported = {name.split(".")[0] for name in re.findall(r"^import time:.*\|\s*(\S+)$", ran.stderr, re.MULTILINE)}
    assert "click" in imported
    assert imported & TOO_HEAVY_FOR_HELP == set()
