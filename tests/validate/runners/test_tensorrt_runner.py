"""Engines: held against their record, run through Polygraphy, and every answer an array of its own.

Without a GPU, Polygraphy's own runner is driven with an engine that computes on the host, whose memory stands for that
of the device. What only a GPU can show carries the marker `gpu`.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.backends import backend_state
from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import ConversionJob
from paritygate.engine import builder_log, inspecting
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.inspecting import LoadedEngine, check_engine, load_engine
from paritygate.engine.library import NUMPY_DTYPES, EngineLibrary, open_library
from paritygate.engine.record import RECORD_FILE, EngineRecord
from paritygate.engine.settings import EngineSettings, ProfileShapes, profile_of
from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.machine import Gpu, gpu_of_machine, show_cuda_runtime
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature, TensorSpec, rename_signature
from paritygate.validate.runners import tensorrt
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.runners.tensorrt import TensorrtRunner, engine_facts, open_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GPU = Gpu(name="NVIDIA L4", capability="89", driver="580.1", cuda="13.0")
_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),),
    dims={"batch": Dim(min=1, opt=4, max=8)},
)
_NAMES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16", "int64": "INT64", "bool": "BOOL", "int8": "INT8"}


def _record(signature: Signature = _SIGNATURE, **changes: Any) -> EngineRecord:  # noqa: ANN401 - fields of EngineRecord
    record = EngineRecord(
        library="tensorrt-rtx",
        version="1.7.1.116",
        precision=Precision.FP16,
        signature=signature,
        profile=profile_of(signature),
        tf32=False,
        settings=EngineSettings(),
        dtype_counts={"FLOAT": {"CAST": 2}, "HALF": {"CONVOLUTION": 53}},
        built_on=None,
        targets="",
    )
    return replace(record, **changes)


def _member(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name)


class _Engine(Struct, kw_only=True):
    """What the library's engine says of itself, without one."""

    signature: Signature = _SIGNATURE
    dtypes: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    profiles: Mapping[str, ProfileShapes] = field(default_factory=dict)
    layout: str = "LINEAR"
    num_optimization_profiles: int = 1
    profiling_verbosity: Any = None
    inspection: str = ""
    hardware_compatibility_level: Any = field(default_factory=lambda: _member("NONE"))

    @property
    def _specs(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in (*self.signature.inputs, *self.signature.outputs)}

    @property
    def num_io_tensors(self) -> int:
        return len(self._specs)

    def get_tensor_name(self, index: int) -> str:
        return list(self._specs)[index]

    def get_tensor_mode(self, name: str) -> Any:  # noqa: ANN401
        return _member("INPUT" if name in {spec.name for spec in self.signature.inputs} else "OUTPUT")

    def get_tensor_dtype(self, name: str) -> Any:  # noqa: ANN401
        return _member(self.dtypes.get(name, _NAMES[self._specs[name].dtype]))

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        dims = self._specs[name].shape or ()
        return self.shapes.get(name, tuple(dim if isinstance(dim, int) else -1 for dim in dims))

    def get_tensor_format(self, name: str) -> Any:  # noqa: ANN401
        assert name in self._specs
        return _member(self.layout)

    def get_tensor_profile_shape(self, name: str, index: int) -> list[tuple[int, ...]]:
        assert index == 0
        shapes = self.profiles.get(name, profile_of(self.signature)[name])
        return [shapes.min, shapes.opt, shapes.max]

    def create_engine_inspector(self) -> Any:  # noqa: ANN401
        return SimpleNamespace(get_engine_information=lambda _: self.inspection)


_LIBRARY = EngineLibrary(
    name="tensorrt-rtx",
    module=SimpleNamespace(  # type: ignore[arg-type]  # stands for the module
        __version__="1.7.1.116",
        ILogger=object,
        ProfilingVerbosity=SimpleNamespace(DETAILED="detailed"),
        LayerInformationFormat=SimpleNamespace(JSON="json"),
    ),
)


