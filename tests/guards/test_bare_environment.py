"""Every module imports with the core dependencies alone, and none reaches for a heavy one when imported."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

import pytest

HEAVY = (
    "PIL",
    "keras",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "pandas",
    "polygraphy",
    "pyarrow",
    "scipy",
    "tensorflow",
    "tensorrt",
    "tensorrt_rtx_bindings",
    "tf2onnx",
    "torch",
)

# Runs in a process of its own, whose finder records every attempt on a heavy module and says there is none.
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
    # Locustfiles import it, and so have Locust.
    assert set(outcome["failed"]) == {"paritygate.live.locust"}
    files = [
        path
        for part in ("convert", "validate", "pipelines", "fixtures")
        for path in project_root.glob(f"{part}/**/*.py")
    ]
    package = project_root / "src/paritygate"
    files += [
        *package.glob("*.py"),
        *(path for name in ("api", "engine", "live", "models") for path in package.glob(f"{name}/**/*.py")),
    ]
    assert len(outcome["imported"]) == len(files) - 1


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


def _imported_at_once(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, str | None]]:
    """Yield module and name of what these statements import when the module is, and not later in a function."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from _imported_at_once(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody", "handlers"):
                yield from _imported_at_once(getattr(node, part, ()))


def circle_of_imports(package: Path) -> list[str]:
    """Return modules of a package each of which imports the next, and the last the first; none if there are none.

    Which of them can be imported then depends on which of them is imported first.
    """
    files = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for part in (package, *(path for path in package.iterdir() if path.is_dir()))
        for path in (part.rglob("*.py") if part != package else part.glob("*.py"))
    }
    needs: dict[str, set[str]] = {}
    for module, path in files.items():
        wanted = needs.setdefault(module, set())
        for name, attribute in _imported_at_once(ast.parse(path.read_text(encoding="utf-8")).body):
            target = f"{name}.{attribute}" if f"{name}.{attribute}" in files else name
            parts = target.split(".")
            # A package is imported before what is in it, but not again by what is in it itself.
            chain = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
            wanted |= {each for each in chain if each in files and not f"{module}.".startswith(f"{each}.")}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as err:
        circle: list[str] = err.args[1]
        return circle
    return []


def test_no_module_is_imported_in_a_circle(project_root: Path) -> None:
    assert circle_of_imports(project_root / "src/paritygate") == []


def test_a_circle_through_a_package_is_seen_and_a_late_import_is_none(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "part/__init__.py").write_text("from planted.part.inner import VALUE\n")
    (package / "part/inner.py").write_text("from planted import outer\nVALUE = 1\n")
    (package / "outer.py").write_text("def late():\n    import planted.part.other\n")
    (package / "part/other.py").touch()
    assert circle_of_imports(package) == []

    (package / "outer.py").write_text("try:\n    import planted.part.other\nfinally:\n    pass\n")

    assert set(circle_of_imports(package)) == {"planted.part", "planted.part.inner", "planted.outer"}
