"""What TensorRT is told and what is made of its answers. No GPU: where one is needed, the bindings of TensorRT-RTX,
which share the API, stand in for TensorRT; an engine of TensorRT itself is built by the tests that need a GPU.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import onnx
import pytest
from msgspec.structs import replace
from tests.convert.conftest import Bench, sign

from paritygate.convert.conversion import ConversionJob
from paritygate.convert.engine import build as build_module
from paritygate.convert.engine import network as network_module
from paritygate.convert.engine.dtype_counts import check_dtypes
from paritygate.convert.engine.network import library_errors, parse_network, parser_error
from paritygate.convert.engine.onnx_to_tensorrt import convert
from paritygate.engine import gpu_fit
from paritygate.engine.builder_log import BuilderLog
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.gpu_fit import targets_in_words
from paritygate.engine.library import TENSORRT, EngineLibrary, open_library
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.errors import ConversionError, MissingGpuError, StorageError, UsageError
from paritygate.machine import Gpu
from paritygate.precision import Precision

_GPU = Gpu(name="NVIDIA H100 80GB HBM3", capability="90", driver="570.86", cuda="12.8")
_RELU = """
< ir_version: 8, opset_import: ["" : 17] >
relu (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }
"""
_SIGNATURE = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))


def _job(bench: Bench, **fields: Any) -> ConversionJob:  # noqa: ANN401 - any field
    job = bench.job("onnx", bench.onnx_file(_RELU), **{"signature": _SIGNATURE, **fields})
    job.folder.mkdir()
    return job


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> EngineLibrary:
    """Let the bindings of TensorRT-RTX be TensorRT, on a machine with a GPU."""
    library = EngineLibrary(name=TENSORRT, module=open_library("tensorrt-rtx").module)
    monkeypatch.setattr(build_module, "open_library", lambda _: library)
    monkeypatch.setattr(build_module, "gpu_of_machine", lambda: _GPU)
    monkeypatch.setattr(build_module, "require_builder", lambda _: None)
    return library


def test_without_a_gpu_nothing_is_built(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_fit, "gpu_of_machine", lambda: None)
    with pytest.raises(MissingGpuError, match="builds engines on the GPU that runs them") as caught:
        convert(_job(bench))
    assert "convert-and-validate pack --run DIR" in caught.value.hint
    assert "build --run DIR" in caught.value.hint


@pytest.mark.rtx
def test_the_record_says_on_which_gpu_it_was_built(bench: Bench, stand_in: EngineLibrary) -> None:
    job = _job(bench)
    conversion = convert(job)
    record = EngineRecord.load(job.folder / "model.plan")
    assert record.library == TENSORRT
    assert record.built_on == {"name": _GPU.name, "capability": "90", "driver": "570.86", "cuda": "12.8"}
    assert record.built_on == conversion.facts["built_on"]
    assert record.targets == "NVIDIA H100 80GB HBM3 (compute capability 9.0)"
    assert conversion.notes[0] == f"built by {stand_in.title} for {record.targets}"


@pytest.mark.rtx
@pytest.mark.usefixtures("stand_in")
def test_the_settings_reach_the_builder(bench: Bench) -> None:
    job = _job(bench, engine=EngineSettings(workspace_mb=32, optimization_level=2))
    convert(job)
    assert EngineRecord.load(job.folder / "model.plan").settings == job.engine


@pytest.mark.rtx
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        # The stand-in takes both settings and keeps neither: what was asked for is held against what it has.
        (EngineSettings(hardware_compatibility=HardwareCompatibility.AMPERE_PLUS), "hardware_compatibility"),
        (EngineSettings(version_compatible=True), "build the engine"),
    ],
)
def test_compatibility_that_is_not_kept_is_an_error(bench: Bench, settings: EngineSettings, what: str) -> None:
    job = _job(bench, engine=settings)
    with pytest.raises(ConversionError, match=f"does not (apply )?{what}"):
        convert(job)
    assert not (job.folder / "model.plan").exists()


@pytest.mark.rtx
@pytest.mark.usefixtures("stand_in")
def test_compute_capabilities_are_not_tensorrts(
    bench: Bench, stand_in: EngineLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(capabilities_of(stand_in), compute_capabilities=())
    monkeypatch.setattr(build_module, "capabilities_of", lambda _: found)
    with pytest.raises(UsageError, match="builds only for the GPU that it builds on"):
        convert(_job(bench, engine=EngineSettings(compute_capabilities=("8.9",))))


@pytest.mark.rtx
@pytest.mark.usefixtures("stand_in")
def test_timings_are_read_and_written(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    cache = bench.folder / "new" / "timings.bin"
    settings = EngineSettings(timing_cache=cache)
    convert(_job(bench, engine=settings))
    assert cache.stat().st_size
    assert "Loading tactic timing cache" not in capsys.readouterr().out
    convert(_job(Bench(folder=cache.parent), engine=settings))
    assert f"Loading tactic timing cache from {cache}" in capsys.readouterr().out


@pytest.mark.rtx
@pytest.mark.usefixtures("stand_in")
def test_timings_that_are_not_written_are_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import polygraphy.backend.trt

    build = polygraphy.backend.trt.engine_bytes_from_network
    monkeypatch.setattr(
        polygraphy.backend.trt, "engine_bytes_from_network", lambda network, config, **_: build(network, config)
    )
    job = _job(bench, engine=EngineSettings(timing_cache=bench.folder / "timings.bin"))
    with pytest.raises(ConversionError, match=r"wrote no timings to the timing_cache .*timings.bin") as caught:
        convert(job)
    assert "leave timing_cache out" in caught.value.hint


@pytest.mark.rtx
@pytest.mark.usefixtures("stand_in")
def test_timings_that_cannot_be_written_are_found_before_the_build(bench: Bench) -> None:
    blocked = bench.folder / "a file"
    blocked.touch()
    with pytest.raises(StorageError, match="could not be written"):
        convert(_job(bench, engine=EngineSettings(timing_cache=blocked / "timings.bin")))


@pytest.mark.rtx
def test_a_library_without_strongly_typed_networks_is_refused(
    bench: Bench, stand_in: EngineLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(capabilities_of(stand_in), strongly_typed_flag=False)
    monkeypatch.setattr(network_module, "capabilities_of", lambda _: found)
    with pytest.raises(ConversionError, match="has no strongly typed networks") as caught:
        convert(_job(bench))
    assert caught.value.hint == "install a later version of the library"


@pytest.mark.rtx
def test_tensorrt_11_needs_no_flag_to_be_strongly_typed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trt = open_library("tensorrt-rtx").module
    module = ModuleType("tensorrt")
    module.__dict__.update({name: getattr(trt, name) for name in dir(trt) if not name.startswith("__")})
    library = EngineLibrary(name=TENSORRT, module=module)
    module.__dict__["__version__"] = "11.4.0.106"
    found = replace(capabilities_of(library), strongly_typed_flag=False)
    monkeypatch.setattr(network_module, "capabilities_of", lambda _: found)
    path = bench.onnx_file(_RELU)
    parsed = parse_network(library, BuilderLog(library.title), path, onnx.load(str(path)))
    assert parsed.network.num_layers == 1


@pytest.mark.rtx
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("Error Code 2: OutOfMemory (Requested size was 123 bytes.)", "free memory of the GPU, or limit workspace_mb"),
        (
            "no tactics to implement the operation within workspace limit.",
            "raise tensorrt_rtx.workspace_mb in the spec",
        ),
        ("kMAX dimensions in profile 0 are [5] but input has [4]", "declare in model.dims only sizes"),
        ("Error Code 10: no implementation for node", "the log of the job holds all that the library said"),
    ],
)
def test_the_reason_stands_in_the_log(line: str, hint: str) -> None:
    library = open_library("tensorrt-rtx")
    log = BuilderLog(library.title)
    log.add("ERROR", line)
    with pytest.raises(ConversionError) as caught, library_errors(library, log, "build the engine"):
        raise RuntimeError
    assert str(caught.value) == f"{library.title} does not build the engine: {line}"
    assert caught.value.hint.startswith(hint)


@pytest.mark.rtx
def test_an_error_without_a_log_has_its_own_words() -> None:
    library = open_library("tensorrt-rtx")
    for err, words in (
        (TypeError("factory function returned nullptr"), "factory function returned nullptr"),
        (RuntimeError(), "RuntimeError"),
    ):
        with (
            pytest.raises(ConversionError, match=f"does not start: {words}"),
            library_errors(library, BuilderLog("x"), "start"),
        ):
            raise err


class _ParserError:
    def __init__(self, code: str, desc: str, *, node: int = -1, operator: str = "", name: str = "") -> None:
        self._said = {
            "code": SimpleNamespace(name=code),
            "desc": desc,
            "node": node,
            "operator": operator,
            "name": name,
        }

    def code(self) -> Any:  # noqa: ANN401
        return self._said["code"]

    def desc(self) -> Any:  # noqa: ANN401
        return self._said["desc"]

    def node(self) -> Any:  # noqa: ANN401
        return self._said["node"]

    def node_operator(self) -> Any:  # noqa: ANN401
        return self._said["operator"]

    def node_name(self) -> Any:  # noqa: ANN401
        return self._said["name"]

    @staticmethod
    def file() -> str:
        return "ModelImporter.cpp"


def _parser(*errors: _ParserError) -> Any:  # noqa: ANN401
    return SimpleNamespace(num_errors=len(errors), get_error=lambda index: errors[index])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UNSUPPORTED_NODE_ATTR", "TensorRT 10 does not support it with these attributes"),
        ("UNSUPPORTED_NODE_DYNAMIC", "TensorRT 10 does not support it for shapes that are not known ahead"),
        ("INVALID_NODE", "TensorRT 10 takes it for invalid"),
        ("INTERNAL_ERROR", "TensorRT 10 fails on it: INTERNAL_ERROR"),
    ],
)
def test_a_reason_without_words_is_told_by_its_code(code: str, words: str) -> None:
    model = onnx.parser.parse_model(_RELU)
    error = parser_error(
        _parser(_ParserError(code, "false", node=0, operator="Relu")), model, title="TensorRT 10", reason=""
    )
    assert error.rows == [("Relu", "y", words, "replace the operator by others of ONNX, or serve the model in ONNX")]  # type: ignore[attr-defined]


def test_a_node_that_cannot_be_told_is_unnamed() -> None:
    model = onnx.parser.parse_model(_RELU)
    error = parser_error(_parser(_ParserError("INVALID_NODE", "false", node=7)), model, title="TensorRT 10", reason="")
    assert error.rows[0][:2] == ("(unnamed)", "(unnamed)")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("errors", "reason", "words"),
    [
        (
            (_ParserError("MODEL_DESERIALIZE_FAILED", "Assertion failed: ok: Failed to parse it."),),
            "",
            "Failed to parse it.",
        ),
        ((), "the log's own", "the log's own"),
        ((), "", "it gives no reason"),
    ],
)
def test_a_model_that_is_not_read_at_all(errors: tuple[_ParserError, ...], reason: str, words: str) -> None:
    error = parser_error(_parser(*errors), onnx.parser.parse_model(_RELU), title="TensorRT 10", reason=reason)
    assert str(error) == f"TensorRT 10 cannot read the ONNX model: {words}"
    assert error.hint == "serve the model in ONNX, or look at it in a viewer"


@pytest.mark.parametrize(
    ("precision", "unasked"), [(Precision.FP32, "HALF"), (Precision.FP16, "BF16"), (Precision.INT8, "HALF")]
)
def test_a_lower_precision_that_nobody_asked_for_is_refused(precision: Precision, unasked: str) -> None:
    dtype_counts = {
        "FLOAT": {"CONVOLUTION": 2},
        "HALF": {"SOFTMAX": 1},
        "BF16": {"SOFTMAX": 1},
        "INT8": {"QUANTIZE": 2},
    }
    with pytest.raises(
        ConversionError, match=f"{precision} was requested, but layers compute in .*{unasked}.*, which the"
    ):
        check_dtypes(dtype_counts, precision, products={"CONVOLUTION": 2}, given=frozenset(), title="TensorRT 10")
    described = check_dtypes(
        dtype_counts, precision, products={"CONVOLUTION": 2}, given=frozenset({"HALF", "BF16"}), title="TensorRT 10"
    )
    assert described == "the network computes on int8 2 CONVOLUTION, and in HALF 1 SOFTMAX, and in BF16 1 SOFTMAX"


def test_a_network_without_floats_is_said_to_have_none() -> None:
    dtype_counts = {"INT64": {"ELEMENTWISE": 1}}
    described = check_dtypes(dtype_counts, Precision.FP32, products={}, given=frozenset(), title="TensorRT 10")
    assert described == "the network computes no floating point"


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (HardwareCompatibility.NONE, "NVIDIA H100 80GB HBM3 (compute capability 9.0)"),
        (HardwareCompatibility.AMPERE_PLUS, "compute capability 8.0 and above"),
        (HardwareCompatibility.SAME_COMPUTE_CAPABILITY, "compute capability 9.0"),
    ],
)
def test_what_it_runs_on_is_said(level: HardwareCompatibility, words: str) -> None:
    assert targets_in_words(EngineSettings(hardware_compatibility=level), _GPU) == words


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16, Precision.BF16])
def test_an_engine_is_built_and_read_back(bench: Bench, precision: Precision) -> None:
    pytest.importorskip("tensorrt", reason="needs TensorRT: pip install 'paritygate[gpu]'")
    path: Path = bench.onnx_file(_RELU)
    if precision is not Precision.FP32:
        path = Bench(folder=bench.folder / "low").convert("onnx", path, precision=precision).main
    cache = bench.folder / "timings.bin"
    settings = EngineSettings(workspace_mb=256, optimization_level=1, timing_cache=cache)
    converted = bench.convert("onnx", path, to="tensorrt", precision=precision, signature=_SIGNATURE, engine=settings)
    assert converted.conversion.facts["loaded_in"].startswith("tensorrt ")
    assert "not_loaded_here" not in converted.conversion.facts
    assert cache.stat().st_size
