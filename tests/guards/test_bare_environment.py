"""Every module imports with the core dependencies alone, and none reaches for a heavy one when imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

HEAVY = (
    "keras",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "pandas",
    "polygraphy",
    "scipy",
    "tensorflow",
    "tensorrt",
    "tensorrt_rtx_bindings",
    "tf2onnx",
    "torch",
)

# Runs in a process of its own, whose finder records every attempt on a heavy module and says there is none. Each
# module is imported with no other of ours loaded before, as a user may import it: a circle shows from one end only.
PROGRAM = """
import importlib, json, os, pathlib, sys

heavy = set(json.loads(sys.argv[2]))
attempted, failed, imported = [], {}, []
current = None

class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in heavy:
            attempted.append(f"{current}: {name}")
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse)
root = pathlib.Path(sys.argv[1])
for folder, _, names in os.walk(root, followlinks=True):
    for file in (pathlib.Path(folder, name) for name in names if name.endswith(".py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        current = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for name in [name for name in sys.modules if name.partition(".")[0] == root.name]:
            del sys.modules[name]
        try:
            importlib.import_module(current)
        except BaseException as err:
            failed[current] = repr(err)
        else:
            imported.append(current)
print(json.dumps({"attempted": attempted, "failed": failed, "imported": imported}))
"""


class Outcome(TypedDict):
    """What importing every module of a package did."""

    attempted: list[str]
    failed: dict[str, str]
    imported: list[str]


def import_every_module(package: Path) -> Outcome:
    """Import every module of `package` where no heavy module can be found."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(package), json.dumps(HEAVY)],
        cwd=package.parent,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    outcome: Outcome = json.loads(ran.stdout)
    return outcome


@pytest.fixture(scope="module")
def outcome(project_root: Path) -> Outcome:
    return import_every_module(project_root / "src/paritygate")


def test_every_module_imports_in_a_bare_environment(outcome: Outcome, project_root: Path) -> None:
    assert outcome["failed"] == {}
    files = [
        path
        for part in ("convert", "validate", "pipelines", "fixtures")
        for path in project_root.glob(f"{part}/**/*.py")
    ]
    package = project_root / "src/paritygate"
    files += [*package.glob("*.py"), *package.glob("engine/*.py")]
    assert len(outcome["imported"]) == len(files)


def test_no_module_reaches_for_a_heavy_one_when_imported(outcome: Outcome) -> None:
    assert outcome["attempted"] == []


def test_this_guard_sees_a_heavy_import_even_where_its_absence_is_caught(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "careful.py").write_text("try:\n    import torch\nexcept ImportError:\n    torch = None\n")
    (package / "hasty.py").write_text("import onnx.checker\n")

    planted = import_every_module(package)

    assert sorted(planted["attempted"]) == ["planted.careful: torch", "planted.hasty: onnx"]
    assert list(planted["failed"]) == ["planted.hasty"]
    assert sorted(planted["imported"]) == ["planted", "planted.careful"]