def _plan(folder: Path, record: EngineRecord, content: bytes = b"an engine") -> LoadedModel:
    path = folder / "model.plan"
    path.write_bytes(content)
    record.save(path)
    kind = SourceKind(record.library)
    return LoadedModel(ref=ModelRef(text=path.name, folder=folder, kind=kind), device="cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Have the machine show a GPU, so that what comes after is reached."""
    monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: _GPU)
    monkeypatch.setattr("paritygate.machine.gpu_of_machine", lambda: _GPU)
    return _GPU


class TestEngineAgainstRecord:
    def test_an_engine_that_is_what_its_record_says_is_taken(self) -> None:
        check_engine(_Engine(), _record())

    def test_refuses_other_inputs(self) -> None:
        other = Signature(
            inputs=(TensorSpec(name="z", dtype="float32", shape=("batch", 4)),),
            outputs=_SIGNATURE.outputs,
            dims=_SIGNATURE.dims,
        )
        with pytest.raises(BackendError) as caught:
            check_engine(_Engine(signature=other), _record())

        assert str(caught.value) == ("the engine differs from its engine.json: its inputs are z, expected x")
        assert caught.value.hint == "build the engine again: convert-and-validate build"

    def test_refuses_other_outputs(self) -> None:
        fewer = replace(_SIGNATURE, outputs=())
        with pytest.raises(BackendError, match="its outputs are none, expected y"):
            check_engine(_Engine(signature=fewer), _record())

    @pytest.mark.parametrize("dtype", ["HALF", "FP8"])
    def test_refuses_another_dtype(self, dtype: str) -> None:
        with pytest.raises(BackendError, match=f"'y' is of dtype {dtype}, expected float32"):
            check_engine(_Engine(dtypes={"y": dtype}), _record())

    @pytest.mark.parametrize("shape", [(-1, 5), (-1,), (-1, 4, 1)])
    def test_refuses_another_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(BackendError, match=r"'x' has shape .*, expected x: float32\[batch, 4\]"):
            check_engine(_Engine(shapes={"x": shape}), _record())

    def test_takes_a_size_that_is_known_to_the_engine_alone(self) -> None:
        check_engine(_Engine(shapes={"y": (8, 4)}), _record())

    def test_refuses_a_layout_that_is_not_row_by_row(self) -> None:
        with pytest.raises(BackendError, match="'x' has the layout CHW16, expected LINEAR"):
            check_engine(_Engine(layout="CHW16"), _record())

    def test_refuses_another_profile(self) -> None:
        narrow = {"x": ProfileShapes(min=(1, 4), opt=(1, 4), max=(2, 4))}
        with pytest.raises(BackendError) as caught:
            check_engine(_Engine(profiles=narrow), _record())

        assert str(caught.value).endswith(
            "'x' takes shapes [1, 4] [1, 4] [2, 4] (min, opt, max), expected [1, 4] [4, 4] [8, 4]"
        )

    def test_refuses_several_profiles(self) -> None:
        with pytest.raises(BackendError, match="it has 2 optimization profiles, expected 1"):
            check_engine(_Engine(num_optimization_profiles=2), _record())


