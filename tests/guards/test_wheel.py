"""What a user installs: every file of the package, once, under one name."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

# Pages for whoever reads the repository.
NOT_INSTALLED = {".md"}


def files_of_package(project_root: Path) -> set[str]:
    """Return the path within the wheel of every file that the package consists of."""
    return {
        (Path("paritygate") / path.relative_to(package)).as_posix()
        for package in [project_root / "src/paritygate"]
        for folder, _, names in os.walk(package, followlinks=True)
        for path in (Path(folder) / name for name in names)
        if "__pycache__" not in path.parts and path.suffix not in NOT_INSTALLED
    }


def test_the_wheel_holds_every_file_of_the_package_and_no_other(project_root: Path, wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    expected = files_of_package(project_root)
    assert packed == expected, (
        f"missing from the wheel: {sorted(expected - packed)}; not in the folders: {sorted(packed - expected)} "
        "(package-data in pyproject.toml names what is no Python file)"
    )


def test_the_wheel_has_one_top_level_name(wheel: Path) -> None:
    roots = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {root for root in roots if not root.endswith(".dist-info")} == {"paritygate"}


def test_the_wheel_carries_the_licence_and_the_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (licence,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    (entry_points,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))

    assert "Apache License" in archive.read(licence).decode()
    assert "convert-and-validate = paritygate.__main__:main" in archive.read(entry_points).decode()


def test_the_command_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        "import paritygate.convert, paritygate.fixtures, paritygate.validate, paritygate.__main__;"
        "print(paritygate.convert.__file__); paritygate.__main__.main()"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program, "--help"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{tmp_path}/paritygate/convert/__init__.py\nUsage: ")
