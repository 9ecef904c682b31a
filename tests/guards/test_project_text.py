"""The project speaks of itself alone: no file depends on the machine it was written on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

# A folder that only somebody's machine has, at the start of an absolute path.
ABSOLUTE_PATH = re.compile(r"(?<![\w.~)}\]$*-])/(?:home|Users|root|work|workspace|mnt|media|srv)/")
# The only file that may say where larger test data lies beside the checkout.
KNOWS_THE_TEST_DATA = Path(".ci/run")


def files_of_project(project_root: Path) -> list[Path]:
    """Return the path from the root of every text file that is, or is about to be, committed."""
    if not (project_root / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout, and git")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=project_root, check=True, capture_output=True, text=True)
    paths = {Path(name) for name in listed.stdout.split("\0") if name}
    return sorted(path for path in paths if (project_root / path).is_file() and not is_binary(project_root / path))


def is_binary(path: Path) -> bool:
    """Return whether a file holds a zero byte in its first part, as git decides it."""
    with path.open("rb") as stream:
        return b"\0" in stream.read(8000)


def lines_with(pattern: re.Pattern[str], project_root: Path, paths: list[Path]) -> list[str]:
    """Return `path:line: text` of every line in which the pattern is found."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate((project_root / path).read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_folder_of_one_machine(project_root: Path) -> None:
    this_file = Path(__file__).relative_to(project_root)
    paths = [path for path in files_of_project(project_root) if path != this_file]

    assert Path("pyproject.toml") in paths
    assert lines_with(ABSOLUTE_PATH, project_root, paths) == []


def test_only_the_ci_script_knows_where_the_test_data_lies(project_root: Path) -> None:
    script = (project_root / KNOWS_THE_TEST_DATA).read_text(encoding="utf-8")
    (folder,) = re.findall(r"^test_data=\.\./(\S+)$", script, re.MULTILINE)
    others = [path for path in files_of_project(project_root) if path != KNOWS_THE_TEST_DATA]

    assert lines_with(re.compile(rf"(?<![\w-]){folder}/|\.\./{folder}\b"), project_root, others) == []


@pytest.mark.parametrize("text", ["see /home/somebody/model.onnx", "cd /root/x", '"/mnt/data/model.onnx"'])
def test_this_guard_sees_a_folder_of_one_machine(text: str) -> None:
    assert ABSOLUTE_PATH.search(text)


@pytest.mark.parametrize("text", ["docs/home/page.md", "https://example.org/root/x", "$HOME/work/x", "~/work/x"])
def test_this_guard_lets_other_paths_pass(text: str) -> None:
    assert not ABSOLUTE_PATH.search(text)
