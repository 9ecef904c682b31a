"""A run of which nothing has changed says so, imports no framework, and starts no child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.cache_cost import looked_at
from tests.pipelines.conftest import Desk

pytestmark = pytest.mark.children


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a spec that was run and released."""
    desk = Desk(folder=tmp_path)
    desk.onnx()
    desk.samples()
    desk.spec()
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert _ran().returncode == 0
    return desk


def _ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paritygate", "run", "spec.yaml", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_says_that_nothing_has_changed(known: Desk) -> None:
    first = known.runs[0]
    said = _ran().stdout
    assert f"all 3 jobs were taken over from run {first.name}, since nothing that\n  they read has changed" in said
    assert "version 1" in said


def test_it_imports_no_framework_and_starts_no_child(known: Desk) -> None:
    assert looked_at(["run", "spec.yaml"], known.folder / "look.json") == {"frameworks": [], "children": 0}


def test_the_one_that_looks_would_notice(known: Desk) -> None:
    found = looked_at(["run", "spec.yaml", "--no-cache"], known.folder / "look.json")
    assert found["children"] > 0


def test_what_does_not_run_here_is_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(folder=tmp_path)
    desk.onnx()
    desk.samples()
    desk.spec(targets=["onnx-fp32", "openvino-bf16"], required=["onnx-fp32"])
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    words = ["run", "spec.yaml", "--no-benchmark", "--no-promote"]
    first = desk.json(*words).data["runs"][0]["variants"]["openvino-bf16"]
    if not first["not_run_here"]:
        pytest.skip("this CPU computes in bf16")

    assert looked_at(words, desk.folder / "look.json") == {"frameworks": [], "children": 0}
    second = desk.json(*words).data["runs"][0]["variants"]["openvino-bf16"]
    assert (second["verdict"], second["not_run_here"]) == ("not run here", first["not_run_here"])
