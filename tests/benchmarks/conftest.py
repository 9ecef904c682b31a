"""The scripts in `benchmarks/`, which are no part of the package."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def judgement(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module("gpu_judgement")


@pytest.fixture
def script(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    return importlib.import_module("gpu_parity")
