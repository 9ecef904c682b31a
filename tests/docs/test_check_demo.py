"""What continuous integration holds the demo's output against: the table that the README shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = """\
klue-sts: parity with its torch 2.13.0+cpu source
┏━━━━━━━━━┳━━━━━━━━┳━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━┓
┃ variant ┃ output ┃ rows ┃ mismatches ┃ max diff ┃ evidence ┃ verdict ┃
┡━━━━━━━━━╇━━━━━━━━╇━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━┩
│ a-fp32  │ logits │ 519  │ 0          │ 1e-06    │ verified │ pass    │
│ b-fp32  │ logits │ 519  │ 0          │ 1e-06    │ verified │ pass    │
"""
_TAIL = """\
│ a-int8  │ logits │ 519  │ 0          │ 0.01     │ verified │ pass    │
"""
_END = "└─────────┴────────┴──────┴────────────┴──────────┴──────────┴─────────┘\nreleased klue-sts version 1\n"
_SHOWN = f"```text output\n{_HEAD}...\n```\n\nIt goes on:\n\n```text\n{_TAIL}...\n```\n"
_PRINTED = f"tiny: exporting\n{_HEAD}{_TAIL}{_END}"


def _checked(root: Path, folder: Path, shown: str, printed: str) -> subprocess.CompletedProcess[str]:
    (folder / "README.md").write_text(shown, encoding="utf-8")
    (folder / "demo.txt").write_text(printed, encoding="utf-8")
    command = [sys.executable, str(root / ".ci/check_demo.py"), "README.md", "demo.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_what_differs_from_machine_to_machine_is_the_same_demo(project_root: Path, tmp_path: Path) -> None:
    printed = _PRINTED.replace("1e-06", "7e-07").replace("version 1", "version 2")
    printed = printed.replace(
        "│ 0          │ 0.01     │ verified │ pass ", "│ 3          │ 0.09     │ verified │ fail "
    )

    checked = _checked(project_root, tmp_path, _SHOWN, printed)

    assert checked.returncode == 0, checked.stderr
    assert "the demo printed the 3 rows that README.md shows" in checked.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("│ verified │ pass    │\n│ b", "│ verified │ fail    │\n│ b", "only in the demo: a-fp32"),
        ("│ 519  │ 0          │", "│ 519  │ 3          │", "only in README.md: a-fp32"),
        ("│ b-fp32  │", "│ c-fp32  │", "only in the demo: c-fp32"),
        (_TAIL, "", "further rows in README.md: a-int8"),
        ("│ a-int8  │", "│ b-int8  │", "further rows in the demo: b-int8"),
        (_PRINTED, "", "only in README.md: a-fp32"),
    ],
)
def test_another_outcome_is_seen(project_root: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in _PRINTED

    checked = _checked(project_root, tmp_path, _SHOWN, _PRINTED.replace(old, new, 1))

    assert checked.returncode == 1
    assert words in checked.stderr


def test_a_readme_without_the_table_is_no_agreement(project_root: Path, tmp_path: Path) -> None:
    checked = _checked(project_root, tmp_path, "no table\n", "no table\n")

    assert checked.returncode == 1
    assert "there is nothing to hold the demo against" in checked.stderr
