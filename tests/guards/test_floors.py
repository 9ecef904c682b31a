"""Imports go downwards only: pipelines > convert, validate > ground floor; fixtures stand on the ground floor.

Inside pipelines the folders stand on each other as well, nowhere do modules import each other in a circle, and no
folder holds more modules than a reader takes in at once. The Python API is the one exception: it stands above all.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import paritygate

# From a part to the parts that its modules may import; the ground floor is open to all.
MAY_IMPORT = {
    "ground floor": set[str](),
    "convert": {"convert"},
    "validate": {"validate"},
    "fixtures": {"fixtures"},
    "pipelines": {"pipelines", "convert", "validate"},
}
# From a folder or module of pipelines to those that it may import; jobs are found by their names, in `child_main.py`.
MAY_IMPORT_IN_PIPELINES = {
    "process": set[str](),
    "cache": {"process"},
    "calibration": set[str](),
    "serving": set[str](),
    "rules": set(),
    "spec": {"calibration", "serving", "rules"},
    "compare": {"process", "rules"},
    "benchmark": {"process", "spec", "compare"},
    "run": {"process", "cache", "calibration", "rules", "spec", "compare", "benchmark", "diagnose"},
    "inspecting": {"process", "spec", "compare"},
    "diagnose": {"process", "compare"},
    "choice": {"spec", "compare", "benchmark", "run"},
    "packing": {"process", "compare", "run"},
    "repair": {"process", "calibration", "spec", "compare", "run", "choice"},
    "report": {"compare", "benchmark", "run", "choice", "fleet"},
    "release": {"rules", "spec", "compare", "benchmark", "run", "choice", "packing", "report", "serving"},
    "live": {"process", "compare", "run", "report", "release"},
    "tuning": {"process", "spec", "report", "release", "serving", "live"},
    "shadow": {"process", "compare", "run", "release", "live"},
    "selftest": {"process", "spec", "compare", "run", "report"},
    "jobs": {
        "process",
        "calibration",
        "spec",
        "compare",
        "inspecting",
        "benchmark",
        "run",
        "selftest",
        "diagnose",
        "repair",
    },
    "run_spec": {"process", "cache", "spec", "compare", "run", "choice", "report", "release"},
    "planning": {"process", "cache", "spec", "run", "run_spec"},
    "scale": {"process", "compare"},
    "fleet": {"scale"},
    "past_runs": {"cache", "spec", "run", "release", "run_spec"},
    "report/terminal": {
        *("spec", "compare", "benchmark", "run", "choice", "packing", "report", "release", "selftest", "inspecting"),
        *("run_spec", "serving", "past_runs", "planning", "tuning", "shadow", "repair", "live", "fleet"),
    },
    "cli": {
        *("process", "rules", "spec", "compare", "benchmark", "run", "choice", "packing", "report", "report/terminal"),
        *("release", "selftest", "inspecting", "run_spec", "serving", "cache", "past_runs", "planning", "tuning"),
        *("diagnose", "shadow", "repair", "live", "fleet", "scale"),
    },
}
MOST_MODULES = 20
PARTS = set(MAY_IMPORT) - {"ground floor"}
# Where users come in: the command, the Python API and the plugin of pytest. They stand above all, and nothing imports
# them; of `__init__.py`, which shows the API, only the version is read.
API = {
    "paritygate.api",
    "paritygate.api.releases",
    "paritygate.api.runs",
    "paritygate.live.answer_process",
    "paritygate.live.locust",
}
ENTRANCES = {"__main__.py", "__init__.py", "pytest_plugin.py"}


def modules_imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of every module that may be imported, wherever in the file; a relative one with its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@functools.cache
def modules_imported_in(path: Path) -> tuple[tuple[int, str], ...]:
    """Return what a file imports. Its tree is not kept, because a million nodes make Python's collector slow."""
    return tuple(modules_imported(ast.parse(path.read_text(encoding="utf-8"))))


def upward_imports(imports: Iterable[tuple[int, str]], part: str) -> list[str]:
    """Return the imports of a file of `part` that go up, sideways or by a relative name, as `line: module`."""
    found: dict[int, str] = {}
    for line, module in imports:
        names = module.split(".")
        is_relative = module.startswith(".")
        is_of_part = names[0] == "paritygate" and len(names) > 1 and names[1] in PARTS
        if is_relative or (is_of_part and names[1] not in MAY_IMPORT[part]):
            found.setdefault(line, module)
    return [f"{line}: {module}" for line, module in found.items()]


def files_of(project_root: Path, part: str) -> list[Path]:
    """Return the Python files of a part, or of the ground floor without the command's entrance."""
    if part == "ground floor":
        folder = project_root / "src/paritygate"
        found = [path for path in folder.glob("*.py") if path.name not in ENTRANCES]
        return [*found, *folder.glob("engine/**/*.py"), *folder.glob("models/**/*.py")]
    return list((project_root / part).rglob("*.py"))


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_it_stands_on(project_root: Path, part: str) -> None:
    files = files_of(project_root, part)

    assert files
    assert [
        f"{path.relative_to(project_root)}:{found}"
        for path in files
        for found in upward_imports(modules_imported_in(path), part)
    ] == []


