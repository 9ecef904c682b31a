"""Ctrl-C while the tool's own modules are imported, as they are compiled on the first start: 130, and no traceback."""

from __future__ import annotations

import subprocess
import sys

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
            raise {raised}

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
        "paritygate.pipelines.cli.summaries.backends",
    ],
)
def test_an_interrupt_while_modules_are_imported_is_no_traceback(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(name=name, raised="KeyboardInterrupt")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    # Click ends the line of the terminal first.
    assert (done.returncode, done.stderr.lstrip("\n")) == (130, _INTERRUPTED)
    assert done.stdout == ""


def test_a_file_that_is_cut_off_is_no_interrupt() -> None:
    # A full disk leaves such bytecode behind.
    program = _PROGRAM.format(
        name="paritygate.pipelines.cli.summaries.backends", raised="EOFError('marshal data too short')"
    )

    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)

    assert done.returncode == 5
    assert "error: unexpected EOFError: marshal data too short\nhint: run again with --debug" in done.stderr


@pytest.mark.parametrize(
    ("words", "cache", "after"),
    [
        (["run", "spec.yaml"], "", "next: the same command goes on from there"),
        (["run", "spec.yaml", "--no-cache"], "", "next: the same command begins anew, as nothing is kept in the cache"),
        (["run", "spec.yaml"], "off", "next: the same command begins anew, as nothing is kept in the cache"),
    ],
)
def test_what_the_same_command_would_do_is_said(
    words: list[str], cache: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITYGATE_CACHE", cache)

    assert _stopped("interrupted", words) == [_INTERRUPTED.rstrip("\n"), after]
