"""The script that draws changes: some of them, after which nothing stale is taken over, and that it would notice."""

from __future__ import annotations

import importlib
import os
import random
from pathlib import Path
from types import ModuleType

import pytest

from paritygate.pipelines.cache import cache

pytestmark = [
    pytest.mark.children,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells what a process reads"),
]

_SEED = 20
_COUNT = 10
_LEAST_KINDS = 25


@pytest.fixture
def script(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script, where runs are cached."""
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    return importlib.import_module("cache_changes")


def test_there_are_many_kinds_of_changes(script: ModuleType) -> None:
    for source in script.SOURCES:
        kinds = [change.kind for change in script.kinds(source, random.Random(0))]  # noqa: S311 - draws changes

        assert len(set(kinds)) == len(kinds) >= _LEAST_KINDS


@pytest.mark.thorough
def test_nothing_stale_is_taken_over(script: ModuleType, tmp_path: Path) -> None:
    tally = script.try_changes(tmp_path, {"onnx": _COUNT}, _SEED, lambda _: None)

    assert len(tally.results) == _COUNT
    assert tally.stale == []
    # Python may find a package in a new folder beside the code, so that this one is looked into again.
    assert [name for name in tally.needless if "an empty folder" not in name] == []


@pytest.mark.thorough
def test_what_is_stale_is_noticed(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = script.Workshop(tmp_path / "onnx", "onnx")
    tally = script.Tally()
    (change,) = (item for item in script.kinds("onnx", random.Random(0)) if item.kind == "a text")  # noqa: S311 - as above
    monkeypatch.setattr(cache, "first_difference", lambda *_: "")

    script.try_change(workshop, change, tally)

    assert tally.stale == ["onnx: a text"]