class TestOpening:
    def test_refuses_an_engine_without_a_gpu(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: None)

        with pytest.raises(BackendError, match="engines run on NVIDIA GPUs only, but the CUDA driver shows none"):
            open_runner(_plan(tmp_path, _record()))

    @pytest.mark.usefixtures("gpu")
    def test_refuses_another_device_than_the_gpu(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError, match="NVIDIA GPUs only, but the requested device is 'cpu'"):
            open_runner(replace(_plan(tmp_path, _record()), device="cpu"))

    @pytest.mark.usefixtures("gpu")
    def test_refuses_an_engine_of_the_other_library(self, tmp_path: Path) -> None:
        model = _plan(tmp_path, _record())
        other = replace(model, ref=replace(model.ref, kind=SourceKind.TENSORRT))

        with pytest.raises(InputFileError, match=r"built by 'tensorrt-rtx' .*cannot run as 'tensorrt'"):
            open_model(other)

    @pytest.mark.usefixtures("gpu")
    def test_refuses_a_record_whose_shapes_are_not_those_of_its_inputs(self, tmp_path: Path) -> None:
        with pytest.raises(InputFileError, match="corrupt: shapes of nothing, but inputs x"):
            open_model(_plan(tmp_path, _record(profile={})))

    @pytest.mark.usefixtures("gpu")
    def test_refuses_a_record_that_does_not_say_which_gpu(self, tmp_path: Path) -> None:
        with pytest.raises(InputFileError, match="name or capability of the GPU is missing"):
            open_model(_plan(tmp_path, _record(built_on={"name": "NVIDIA L4"})))

    @pytest.mark.usefixtures("gpu")
    def test_refuses_to_rename_what_is_not_in_the_engine(self, tmp_path: Path) -> None:
        plan = _plan(tmp_path, _record())
        with pytest.raises(UsageError, match="'z' cannot be renamed 'w'"):
            open_model(replace(plan, ref=replace(plan.ref, rename={"z": "w"})))

    @pytest.mark.usefixtures("gpu")
    @pytest.mark.rtx
    def test_refuses_an_engine_of_another_version(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError, match=r"built by TensorRT-RTX 0\.9\.0 .*installed"):
            open_model(_plan(tmp_path, _record(version="0.9.0")))

    @pytest.mark.usefixtures("gpu")
    @pytest.mark.rtx
    def test_refuses_an_engine_for_other_gpus(self, tmp_path: Path) -> None:
        version = open_library("tensorrt-rtx").version
        record = _record(version=version, settings=EngineSettings(compute_capabilities=("12.0",)))

        with pytest.raises(BackendError, match=r"for compute capability 12\.0; the GPU here, NVIDIA L4, has 8\.9"):
            open_model(_plan(tmp_path, record))

    @pytest.mark.rtx
    def test_an_engine_that_does_not_load_says_what_the_library_logged(self, tmp_path: Path) -> None:
        path = _plan(tmp_path, _record(), b"no engine at all" * 64).ref.path

        with pytest.raises(BackendError) as caught:
            load_engine(path, open_library("tensorrt-rtx"))

        assert str(caught.value).startswith("TensorRT-RTX ")
        assert f"could not load the engine {path}: " in str(caught.value)
        assert "it is a TRT engine file" in str(caught.value)
        assert caught.value.hint.startswith("build the engine again: convert-and-validate build")

    @pytest.mark.rtx
    def test_refuses_an_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputFileError, match=r"model\.plan is empty, so it is not an engine"):
            load_engine(_plan(tmp_path, _record(), b"").ref.path, open_library("tensorrt-rtx"))


