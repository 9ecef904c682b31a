"""Errors and hints fit the terminal, 80 columns without one; what is copied of them is never broken."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import strategies as st
from rich.cells import cell_len

from paritygate.__main__ import _run
from paritygate.errors import UnsupportedOperatorsError, UsageError
from paritygate.pipelines.cli import app
from paritygate.pipelines.report.terminal.printing import print_errors
from paritygate.pipelines.report.terminal.screen import wrapped

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench, Desk

_LONG = "of what is wrong here there is more to say than fits a line, and so it goes on and on until it ends at last"


@pytest.fixture(autouse=True)
def _without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")


def _printed(capsys: pytest.CaptureFixture[str], *messages: str, is_verbose: bool = False) -> list[str]:
    print_errors(*messages, is_verbose=is_verbose)
    return capsys.readouterr().err.splitlines()


def _raised(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception) -> list[str]:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(app.cli, "main", fail)
    _run(["list"])
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "error",
    [
        UsageError(_LONG, hint=_LONG),
        ValueError(_LONG),
        UnsupportedOperatorsError("refused", rows=[("Op", "a node", _LONG, _LONG)], hint=_LONG),
    ],
)
def test_an_error_that_ends_a_command_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    lines = _raised(monkeypatch, capsys, error)

    assert max(map(cell_len, lines)) <= 80, lines
    assert " ".join(" ".join(lines).split()).count(_LONG) == str(vars(error)).count(_LONG) + str(error).count(_LONG)
    assert all(line.startswith(("error: ", "hint: ", "  ")) for line in lines), lines


def test_wrong_usage_fits(capsys: pytest.CaptureFixture[str]) -> None:
    for name in app.COMMANDS:
        assert _run([name, "--there-is-no-option-of-this-name-in-any-command-whatever"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert max(map(cell_len, lines)) <= 80, lines
        assert lines[-1].endswith(f"convert-and-validate {name} --help"), lines


def test_an_error_of_a_comparison_fits(bench: Bench) -> None:
    target = bench.folder / "result.json"
    outcome = bench.compare(
        bench.linear("a"), bench.linear("b"), "--samples", bench.npz("x.npz", {"y": bench.normal(9, 4)}), "--quiet"
    )

    assert outcome.code == 2
    assert max(map(cell_len, outcome.err.splitlines())) <= 80
    # What is written for programs is one line.
    assert outcome.result["error"]["message"] in " ".join(outcome.err.split())
    assert "\n" not in outcome.result["error"]["message"]
    assert target.exists()


def test_an_error_of_one_of_several_specs_fits(desk: Desk) -> None:
    desk.samples(0)
    called = desk.call("run", "spec.yaml")
    quiet = desk.call("run", "spec.yaml", "--quiet")

    for lines in (called.err.splitlines(), quiet.err.splitlines()):
        assert lines
        assert max(map(cell_len, lines)) <= 80, lines


def test_with_verbose_an_error_is_one_line_for_those_who_search_logs(capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed(capsys, f"error: {_LONG}", is_verbose=True) == [f"error: {_LONG}"]

    _run(["run", "klue-sts", "--atol", "1", "--verbose"])
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_width_is_that_of_a_terminal(desk: Desk) -> None:
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 44, 0, 0))
    done = subprocess.run(
        [sys.executable, "-m", "paritygate", "run", "spec.yaml", "--atol", "1"],
        cwd=desk.folder,
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)

    assert done.returncode == 2
    widths = [len(line) for line in shown.replace("\x1b[31m", "").replace("\x1b[0m", "").splitlines()]
    assert 36 < max(widths) <= 44, shown


def test_the_width_that_the_environment_says_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert 40 < max(map(len, _printed(capsys, f"error: {_LONG}"))) <= 50
    monkeypatch.setenv("COLUMNS", "0")
    assert 70 < max(map(len, _printed(capsys, f"error: {_LONG}"))) <= 80


_COMMAND = "convert-and-validate promote --run 'artifacts/runs/a model/20261120T101500Z-1a2b' --root elsewhere"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            f"hint: to release it all the same: {_COMMAND}; or ask somebody",
            [
                "hint: to release it all the same:",
                "  convert-and-validate promote --run \\",
                "    'artifacts/runs/a model/20261120T101500Z-1a2b' --root elsewhere",
                "  or ask somebody",
            ],
        ),
        (
            f"hint: {_COMMAND}, and where there is a GPU: convert-and-validate build --run DIR",
            [
                "hint:",
                "  convert-and-validate promote --run \\",
                "    'artifacts/runs/a model/20261120T101500Z-1a2b' --root elsewhere",
                "  and where there is a GPU:",
                "  convert-and-validate build --run DIR",
            ],
        ),
        (
            "hint: of the packages that you can install and that are not here: pip install 'paritygate[a,b; c]'",
            [
                "hint: of the packages that you can install and that are not here:",
                "  pip install 'paritygate[a,b; c]'",
            ],
        ),
        (
            "hint: where one is the other under another name, rename it on the way with --map a_name=another_name",
            [
                "hint: where one is the other under another name, rename it on the way with",
                "  --map a_name=another_name",
            ],
        ),
        (
            "hint: declare in the spec how many rows a call may have: model.dims: {batch: {min: 1, max: 8}}; or none",
            [
                "hint: declare in the spec how many rows a call may have:",
                "  model.dims: {batch: {min: 1, max: 8}}; or none",
            ],
        ),
    ],
)
def test_what_is_copied_is_not_broken(text: str, lines: list[str]) -> None:
    assert wrapped(text) == lines


def test_a_command_that_is_set_apart_is_the_same_for_a_shell() -> None:
    _, *lines, _ = wrapped(f"hint: to release it all the same: {_COMMAND}; or ask somebody")

    said = subprocess.run(
        ["sh", "-c", "printf '%s\\n' " + "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == shlex.split(_COMMAND)


def test_a_path_is_not_broken_and_what_lies_here_is_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = f"/elsewhere/{'long' * 20}/model.onnx"

    assert f"  {path}" in wrapped(f"error: {path} is corrupt with the reference: it was changed")
    assert wrapped(f"error: {tmp_path}/model.onnx is missing") == ["error: model.onnx is missing"]


def test_what_is_pasted_and_a_path_of_a_log_stay_whole_and_lines_of_a_log_stay_lines() -> None:
    pasted = f"  inputs: {{x: {{dtype: float32, shape: [batch, 4]}}}}  # {_LONG}"
    log = f"  log: /tmp/{'x' * 90}.log"
    lines = wrapped(f"error: it crashed\n  | {_LONG}\n{log}\n{pasted}")

    assert lines[0] == "error: it crashed"
    assert lines[1].startswith("  | of what is wrong")
    assert lines[2].startswith("  |   ")
    assert lines[3:] == [log, pasted]


@hypothesis.given(st.text(alphabet="ab ,;:'\"{}()-/유\n", max_size=200), st.integers(20, 100))
def test_nothing_but_spaces_is_lost_and_only_paths_are_wider(text: str, width: int) -> None:
    lines = wrapped(text, width=width)

    assert "".join("".join(lines).split()) == "".join(text.replace("\n", "\\n").split())
    assert all(cell_len(line) <= width or "/" in line for line in lines)
