"""The command that compares two files computes nothing itself, so it does not import NumPy."""

from __future__ import annotations

import subprocess
import sys

_LOAD = """
import sys
import paritygate.pipelines.cli.commands.judging.compare
import paritygate.pipelines.cli.console
import paritygate.pipelines.compare.arguments
import paritygate.pipelines.release.compared
import paritygate.pipelines.report.terminal.comparison
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "onnx", "onnxruntime", "pydantic"}))
"""


def test_all_that_the_command_imports_is_free_of_numpy() -> None:
    loaded = subprocess.run([sys.executable, "-c", _LOAD], check=True, capture_output=True, text=True)

    assert loaded.stdout.strip() == "[]"
