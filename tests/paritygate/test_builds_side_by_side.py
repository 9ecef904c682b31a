"""Two builds of a runtime write the same module: the one that was installed last runs, and is the one that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from paritygate.backends import backend_state, version_of
from paritygate.machine import machine_facts
from paritygate.pipelines.cli.console import _warn_of_backends, progress_of


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install what says that it is two other builds of ONNX Runtime, and return the version that runs."""
    runs = version_of("onnxruntime") or version_of("onnxruntime-gpu")
    if runs is None:
        pytest.skip("ONNX Runtime is not installed")
    for name in ("onnxruntime", "onnxruntime-gpu"):
        folder = tmp_path / f"{name.replace('-', '_')}-0.0.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    version_of.cache_clear()
    _warn_of_backends.cache_clear()
    monkeypatch.setattr("paritygate.backends.version_of", version_of.__wrapped__)
    return runs


def test_the_version_is_that_of_the_module(others: str) -> None:
    state = backend_state("onnxruntime")

    assert state.version == others
    assert set(dict(state.side_by_side)) == {"onnxruntime", "onnxruntime-gpu"}
    assert machine_facts()["versions"]["onnxruntime"] == others


def test_it_is_warned_of_once(others: str, capsys: pytest.CaptureFixture[str]) -> None:
    del others
    for _ in range(2):
        with progress_of("it"):
            pass

    assert capsys.readouterr().err.count("warning: ") == 1


def test_one_build_is_nothing_to_warn_of() -> None:
    version_of.cache_clear()

    assert backend_state("torch").side_by_side == ()
