"""The four folders at the root are parts of one package, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = ("convert", "validate", "pipelines", "fixtures")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("way", ["current folder", "PYTHONPATH"])
def test_a_part_refuses_to_be_imported_under_its_bare_name(
    project_root: Path, tmp_path: Path, part: str, way: str
) -> None:
    cwd, environment = (project_root, {}) if way == "current folder" else (tmp_path, {"PYTHONPATH": str(project_root)})

    bare = subprocess.run(
        [sys.executable, "-c", f"import {part}"], cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )

    assert bare.returncode == 1
    assert bare.stderr.endswith(
        f"ImportError: '{part}' is a part of paritygate: import 'paritygate.{part}' instead\n"
    ), bare.stderr


@pytest.mark.parametrize("part", PARTS)
def test_the_link_of_a_part_is_relative_and_leads_to_its_folder(project_root: Path, part: str) -> None:
    link = project_root / "src/paritygate" / part

    assert link.is_symlink(), f"{link} is not a link: this checkout was made without them"
    assert str(link.readlink()) == f"../../{part}"
    assert link.resolve() == project_root / part


@pytest.mark.parametrize("part", PARTS)
def test_the_link_of_a_part_is_recorded_as_a_link(project_root: Path, part: str) -> None:
    if not (project_root / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout, and git")

    listed = subprocess.run(
        ["git", "ls-files", "--stage", "--", f"src/paritygate/{part}"],
        cwd=project_root,
        check=True,
        capture_output=True,
        text=True,
    )

    mode, *_ = listed.stdout.split() or ["not recorded"]
    assert mode == "120000", f"git records src/paritygate/{part} as {mode}, not as a link (120000)"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("statement", "rule"),
    [("import {part}", "TID251"), ("from {part}.spec import Spec", "TID251"), ("from .{part} import Spec", "TID252")],
)
def test_the_linter_refuses_a_bare_or_relative_import(project_root: Path, part: str, statement: str, rule: str) -> None:
    linted = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "TID", "--stdin-filename", "pipelines/planted.py", "-"],
        cwd=project_root,
        input=statement.format(part=part) + "\n",
        check=False,
        capture_output=True,
        text=True,
    )

    assert rule in linted.stdout
    assert linted.returncode == 1