class TestCudaRuntime:
    @pytest.fixture
    def installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return the folder of a CUDA 13 runtime as its package installs it."""
        folder = tmp_path / "nvidia" / "cu13" / "lib"
        folder.mkdir(parents=True)
        (folder / "libcudart.so.13").touch()
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("LD_LIBRARY_PATH", "/of/the/user")
        return folder

    def test_polygraphy_is_shown_the_runtime_of_the_driver_s_version(self, installed: Path) -> None:
        show_cuda_runtime(_GPU)
        show_cuda_runtime(_GPU)

        assert os.environ["LD_LIBRARY_PATH"].split(os.pathsep) == ["/of/the/user", str(installed)]

    @pytest.mark.rtx
    def test_polygraphy_looks_there(self, installed: Path) -> None:
        open_library("tensorrt-rtx")
        from polygraphy.cuda import cuda

        assert str(installed) not in cuda._find_cuda_lib_dirs()
        show_cuda_runtime(_GPU)

        assert str(installed) in cuda._find_cuda_lib_dirs()

    @pytest.mark.usefixtures("installed")
    def test_a_runtime_that_the_driver_does_not_serve_is_not_shown(self) -> None:
        show_cuda_runtime(replace(_GPU, cuda="12.4"))

        assert os.environ["LD_LIBRARY_PATH"] == "/of/the/user"


@pytest.mark.rtx
def test_an_engine_that_cannot_be_made_ready_says_what_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    library = open_library("tensorrt-rtx")
    from polygraphy.backend.trt import TrtRunner

    def fail(_: object) -> None:
        msg = "libcudart.so: cannot open shared object file"
        raise OSError(msg)

    monkeypatch.setattr(TrtRunner, "activate", fail)
    loaded = LoadedEngine(library=library, cuda_engine=_Engine(), runtime=None)

    with pytest.raises(BackendError, match=r"could not make the engine ready to run: OSError: libcudart\.so") as caught:
        tensorrt._activate(loaded)

    assert "nvidia-cuda-runtime" in caught.value.hint


class TestFacts:
    def _facts(self, engine: _Engine, record: EngineRecord, *notes: str) -> Any:  # noqa: ANN401
        loaded = LoadedEngine(library=_LIBRARY, cuda_engine=engine, runtime=None)
        return engine_facts(loaded, record, _GPU, device="cuda:sm89", notes=notes)

    def test_says_what_ran_where(self) -> None:
        facts = self._facts(_Engine(), _record(settings=EngineSettings(optimization_level=4)), "a note")

        assert (facts.runtime, facts.version, facts.device) == ("tensorrt-rtx", "1.7.1.116", "cuda:sm89")
        assert facts.precision_found is Precision.FP16
        assert facts.tf32 is False
        assert facts.optimisation == "builder optimization level 4, hardware compatibility none"
        assert facts.notes == (
            "it ran on NVIDIA L4, driver 580.1, CUDA 13.0",
            "a note",
            "it takes x: [1, 4] to [8, 4], tuned for [4, 4]",
            "outputs of layers in its network, by dtype: HALF 53, FLOAT 2",
        )

    def test_says_that_the_level_is_the_library_s_and_tf32_as_recorded(self) -> None:
        engine = _Engine(hardware_compatibility_level=_member("AMPERE_PLUS"))
        facts = self._facts(engine, _record(tf32=True))

        assert facts.tf32 is True
        assert facts.optimisation == "builder optimization level of the library, hardware compatibility ampere_plus"

    def test_the_engine_s_own_word_counts_where_it_was_built_to_give_it(self) -> None:
        said = {"Layers": [{"LayerType": "gemm", "Outputs": [{"Format/Datatype": "Row major linear FP32"}]}]}
        engine = _Engine(profiling_verbosity="detailed", inspection=json.dumps(said))

        facts = self._facts(engine, _record())

        assert facts.precision_found is Precision.FP32
        assert facts.notes[-1] == "outputs of layers in the engine, by dtype: FLOAT 1"

    def test_an_engine_that_names_its_layers_only_is_not_asked(self) -> None:
        said = {"Layers": [{"LayerType": "gemm", "Outputs": [{"Format/Datatype": "Row major linear FP32"}]}]}

        assert self._facts(_Engine(inspection=json.dumps(said)), _record()).precision_found is Precision.FP16

    def test_a_network_without_census_has_no_precision(self) -> None:
        assert self._facts(_Engine(), _record(dtype_counts={})).precision_found is None


class _Host:
    """CUDA's memory and streams, on the host."""

    def __init__(self) -> None:
        self.buffers: dict[int, Any] = {}

    def malloc(self, nbytes: int) -> int:
        buffer = ctypes.create_string_buffer(max(nbytes, 1))
        self.buffers[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def free(self, ptr: int) -> None:
        # As cudaFree does nothing with nothing.
        if ptr:
            del self.buffers[ptr]

    def memcpy(self, dst: int, src: int, nbytes: int, kind: Any, stream_ptr: Any = None) -> None:  # noqa: ANN401
        del kind, stream_ptr
        ctypes.memmove(dst, src, nbytes)

    def create_stream(self) -> int:
        return 1

    def stream_synchronize(self, ptr: int) -> None:
        del ptr

    def destroy_stream(self, ptr: int) -> None:
        del ptr


class _Context:
    """An execution context that computes `y = answer(x)` on the host."""

    active_optimization_profile = 0

    def __init__(self, answer: Callable[[NDArray[Any]], NDArray[Any]], dtype: Any) -> None:  # noqa: ANN401
        self.answer = answer
        self.dtype = np.dtype(dtype)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.allocator: Any = None

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shapes.get(name, ())

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return True

    def get_tensor_address(self, name: str) -> int:
        return self.addresses.get(name, 0)

    def set_tensor_address(self, name: str, ptr: int) -> bool:
        self.addresses[name] = ptr
        return True

    def set_output_allocator(self, name: str, allocator: Any) -> bool:  # noqa: ANN401
        assert name == "y"
        self.allocator = allocator
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == 1
        shape = self.shapes["x"]
        nbytes = int(np.prod(shape)) * self.dtype.itemsize
        given = np.frombuffer(ctypes.string_at(self.addresses["x"], nbytes), self.dtype).reshape(shape)
        found = np.ascontiguousarray(self.answer(given))
        ctypes.memmove(self.allocator.reallocate_output("y", 0, found.nbytes, 1), found.ctypes.data, found.nbytes)
        self.allocator.notify_shape("y", found.shape)
        return True


class _Bench:
    """Opens runners on Polygraphy's own runner, with the host's memory for that of a GPU."""

    def __init__(self, host: _Host) -> None:
        self.host = host
        self.opened: list[Any] = []

    def open(
        self,
        answer: Callable[[NDArray[Any]], NDArray[Any]],
        signature: Signature = _SIGNATURE,
        *,
        rename: Mapping[str, str] | None = None,
    ) -> TensorrtRunner:
        import collections

        from polygraphy import cuda
        from polygraphy.backend.trt import TrtRunner
        from polygraphy.backend.trt import runner as polygraphy_runner

        library = open_library("tensorrt-rtx")
        trt = library.module
        engine = _Engine(signature=signature)
        spec = signature.inputs[0]
        dtype = ml_dtypes.bfloat16 if spec.dtype == "bfloat16" else spec.dtype

        class OnHost(TrtRunner):  # type: ignore[misc]  # Polygraphy has no types
            def activate_impl(self) -> None:
                # What TrtRunner does, but for an engine that only the library can make.
                self.engine = SimpleNamespace(
                    num_io_tensors=2,
                    get_tensor_name=engine.get_tensor_name,
                    get_tensor_mode=lambda name: getattr(trt.TensorIOMode, engine.get_tensor_mode(name).name),
                    get_tensor_dtype=lambda name: getattr(trt.DataType, engine.get_tensor_dtype(name).name),
                    get_tensor_format=lambda *_: trt.TensorFormat.LINEAR,
                    is_shape_inference_io=lambda _: False,
                )
                self.context = _Context(answer, dtype)
                self.device_input_buffers: dict[str, Any] = collections.OrderedDict()
                self.host_output_buffers: dict[str, Any] = collections.OrderedDict()
                self.stream = cuda.Stream()
                self.context_memory_buffer = None
                self.output_allocator = polygraphy_runner._make_output_allocator()
                self.input_tensor_addresses: dict[str, Any] = collections.OrderedDict()
                self._active_debug_listener = None

        runner = OnHost(None)
        runner.activate()
        self.opened.append(runner)
        record = _record(signature)
        loaded = LoadedEngine(library=library, cuda_engine=engine, runtime=None)
        return TensorrtRunner(
            engine=loaded,
            runner=runner,
            record=record,
            served=rename_signature(signature, rename or {}),
            facts=engine_facts(loaded, record, _GPU, device="cuda:sm89", notes=()),
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Bench]:
    open_library("tensorrt-rtx")
    from polygraphy.cuda import cuda

    host = _Host()
    monkeypatch.setattr(cuda, "wrapper", lambda: host)
    monkeypatch.setattr("polygraphy.cuda.wrapper", lambda: host)
    found = _Bench(host)
    yield found
    # While the host still stands for the device: what a failed test leaves open is closed here.
    for runner in found.opened:
        if runner.is_active:
            runner.deactivate()


def _rows(rows: int, *, seed: int = 0, dtype: Any = np.float32) -> NDArray[Any]:  # noqa: ANN401
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(dtype)


def _of_dtype(dtype: str) -> Signature:
    return replace(
        _SIGNATURE,
        inputs=(replace(_SIGNATURE.inputs[0], dtype=dtype),),
        outputs=(replace(_SIGNATURE.outputs[0], dtype=dtype),),
    )


@pytest.mark.rtx
class TestRunning:
    def test_returns_the_answers_for_every_number_of_rows(self, bench: _Bench) -> None:
        runner = bench.open(lambda x: x * 2)

        for rows in (4, 8, 1, 8, 3):
            x = _rows(rows, seed=rows)
            found = runner.run({"x": x})
            assert list(found) == ["y"]
            assert found["y"].dtype == np.float32
            np.testing.assert_array_equal(found["y"], x * 2)

    def test_the_arrays_belong_to_the_caller(self, bench: _Bench) -> None:
        runner = bench.open(lambda x: x + 1)
        x = _rows(4)

        first = runner.run({"x": x})["y"]
        kept = first.copy()
        second = runner.run({"x": x * 3})["y"]
        second[:] = 0
        runner.run({"x": x * 5})

        np.testing.assert_array_equal(first, kept)
        assert first.flags.owndata or first.base is not None
        assert not np.shares_memory(first, second)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int8", "bool"])
    def test_keeps_every_dtype_to_the_bit(self, bench: _Bench, dtype: str) -> None:
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        x = (_rows(4) * 8).astype(kind)

        y = bench.open(lambda given: given.copy(), _of_dtype(dtype)).run({"x": x})["y"]

        assert y.dtype == np.dtype(kind)
        np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))

    @pytest.mark.parametrize("shape_of", [lambda x: x.T.copy().T, lambda x: np.repeat(x, 2, axis=1)[:, ::2]])
    def test_takes_arrays_that_are_not_row_by_row_in_memory(
        self, bench: _Bench, shape_of: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> None:
        x = _rows(4)

        np.testing.assert_array_equal(bench.open(lambda given: given).run({"x": shape_of(x)})["y"], x)

    def test_takes_numbers_in_the_other_byte_order(self, bench: _Bench) -> None:
        x = _rows(2)

        np.testing.assert_array_equal(bench.open(lambda given: given).run({"x": x.astype(">f4")})["y"], x)

    def test_serves_under_other_names(self, bench: _Bench) -> None:
        runner = bench.open(lambda x: x - 1, rename={"x": "pixels", "y": "logits"})

        assert [spec.name for spec in runner.signature.inputs] == ["pixels"]
        np.testing.assert_array_equal(runner.run({"pixels": np.ones((2, 4), np.float32)})["logits"], np.zeros((2, 4)))
        with pytest.raises(BackendError, match=r"input 'pixels' has shape \[9, 4\]"):
            runner.run({"pixels": np.zeros((9, 4), np.float32)})

    def test_refuses_a_shape_outside_the_profile_before_the_engine_sees_it(self, bench: _Bench) -> None:
        seen: list[int] = []

        def answer(x: NDArray[Any]) -> NDArray[Any]:
            seen.append(len(x))
            return x

        runner = bench.open(answer)

        with pytest.raises(BackendError, match=r"'x' has shape \[9, 4\], .* from \[1, 4\] to \[8, 4\]") as caught:
            runner.run({"x": _rows(9)})

        assert "{batch: {min: 1, opt: 4, max: 9}}" in caught.value.hint
        assert not seen

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"x": np.zeros((2, 4))}, r"the model expects x: float32\[batch, 4\] \(got x: float64\[2, 4\]"),
            ({"x": np.zeros((2, 5), np.float32)}, r"\(got x: float32\[2, 5\]"),
            ({"z": np.zeros((2, 4), np.float32)}, r"the model expects the inputs x \(got z"),
        ],
    )
    def test_refuses_inputs_that_are_not_the_engine_s(
        self, bench: _Bench, inputs: dict[str, NDArray[Any]], message: str
    ) -> None:
        with pytest.raises(BackendError, match=message):
            bench.open(lambda x: x).run(inputs)

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (lambda x: x[:, 0].copy(), r"16 bytes of shape \[4\] for the output y: float32\[batch, 4\]"),
            (lambda x: x[None].copy(), r"64 bytes of shape \[1, 4, 4\] for the output y"),
        ],
    )
    def test_refuses_an_answer_of_another_rank(
        self, bench: _Bench, answer: Callable[[NDArray[Any]], NDArray[Any]], message: str
    ) -> None:
        with pytest.raises(BackendError, match=f"the engine returned {message}"):
            bench.open(answer).run({"x": _rows(4)})

    def test_an_answer_may_be_empty(self, bench: _Bench) -> None:
        assert bench.open(lambda x: x[:0].copy()).run({"x": _rows(4)})["y"].shape == (0, 4)

    def test_a_failing_call_says_what_the_library_logged(self, bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        runner = bench.open(lambda x: x)

        def fail(*_: object) -> bool:
            # The logger of the process, which is told where to by who calls.
            builder_log._logger_of(runner._engine.library.module).log(_member("ERROR"), "out of memory")
            return False

        monkeypatch.setattr(_Context, "execute_async_v3", fail)

        with pytest.raises(BackendError, match=r"TensorRT-RTX \S+ failed on x: float32\[4, 4\]: out of memory"):
            runner.run({"x": _rows(4)})

    def test_a_failing_call_that_logs_nothing_says_what_was_raised(
        self, bench: _Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner = bench.open(lambda x: x)
        monkeypatch.setattr(_Context, "execute_async_v3", lambda *_: False)

        with pytest.raises(BackendError, match=r"failed on x: .*: PolygraphyException: `execute_async_v3\(\)` failed"):
            runner.run({"x": _rows(4)})

    def test_the_memory_of_the_device_is_given_back_with_the_runner(self, bench: _Bench) -> None:
        runner = bench.open(lambda x: x)
        runner.run({"x": _rows(4)})
        assert bench.host.buffers
        polygraphy_runner = runner._runner
        del runner

        assert polygraphy_runner.is_active is False


@pytest.mark.rtx
def test_every_member_of_an_engine_that_is_used_exists() -> None:
    trt = open_library("tensorrt-rtx").module
    trees = [ast.parse(Path(str(found.__file__)).read_text("utf-8")) for found in (tensorrt, inspecting, inspecting)]
    engines = {"engine", "cuda_engine"}
    used = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and getattr(node.value, "attr", getattr(node.value, "id", None)) in engines
        and node.attr not in {"library", "cuda_engine"}
    }

    assert {"num_io_tensors", "get_tensor_profile_shape", "create_engine_inspector"} <= used
    assert {name for name in used if not hasattr(trt.ICudaEngine, name)} == set()
    assert hasattr(trt.EngineInspector, "get_engine_information")
    assert hasattr(trt.LayerInformationFormat, "JSON")
    assert hasattr(trt.ProfilingVerbosity, "DETAILED")
    assert set(NUMPY_DTYPES) <= set(trt.DataType.__members__)
    assert {trt.TensorIOMode.INPUT.name, trt.TensorIOMode.OUTPUT.name} == {"INPUT", "OUTPUT"}
    assert trt.TensorFormat.LINEAR.name == "LINEAR"


@pytest.mark.rtx
def test_polygraphy_takes_the_arguments_that_are_given() -> None:
    open_library("tensorrt-rtx")
    from polygraphy.backend.trt import EngineFromBytes, TrtRunner

    assert {"serialized_engine", "runtime"} <= set(inspect.signature(EngineFromBytes.__init__).parameters)
    assert "return_raw_buffers" in inspect.signature(inspect.unwrap(TrtRunner.infer_impl)).parameters
    assert "check_inputs" in inspect.signature(TrtRunner.infer).parameters


def _onnx(path: Path) -> Path:
    import onnx
    from onnx import helper

    weights = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def _convert(folder: Path, library: str) -> LoadedModel:
    """Return the engine built from a tiny ONNX model, which lies in the folder."""
    source = ModelRef(text=_onnx(folder / "tiny.onnx").name, folder=folder, kind=SourceKind.ONNX)
    job = ConversionJob(source=source, folder=folder / "engine", signature=_SIGNATURE)
    conversion = convert_and_check(job, library)
    return LoadedModel(ref=parse_source(conversion.main, folder / "engine"), device="cuda")


@pytest.mark.rtx
def test_an_engine_that_was_built_here_gets_as_far_as_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gpu_of_machine() is not None:
        pytest.skip("this machine has a GPU")
    model = _convert(tmp_path, "tensorrt-rtx")
    assert model.ref.kind is SourceKind.TENSORRT_RTX
    with pytest.raises(BackendError, match="engines run on NVIDIA GPUs only"):
        open_runner(model)
    monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: _GPU)

    with pytest.raises(BackendError, match=r"could not load the engine .*CUDA driver version is insufficient"):
        open_runner(model)


