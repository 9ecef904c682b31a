"""Packages that the command loads at their first use."""

from __future__ import annotations

import importlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paritygate.__main__ import load_later

# All that `compare` imports in the process of the command.
_OF_COMPARE = """
import sys
from paritygate.__main__ import load_later
load_later("numpy")
import paritygate.pipelines.cli.commands.judging.compare
import paritygate.pipelines.compare.arguments
import paritygate.pipelines.report.terminal.comparison
assert "numpy._core" not in sys.modules
import numpy
assert numpy.ones(2).sum() == 2
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"later_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("import sys\nsys.later_loaded = True\nvalue = 3\n")
    (folder / "part.py").write_text(f"import {name}\ndouble = {name}.value * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "later_loaded", False, raising=False)
    for module in (name, f"{name}.part"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return name


def _is_loaded() -> bool:
    return bool(vars(sys)["later_loaded"])


def test_a_package_loads_at_its_first_use_and_not_at_its_import(package: str) -> None:
    load_later(package)

    module = importlib.import_module(package)

    assert not _is_loaded()
    assert module.value == 3
    assert _is_loaded()
    assert importlib.import_module(f"{package}.part").double == 6


def test_a_module_of_the_package_loads_the_package_first(package: str) -> None:
    load_later(package)

    assert importlib.import_module(f"{package}.part").double == 6
    assert _is_loaded()


def test_a_package_that_cannot_load_raises_its_error_and_is_no_module_afterwards(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "__init__.py").write_text("raise ImportError('broken')\n")
    load_later(package)
    module = importlib.import_module(package)

    with pytest.raises(ImportError, match="broken"):
        module.value  # noqa: B018 - its use is what loads
    assert package not in sys.modules


def test_a_package_that_is_missing_stays_missing() -> None:
    load_later("later_that_is_nowhere")

    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("later_that_is_nowhere")


def test_the_command_compare_imports_no_numpy() -> None:
    subprocess.run([sys.executable, "-c", _OF_COMPARE], check=True)


def test_threads_that_use_the_package_at_the_same_moment_wait_for_one_load(tmp_path: Path, package: str) -> None:
    (tmp_path / package / "__init__.py").write_text("import sys, time\nbegun = 1\ntime.sleep(0.05)\nvalue = 3\n")
    load_later(package)
    module = importlib.import_module(package)

    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(lambda _: module.value, range(4)))

    assert values == [3] * 4
