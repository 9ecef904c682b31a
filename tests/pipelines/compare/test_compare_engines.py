"""An engine as the candidate of a comparison: it reaches its runner, and where there is no GPU the command says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paritygate.engine.record import ENGINE_FILE, RECORD_FILE, EngineRecord
from paritygate.engine.settings import EngineSettings, profile_of
from paritygate.machine import Gpu
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.runners import tensorrt

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench

_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 3)),),
    dims={"batch": Dim(min=1, opt=8, max=64)},
)
_T4 = Gpu(name="Tesla T4", capability="75", driver="580.1", cuda="13.0")


def _engine(folder: Path, library: str = "tensorrt") -> str:
    folder.mkdir()
    path = folder / ENGINE_FILE
    path.write_bytes(b"an engine")
    EngineRecord(
        library=library,
        version="10.16.1.11",
        precision=Precision.FP32,
        signature=_SIGNATURE,
        profile=profile_of(_SIGNATURE),
        tf32=False,
        settings=EngineSettings(),
        dtype_counts={},
        built_on=None,
        targets="",
    ).save(path)
    return str(path)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the machine show no GPU, where it has one."""
    monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: None)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("library", ["tensorrt", "tensorrt-rtx"])
def test_an_engine_cannot_be_compared_without_a_gpu(bench: Bench, library: str) -> None:
    engine = _engine(bench.folder / "engine", library)

    found = bench.compare(bench.linear("ref"), engine, "--samples", bench.samples())

    assert found.code == 5
    assert found.result["verdict"] == "error"
    assert found.message == "engines run on NVIDIA GPUs only, but the CUDA driver shows none to this process"
    assert "--device cuda" in found.result["error"]["hint"]
    assert "promote.accept" in found.result["error"]["hint"]
    assert found.out.count("engines run on NVIDIA GPUs only") + found.err.count("engines run on NVIDIA GPUs only") == 1
    assert "Traceback" not in found.out + found.err


def test_an_engine_needs_the_gpu_to_be_asked_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: _T4)
    engine = _engine(bench.folder / "engine")

    found = bench.compare(bench.linear("ref"), engine, "--samples", bench.samples())

    assert found.code == 5
    assert found.message == "engines run on NVIDIA GPUs only, but the requested device is 'cpu'"
    assert found.result["error"]["hint"] == "run it on the GPU: --device cuda"


def test_an_engine_without_its_record_is_a_wrong_input(bench: Bench) -> None:
    engine = _engine(bench.folder / "engine")
    (bench.folder / "engine" / RECORD_FILE).unlink()

    found = bench.compare(bench.linear("ref"), engine, "--samples", bench.samples())

    assert found.code == 2
    assert "has no engine.json beside it" in found.err
