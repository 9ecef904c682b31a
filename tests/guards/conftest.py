"""The wheel as a user would get it, built once for all guards."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_WHAT_IS_BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src", "convert", "validate", "pipelines", "fixtures")


@pytest.fixture(scope="session")
def wheel(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the wheel built from a copy of the tree.

    A copy, because setuptools packs whatever an earlier build left in build/. Without build isolation, so
    that nothing is downloaded.
    """
    tree = tmp_path_factory.mktemp("tree")
    for name in _WHAT_IS_BUILT_FROM:
        if (project_root / name).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(project_root / name, tree / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy2(project_root / name, tree / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    built = subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (tree / "dist").glob("*.whl")
    return path
