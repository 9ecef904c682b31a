"""Draws of `benchmarks/mutants.py`: the same faults every time, each one a change, each file with its own tests."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

_MODULE = '''"""Text."""

LIMIT = 3


def judge(value: float, *, is_kept: bool = True) -> list[str]:
    """Judge."""
    found: list[str] = []
    if value < LIMIT and is_kept:
        found.append(f"{1 < 2}")
    return found


def run() -> None:
    """Run."""
    for value in (1.5, 2):
        judge(value)
'''
_PLACES = ("convert/a.py", "validate/gate/b.py", "pipelines/c.py", "src/paritygate/d.py")


@pytest.fixture
def mutations(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module("mutations")


@pytest.fixture
def mutants(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module("mutants")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small product of four parts; one part is seen a second time through a link."""
    for place in _PLACES:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(_MODULE, encoding="utf-8")
    (tmp_path / "src/paritygate/convert").symlink_to("../../convert")
    return tmp_path


def test_every_mutation_is_another_program_of_the_kind_that_it_is_called(mutations: ModuleType, tree: Path) -> None:
    source = _MODULE.encode()
    found = mutations.mutations_of(tree, tree / "convert/a.py", "convert")

    changed = {(item.kind, item.before): item.apply(source).decode() for item in found}
    assert {ast.dump(ast.parse(text)) for text in changed.values()}.isdisjoint({ast.dump(ast.parse(source))})
    assert "if value <= LIMIT and" in changed["comparison", "value < LIMIT"]
    assert "LIMIT = 4" in changed["constant", "3"]
    assert "is_kept: bool = False" in changed["constant", "True"]
    assert "        pass\n    return found" in changed["dropped call", 'found.append(f"{1 < 2}")']
    assert {item.where for item in found if item.kind == "early return"} == {"judge", "run"}
    assert {item.kind for item in found} == set(mutations.KINDS)


def test_an_early_return_ends_a_function_whatever_its_first_statement_is(mutations: ModuleType, tree: Path) -> None:
    found = mutations.mutations_of(tree, tree / "convert/a.py", "convert")

    for item in found:
        if item.kind == "early return":
            names: dict[str, object] = {}
            exec(item.apply(_MODULE.encode()), names)  # noqa: S102 - the text above
            function = names[item.where]
            assert callable(function)
            assert function(*([1.0] if item.where == "judge" else [])) is None


def test_as_many_are_drawn_in_every_part_and_an_edit_elsewhere_changes_none(mutations: ModuleType, tree: Path) -> None:
    drawn = mutations.draw(tree, seed=1, count=5)
    assert [item.part for item in drawn] == [part for part in mutations.PARTS for _ in range(5)]
    assert {item.path for item in drawn} == set(_PLACES)
    assert [item.kind for item in drawn[:4]] == list(mutations.KINDS)

    (tree / "convert/a.py").write_text(_MODULE.replace('"""Text."""', '"""Text."""\n\nNAME = "name"'), encoding="utf-8")
    again = mutations.draw(tree, seed=1, count=5)

    assert [item.name for item in again] == [item.name for item in drawn]
    assert [item.line for item in again] != [item.line for item in drawn]


def test_tests_run_of_the_mirroring_folder_with_those_that_name_the_module_first(
    mutants: ModuleType, tree: Path
) -> None:
    folder = tree / "tests/validate/gate"
    folder.mkdir(parents=True)
    (tree / "tests/pipelines/cli").mkdir(parents=True)
    for name, text in {"a": "", "b": "from paritygate.validate.gate import b", "c": ""}.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")

    assert mutants.folder_of_tests(tree, "validate/gate/b.py") == folder
    assert mutants.folder_of_tests(tree, "pipelines/other/c.py") == tree / "tests/pipelines"
    names = [Path(name).name for name in mutants.files_of_tests(folder, "validate/gate/b.py")]
    assert names == ["test_b.py", "test_a.py", "test_c.py"]


def test_a_fault_that_was_killed_and_survives_is_lost_and_one_out_of_time_is_not(mutants: ModuleType) -> None:
    earlier = [{"name": name, "outcome": "killed"} for name in "abc"] + [{"name": "d", "outcome": "survived"}]
    now = [
        {"name": "a", "outcome": "survived"},
        {"name": "b", "outcome": "timeout"},
        {"name": "c", "outcome": "killed"},
    ]

    assert mutants.lost([*now, {"name": "d", "outcome": "survived"}], earlier) == ["a"]
