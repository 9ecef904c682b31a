"""What continuous integration holds the demo's output against: the table that the README shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_TABLE = """\
klue-sts: parity with its torch 2.13.0+cpu source
┏━━━━━━━━━┳━━━━━━━━┳━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━┓
┃ variant ┃ output ┃ rows ┃ mismatches ┃ max diff ┃ evidence ┃ verdict ┃
┡━━━━━━━━━╇━━━━━━━━╇━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━┩
│ a-fp32  │ logits │ 519  │ 0          │ 1e-06    │ verified │ pass    │
│ b-fp32  │ logits │ 519  │ 0          │ 1e-06    │ verified │ pass    │
└─────────┴────────┴──────┴────────────┴──────────┴──────────┴─────────┘
released klue-sts version 1
"""


def _checked(root: Path, folder: Path, shown: str, printed: str) -> subprocess.CompletedProcess[str]:
    (folder / "README.md").write_text(shown, encoding="utf-8")
    (folder / "demo.txt").write_text(printed, encoding="utf-8")
    command = [sys.executable, str(root / ".ci/check_demo.py"), "README.md", "demo.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_other_differences_and_another_release_are_the_same_demo(project_root: Path, tmp_path: Path) -> None:
    printed = _TABLE.replace("1e-06", "7e-07").replace("version 1", "version 2")

    checked = _checked(project_root, tmp_path, _TABLE, f"tiny: exporting\n{printed}")

    assert checked.returncode == 0, checked.stderr
    assert "the demo printed the 2 rows that README.md shows" in checked.stdout


def test_a_variant_that_this_machine_cannot_run_is_listed_and_no_more(project_root: Path, tmp_path: Path) -> None:
    not_run = "│ b-fp32  │ -      │ 0    │ -          │ -        │ none     │ not run here │\n└"
    printed = _TABLE.replace("│ b-fp32  │ logits │ 519  │ 0          │ 1e-06    │ verified │ pass    │\n└", not_run)

    listed = _checked(project_root, tmp_path, _TABLE, printed)
    unknown = _checked(project_root, tmp_path, _TABLE, printed.replace("b-fp32", "c-fp32"))

    assert listed.returncode == 0, listed.stderr
    assert unknown.returncode == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("│ verified │ pass    │\n└", "│ verified │ fail    │\n└", "only in the demo: b-fp32"),
        ("│ 519  │ 0          │", "│ 519  │ 3          │", "only in README.md: a-fp32"),
        ("│ b-fp32  │", "│ c-fp32  │", "only in the demo: c-fp32"),
        (_TABLE, "", "the demo printed 0 rows, README.md shows 2"),
    ],
)
def test_another_outcome_is_seen(project_root: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    checked = _checked(project_root, tmp_path, _TABLE, _TABLE.replace(old, new, 1))

    assert checked.returncode == 1
    assert words in checked.stderr


def test_a_readme_without_the_table_is_no_agreement(project_root: Path, tmp_path: Path) -> None:
    checked = _checked(project_root, tmp_path, "no table\n", "no table\n")

    assert checked.returncode == 1
    assert "there is nothing to hold the demo against" in checked.stderr
