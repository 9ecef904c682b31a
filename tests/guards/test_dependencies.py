"""What the code imports is what pyproject.toml declares, with a lowest version, and constraints.txt pins."""

from __future__ import annotations

import ast
import email
import re
import runpy
import sys
import zipfile
from pathlib import Path

import pytest

# Where the module has another name than its distribution.
DISTRIBUTION_OF = {
    "grpc": "grpcio",
    "PIL": "pillow",
    "google": "onnx",
    "keras": "tensorflow",
    "tensorrt_rtx_bindings": "tensorrt-rtx-cu13-bindings",
    "yaml": "pyyaml",
}
# protobuf and Keras 3 are parts of what onnx and TensorFlow offer, and come with every version we allow. Of TensorRT's
# bindings the tests read the names.
PINNED_BESIDE = {"keras", "tensorrt-cu12-bindings", "tensorrt-cu13-bindings"}
EXTRAS_PINNED = {
    "cpu",
    "torch",
    "tensorflow",
    "openvino",
    "nncf",
    "endpoint",
    "images",
    "litert",
    "metrics",
    "parquet",
    "signing",
    "stores",
    "zoo",
    "tensorrt-rtx",
    "docs",
    "dev",
}


def normal(name: str) -> str:
    """Return the name of a distribution as packaging tools compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """Return the normal name of the distribution that a requirement names."""
    return normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


@pytest.fixture(scope="module")
def requirements(wheel: Path) -> list[str]:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])


def third_party_imports(files: list[Path]) -> set[str]:
    """Return the top-level names that the files import and that neither Python nor paritygate provides."""
    names: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"paritygate"}


def test_everything_imported_is_declared(project_root: Path, requirements: list[str]) -> None:
    folders = [project_root / name for name in ("convert", "validate", "pipelines", "fixtures")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    files += (project_root / "src/paritygate").rglob("*.py")

    imported = third_party_imports(files)

    assert {"click", "numpy"} <= imported
    declared = set(map(name_of, requirements))
    assert {name for name in imported if normal(DISTRIBUTION_OF.get(name, name)) not in declared} == set()


def test_the_constraints_pin_every_dependency_to_one_version(project_root: Path, requirements: list[str]) -> None:
    extra_of = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")
    wanted = {
        name_of(requirement)
        for requirement in requirements
        if not (extra := extra_of.search(requirement)) or extra[1] in EXTRAS_PINNED
    }
    lines = (project_root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert {name_of(pin) for pin in pins} == wanted | PINNED_BESIDE
    assert [pin for pin in pins if not re.fullmatch(r"[\w-]+==[\w.]+( ; python_version (<|>=) \"3\.11\")?", pin)] == []


def test_the_lowest_versions_cover_the_core_and_the_extras_asked_for(
    project_root: Path, requirements: list[str]
) -> None:
    lowest_constraints = runpy.run_path(str(project_root / ".ci/lowest_constraints.py"))["lowest_constraints"]

    lines = lowest_constraints(requirements, {"cpu"})

    names = {line.split("==")[0] for line in lines}
    assert {"click", "numpy", "onnx", "onnxruntime"} <= names
    assert names & {"torch", "tensorflow", "onnxruntime-gpu", "pytest"} == set()


def test_a_dependency_without_a_lowest_version_is_refused(project_root: Path) -> None:
    lowest_constraints = runpy.run_path(str(project_root / ".ci/lowest_constraints.py"))["lowest_constraints"]

    with pytest.raises(ValueError, match=r"'torch; extra == \"torch\"' names no lowest version"):
        lowest_constraints(["click>=8.1", 'torch; extra == "torch"'], set())
