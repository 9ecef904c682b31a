"""Whether an engine's file, its record and what the library reads from it agree."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.convert.conftest import Bench, Converted, sign

from paritygate.convert.engine import check_tensorrt
from paritygate.convert.engine.check_tensorrt import check
from paritygate.engine.inspecting import LoadedEngine
from paritygate.engine.library import open_library
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import EngineSettings
from paritygate.errors import ConversionError
from paritygate.machine import Gpu
from paritygate.precision import Precision

pytestmark = pytest.mark.rtx

_RELU = """
< ir_version: 8, opset_import: ["" : 17] >
relu (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }
"""
_SIGNATURE = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))
_GPU = Gpu(name="NVIDIA RTX 4090", capability="89", driver="570.86", cuda="12.8")


@pytest.fixture
def built(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Converted:
    """Return an engine, on a machine without a GPU."""
    monkeypatch.setattr(check_tensorrt, "gpu_of_machine", lambda: None)
    return bench.convert("onnx", bench.onnx_file(_RELU), to="tensorrt-rtx", signature=_SIGNATURE)


def test_an_engine_that_cannot_be_loaded_here_is_said_to_be_so(built: Converted) -> None:
    reason = "engines are loaded on a GPU, and there is none here"
    assert built.conversion.facts["not_loaded_here"] == reason
    assert built.conversion.notes[-1] == f"the engine was not loaded here: {reason}"


@pytest.mark.parametrize(
    "spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")], ids=["gone", "empty"]
)
def test_an_engine_that_is_missing_or_empty_is_refused(built: Converted, spoil: Callable[[Any], object]) -> None:
    spoil(built.main)
    with pytest.raises(ConversionError, match=r"the engine model.plan is missing or empty") as caught:
        check(built.job, built.conversion)
    assert caught.value.hint == "build the engine again: convert-and-validate build --run DIR"


def test_an_engine_without_its_record_is_refused(built: Converted) -> None:
    (built.job.folder / "engine.json").unlink()
    with pytest.raises(ConversionError, match=r"the converted model is unsound: .* has no engine.json beside it"):
        check(built.job, built.conversion)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"precision": Precision.FP16}, "precision fp16, but it was built with fp32"),
        ({"settings": EngineSettings(workspace_mb=1)}, "settings EngineSettings"),
        ({"signature": sign({"x": "float32[2, 4]"}, {"y": "float32[2, 4]"})}, "signature Signature"),
    ],
)
def test_a_record_that_says_something_else_is_refused(built: Converted, changes: dict[str, Any], what: str) -> None:
    replace(EngineRecord.load(built.main), **changes).save(built.main)
    with pytest.raises(ConversionError, match=f"the engine's record has {what}"):
        check(built.job, built.conversion)


def test_on_a_gpu_that_it_was_not_built_for_it_is_not_loaded(built: Converted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_tensorrt, "gpu_of_machine", lambda: replace(_GPU, name="NVIDIA H100", capability="90"))
    reason = (
        "the engine was built for compute capability 8.0 and above; the GPU here, NVIDIA H100, has 9.0, "
        "which TensorRT-RTX has no engines for (it has: 7.5, 8.0, 8.6, 8.9, 12.0, 12.1)"
    )
    assert check(built.job, built.conversion).facts["not_loaded_here"] == reason


def test_an_engine_that_the_library_does_not_load_is_refused_with_its_words(
    built: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if there were a GPU: the library then finds that it cannot load this.
    monkeypatch.setattr(check_tensorrt, "gpu_of_machine", lambda: _GPU)
    built.main.write_bytes(b"no engine")
    with pytest.raises(ConversionError, match=r"could not load the engine \S+model\.plan: \S+"):
        check(built.job, built.conversion)


def test_an_engine_that_is_not_what_its_record_says_is_refused(
    built: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimpleNamespace(
        num_io_tensors=1,
        get_tensor_name=lambda _: "z",
        get_tensor_mode=lambda _: SimpleNamespace(name="INPUT"),
    )
    library = open_library("tensorrt-rtx")
    loaded = LoadedEngine(library=library, cuda_engine=engine, runtime=None)
    monkeypatch.setattr(check_tensorrt, "gpu_of_machine", lambda: _GPU)
    monkeypatch.setattr(check_tensorrt, "load_engine", lambda *_: loaded)
    with pytest.raises(
        ConversionError, match=r"the engine differs from its engine\.json: its inputs are z, expected x"
    ) as caught:
        check(built.job, built.conversion)
    assert caught.value.hint == "build the engine again: convert-and-validate build --run DIR"