@pytest.fixture(scope="module", params=["tensorrt", "tensorrt-rtx"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LoadedModel]:
    """Return a tiny ONNX model and the engine built from it."""
    library = request.param
    state = backend_state(library)
    if not state.is_available:
        pytest.skip(f"{state.reason}: {state.install}")
    gpu = gpu_of_machine()
    assert gpu is not None
    offered = capabilities_of(open_library(library)).compute_capabilities
    if offered and f"{gpu.capability[:-1]}.{gpu.capability[-1]}" not in offered:
        pytest.skip(f"TensorRT-RTX makes no engines for compute capability {gpu.capability}: {gpu.name}")
    folder = tmp_path_factory.mktemp(library)
    return folder / "tiny.onnx", _convert(folder, library)


@pytest.mark.gpu
class TestOnGpu:
    def test_answers_like_its_onnx_for_every_number_of_rows(self, built: tuple[Path, LoadedModel]) -> None:
        path, model = built
        expected = open_runner(LoadedModel(ref=ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX)))
        runner = open_runner(model)

        kept = []
        for rows in (4, 1, 8, 3):
            x = _rows(rows, seed=rows)
            kept.append((x, runner.run({"x": x})["y"]))
        for x, y in kept:
            np.testing.assert_allclose(np.float32(y), np.float32(expected.run({"x": x})["y"]), atol=1e-5)

    def test_says_what_ran(self, built: tuple[Path, LoadedModel]) -> None:
        facts = open_runner(built[1]).facts

        assert facts.runtime == str(built[1].ref.kind)
        assert facts.device.startswith("cuda:sm")
        assert facts.precision_found is Precision.FP32
        assert facts.tf32 is False

    def test_refuses_a_shape_outside_the_profile(self, built: tuple[Path, LoadedModel]) -> None:
        with pytest.raises(BackendError, match=r"'x' has shape \[9, 4\]"):
            open_runner(built[1]).run({"x": _rows(9)})

    def test_a_damaged_engine_is_refused_with_what_the_library_said(
        self, built: tuple[Path, LoadedModel], tmp_path: Path
    ) -> None:
        folder = built[1].ref.path.parent
        (tmp_path / RECORD_FILE).write_bytes((folder / RECORD_FILE).read_bytes())
        (tmp_path / "model.plan").write_bytes(built[1].ref.path.read_bytes()[:256])

        with pytest.raises(BackendError, match="could not load the engine"):
            open_runner(replace(built[1], ref=replace(built[1].ref, text="model.plan", folder=tmp_path)))

    def test_several_engines_run_beside_each_other(self, built: tuple[Path, LoadedModel]) -> None:
        one, other = open_runner(built[1]), open_runner(built[1])
        x = _rows(4)

        np.testing.assert_array_equal(one.run({"x": x})["y"], other.run({"x": x})["y"])
        del other
        np.testing.assert_array_equal(one.run({"x": x})["y"], one.run({"x": x})["y"])
