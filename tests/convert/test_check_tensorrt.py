"""Whether an engine's file, its record and what the library reads from it agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.convert.conftest import Bench, Converted, sign

from paritygate.convert.check_tensorrt import check
from paritygate.convert.engine import engine_check
from paritygate.convert.engine.engine_check import engine_differences, outputs_by_dtype, read_engine, why_not_loaded
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
    monkeypatch.setattr(engine_check, "gpu_of_machine", lambda: None)
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
        ({"precision": Precision.FP16}, "precision fp16, and it was built with fp32"),
        ({"settings": EngineSettings(workspace_mb=1)}, "settings EngineSettings"),
        ({"signature": sign({"x": "float32[2, 4]"}, {"y": "float32[2, 4]"})}, "signature Signature"),
    ],
)
def test_a_record_that_says_something_else_is_refused(built: Converted, changes: dict[str, Any], what: str) -> None:
    replace(EngineRecord.load(built.main), **changes).save(built.main)
    with pytest.raises(ConversionError, match=f"the record of the engine says {what}"):
        check(built.job, built.conversion)


def test_on_a_gpu_that_it_was_not_built_for_it_is_not_loaded(built: Converted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_check, "gpu_of_machine", lambda: replace(_GPU, name="NVIDIA H100", capability="90"))
    reason = why_not_loaded(EngineRecord.load(built.main))
    assert reason == "it was built for compute capability 8.0 and above, and the GPU here, NVIDIA H100, has 9.0"
    monkeypatch.setattr(engine_check, "gpu_of_machine", lambda: _GPU)
    assert why_not_loaded(EngineRecord.load(built.main)) is None


def test_an_engine_that_the_library_does_not_load_is_refused_with_its_words(
    built: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if there were a GPU: the library then finds that it cannot load this.
    monkeypatch.setattr(engine_check, "gpu_of_machine", lambda: _GPU)
    built.main.write_bytes(b"no engine")
    with pytest.raises(ConversionError, match=r"does not load the engine that it built: \S+"):
        check(built.job, built.conversion)


class _Engine:
    """As much of an ICudaEngine as is asked, as TensorRT and TensorRT-RTX have it alike."""

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401
        self.tensors: dict[str, tuple[str, str, tuple[int, ...]]] = {
            "x": ("INPUT", "FLOAT", (-1, 4)),
            "y": ("OUTPUT", "FLOAT", (-1, 4)),
        } | changes
        self.profile = ((1, 4), (2, 4), (8, 4))
        self.num_io_tensors = len(self.tensors)

    def get_tensor_name(self, index: int) -> str:
        return tuple(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> Any:  # noqa: ANN401
        return SimpleNamespace(name=self.tensors[name][0])

    def get_tensor_dtype(self, name: str) -> Any:  # noqa: ANN401
        return SimpleNamespace(name=self.tensors[name][1])

    def get_tensor_shape(self, name: str) -> Any:  # noqa: ANN401
        return self.tensors[name][2]

    def get_tensor_profile_shape(self, name: str, index: int) -> Any:  # noqa: ANN401
        assert (name, index) == ("x", 0)
        return self.profile


def test_the_stand_in_for_an_engine_has_no_more_than_engines_have() -> None:
    from paritygate.engine.library import open_library

    its = open_library("tensorrt-rtx").module.ICudaEngine
    assert [name for name in vars(_Engine) if not name.startswith("_") and not hasattr(its, name)] == []
    assert hasattr(its, "num_io_tensors")


@pytest.mark.parametrize(
    ("engine", "difference"),
    [
        (_Engine(), None),
        # A dim that can only have one size may be that size.
        (_Engine(y=("OUTPUT", "FLOAT", (8, 4))), None),
        (_Engine(z=("INPUT", "FLOAT", (1,))), "its inputs are x, z, recorded are x"),
        (_Engine(y=("OUTPUT", "HALF", (-1, 4))), "output 'y' is HALF, recorded is float32"),
        (
            _Engine(y=("OUTPUT", "FLOAT", (-1, 5))),
            r"output 'y' has shape \(-1, 5\), recorded is y: float32\[batch, 4\]",
        ),
        (_Engine(x=("INPUT", "FLOAT", (-1,))), r"input 'x' has shape \(-1,\), recorded is x: float32\[batch, 4\]"),
    ],
)
def test_what_differs_between_an_engine_and_its_record(
    built: Converted, engine: _Engine, difference: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = EngineRecord.load(built.main)
    if difference is None:
        assert list(engine_differences(engine, record)) == []
        return
    import polygraphy.backend.trt

    monkeypatch.setattr(polygraphy.backend.trt, "engine_from_bytes", lambda *_, **__: engine)
    with pytest.raises(ConversionError, match=f"the engine is not what its record says: {difference}"):
        read_engine(built.main, record)


def test_another_profile_is_a_difference(built: Converted) -> None:
    engine = _Engine()
    engine.profile = ((1, 4), (2, 4), (16, 4))
    assert list(engine_differences(engine, EngineRecord.load(built.main))) == [
        "input 'x' is built for (1, 4), (2, 4), (16, 4) (min, opt, max), recorded are (1, 4), (2, 4), (8, 4)"
    ]


def test_what_the_inspector_says_is_counted() -> None:
    detailed = {
        "Layers": [
            {"Name": "a", "Outputs": [{"Name": "t", "Datatype": "Half"}, {"Name": "u", "Datatype": "Half"}]},
            {"Name": "b", "Outputs": [{"Name": "v", "Format/Datatype": "Row major linear FP32"}, {"Name": "w"}]},
        ]
    }
    assert outputs_by_dtype(json.dumps(detailed)) == {"Half": 2, "Row major linear FP32": 1, "unknown": 1}
    # Where details were left out of the engine, layers are names.
    assert outputs_by_dtype(json.dumps({"Layers": ["a", "b"]})) == {}
