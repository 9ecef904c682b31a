"""What continuous integration holds the demo's output against: the rows that the README shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = """\
klue-sts against its torch 2.13.0+cpu source on 519 rows
verdict       variant  mismatches  tolerance used  speed-up
pass          a-fp32            0           < 1 %      5.6x
pass          b-fp32            0            10 %      5.7x
"""
_TAIL = """\
pass          a-int8            0      75 %     9.75x  released
"""
_END = "warning: a-int8: noise\nverdict: pass: klue-sts: All 2 required variants answer like the source\n"
_SHOWN = f"```text output\n{_HEAD}...\n```\n\nIt goes on:\n\n```text\n{_TAIL}{_END}```\n"
_PRINTED = f"klue-sts: exported 3 of 3 variants in 2 s\n{_HEAD}{_TAIL}{_END}"


def _checked(root: Path, folder: Path, shown: str, printed: str) -> subprocess.CompletedProcess[str]:
    (folder / "README.md").write_text(shown, encoding="utf-8")
    (folder / "demo.txt").write_text(printed, encoding="utf-8")
    command = [sys.executable, str(root / ".ci/check_demo.py"), "README.md", "demo.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_what_differs_from_machine_to_machine_is_the_same_demo(project_root: Path, tmp_path: Path) -> None:
    printed = _PRINTED.replace("5.6x", "3.1x").replace("10 %", "11 %").replace("  released", "")
    # Why it failed stands below a row, and is none.
    printed = printed.replace(
        "pass          a-int8            0      75 %", "fail          a-int8            3   2 times"
    ).replace("9.75x\n", "9.75x\n              3 of 519 rows  differ  by more  than that\n")

    checked = _checked(project_root, tmp_path, _SHOWN, printed)

    assert checked.returncode == 0, checked.stderr
    assert "the demo printed the 3 rows that README.md shows" in checked.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("pass          a-fp32", "fail          a-fp32", "only in the demo: fail | a-fp32"),
        ("a-fp32            0", "a-fp32            3", "only in README.md: pass | a-fp32"),
        ("b-fp32", "c-fp32", "only in the demo: pass | c-fp32"),
        (_TAIL, "", "further rows in README.md: a-int8"),
        ("a-int8            0", "b-int8            0", "further rows in the demo: b-int8"),
        (_PRINTED, "", "only in README.md: pass | a-fp32"),
    ],
)
def test_another_outcome_is_seen(project_root: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in _PRINTED

    checked = _checked(project_root, tmp_path, _SHOWN, _PRINTED.replace(old, new, 1))

    assert checked.returncode == 1
    assert words in checked.stderr


def test_a_readme_without_the_rows_is_no_agreement(project_root: Path, tmp_path: Path) -> None:
    checked = _checked(project_root, tmp_path, "no table\n", "no table\n")

    assert checked.returncode == 1
    assert "there is nothing to hold the demo against" in checked.stderr