@pytest.mark.parametrize(
    ("part", "statement"),
    [
        ("ground floor", "from paritygate.validate import metrics"),
        ("ground floor", "import paritygate.pipelines.cli.app"),
        ("convert", "from paritygate import validate"),
        ("convert", "from paritygate.validate.runners.opening import open_runner"),
        ("validate", "def late():\n    from paritygate.convert import conversion"),
        ("fixtures", "if TYPE_CHECKING:\n    from paritygate.pipelines.spec.schema import Spec"),
        ("pipelines", "import paritygate.fixtures.sts"),
        ("pipelines", "from . import spec"),
        ("validate", "from .statistics import update"),
    ],
)
def test_this_guard_sees_an_import_that_goes_up_or_sideways(part: str, statement: str) -> None:
    assert len(upward_imports(modules_imported(ast.parse(statement)), part)) == 1


@pytest.mark.parametrize(
    ("part", "statement"),
    [
        ("ground floor", "from paritygate.errors import UsageError"),
        ("convert", "from paritygate.convert.conversion import Conversion\nfrom paritygate import errors"),
        ("pipelines", "from paritygate.convert import conversion\nimport paritygate.validate.gate.verdict"),
        ("validate", "import validate_email"),
    ],
)
def test_this_guard_lets_an_import_down_pass(part: str, statement: str) -> None:
    assert upward_imports(modules_imported(ast.parse(statement)), part) == []


def imports_by_module(project_root: Path) -> dict[str, set[str]]:
    """Return which of our modules each module imports, those imported for their types or inside a function included."""
    package = project_root / "src/paritygate"
    paths = {}
    for part in MAY_IMPORT:
        for path in files_of(project_root, part):
            place = path.relative_to(package if part == "ground floor" else project_root)
            name = ".".join(("paritygate", *place.with_suffix("").parts)).removesuffix(".__init__")
            paths[name] = path
    return {
        name: {module for _, module in modules_imported_in(path) if module in paths} - {name}
        for name, path in paths.items()
    }


def test_nothing_imports_the_entrances(project_root: Path) -> None:
    files = [path for part in MAY_IMPORT for path in files_of(project_root, part)]
    found = {
        f"{path.relative_to(project_root)}: {module}"
        for path in files
        for _, module in modules_imported_in(path)
        if module in {*API, "paritygate.__main__"} | {f"paritygate.{name}" for name in paritygate.__all__}
    }

    assert {name for name in found if not name.endswith(": paritygate.__version__")} == set()


def test_the_api_imports_nothing_of_the_command_line(project_root: Path) -> None:
    package = project_root / "src/paritygate"
    imported = {module for path in (package / "api").glob("*.py") for _, module in modules_imported_in(path)}

    assert "paritygate.pipelines.compare.job" in imported
    assert [module for module in imported if module.startswith("paritygate.pipelines.cli")] == []


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle; empty where none do."""
    left = {module: set(imported) for module, imported in imports.items()}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in free}
    return sorted(left)


def folder_of(module: str) -> str:
    """Return the name of the folder that holds a module."""
    return module.rpartition(".")[0]


def test_no_modules_import_each_other_in_a_circle(project_root: Path) -> None:
    imports = imports_by_module(project_root)

    assert sum(map(len, imports.values())) > 1000
    assert circle_in(imports) == []


def test_no_folders_of_validate_import_each_other_in_a_circle(project_root: Path) -> None:
    imports: dict[str, set[str]] = {}
    for module, imported in imports_by_module(project_root).items():
        if module.startswith("paritygate.validate."):
            folder = folder_of(module)
            imports.setdefault(folder, set()).update({folder_of(name) for name in imported} - {folder})

    assert len(imports) > len(("its own folder", "and one below"))
    assert circle_in(imports) == []


def test_this_guard_sees_a_circle() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == ["a", "b", "c"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def floor_of(module: str) -> str | None:
    """Return the folder or module of pipelines that a module is part of, by its key above; None outside pipelines.

    What the terminal shows is drawn by a folder of `report`, and of the results of all others.
    """
    match module.split("."):
        case ["paritygate", "pipelines", "report", "terminal", *_]:
            return "report/terminal"
        case ["paritygate", "pipelines", folder, *_]:
            return folder
    return None


def test_the_folders_of_pipelines_stand_on_each_other(project_root: Path) -> None:
    found = {}
    for module, imported in imports_by_module(project_root).items():
        if (floor := floor_of(module)) is not None:
            below = {name for name in map(floor_of, imported) if name is not None}
            found[module] = below - MAY_IMPORT_IN_PIPELINES[floor] - {floor}

    assert {module: above for module, above in found.items() if above} == {}


def test_no_folder_holds_more_modules_than_a_reader_takes_in(project_root: Path) -> None:
    folders: dict[Path, int] = {}
    entrances = [project_root / "src/paritygate" / name for name in ENTRANCES]
    for path in (*entrances, *(path for part in MAY_IMPORT for path in files_of(project_root, part))):
        folders[path.parent] = folders.get(path.parent, 0) + (path.name != "__init__.py")

    assert {str(folder): count for folder, count in folders.items() if count > MOST_MODULES} == {}
