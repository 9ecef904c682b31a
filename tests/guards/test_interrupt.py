"""Ctrl-C while the tool's own modules are imported, as they are compiled on the first start: 130, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paritygate.__main__ import _stopped

_INTERRUPTED = "interrupted: nothing was published in part, and what was finished is kept\n"
# What is typed at the keyboard arrives as this exception, wherever the interpreter is.
_PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

class Interrupts(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from paritygate.__main__ import main
main(["backends"])
"""


@pytest.mark.parametrize(
    "name",
    [
        "click",
        "signal",
        "paritygate.errors",
        "paritygate.text",
        "paritygate.pipelines.cli.app",
        "paritygate.pipelines.report.terminal.backends",
    ],
)
def test_an_interrupt_while_modules_are_imported_is_no_traceback(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(name=name)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )

    # Click ends the line of the terminal first.
    assert (done.returncode, done.stderr.lstrip("\n")) == (130, _INTERRUPTED)
    assert done.stdout == ""


def _backends(bytecode: Path) -> subprocess.CompletedProcess[str]:
    """Run a command whose Python keeps its bytecode in a folder, and not beside the modules."""
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "paritygate", "backends"]
    return subprocess.run(command, env=variables, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the bytecode of all that the command imports."""
    folder = tmp_path_factory.mktemp("bytecode")
    assert _backends(folder).returncode == 0
    return folder


@pytest.mark.parametrize("module", ["pipelines/report/terminal/backends", "pipelines/cli/app", "text", "errors"])
def test_bytecode_that_a_full_disk_cut_off_is_no_interrupt(module: str, bytecode: Path) -> None:
    (compiled,) = (path for path in bytecode.rglob("*.pyc") if f"paritygate/{module}." in str(path))
    whole = compiled.read_bytes()
    compiled.write_bytes(whole[:100])

    done = _backends(bytecode)

    compiled.write_bytes(whole)
    assert done.returncode == 5, done.stderr
    error, hint = done.stderr.splitlines()[-2:]
    assert error == "error: unexpected EOFError: marshal data too short"
    assert hint.startswith(
        "hint: Python's bytecode was cut off, as a full disk leaves it: delete the folders __pycache__"
    )


@pytest.mark.parametrize(
    ("words", "cache", "after"),
    [
        (["run", "spec.yaml"], "", "next: the same command goes on from there"),
        (["run", "spec.yaml", "--no-cache"], "", "next: the same command starts again, since nothing is cached"),
        (["run", "spec.yaml"], "off", "next: the same command starts again, since nothing is cached"),
    ],
)
def test_what_the_same_command_would_do_is_said(
    words: list[str], cache: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITYGATE_CACHE", cache)

    assert _stopped("interrupted", words) == [_INTERRUPTED.rstrip("\n"), after]
