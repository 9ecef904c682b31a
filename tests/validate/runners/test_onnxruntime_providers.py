"""The execution providers of ONNX Runtime: options given and read back, libraries that are missing, TF32."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from paritygate.backends import backend_state
from paritygate.errors import BackendError, UsageError
from paritygate.machine import gpu_of_machine
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.runners.onnxruntime import OnnxRuntimeRunner, open_model
from paritygate.validate.runners.onnxruntime_placement import GraphNode, PlacedNode
from paritygate.validate.runners.onnxruntime_providers import (
    CPU,
    CUDA,
    TENSORRT,
    ProviderRequest,
    bar_tf32,
    check_options,
    check_placement,
    check_provider,
    load_libraries,
    lower_dtypes,
    prepare_process,
    provider_request,
    say_provider,
    tf32_of,
)

_FLOAT = TensorProto.FLOAT
_IN_FLOAT32 = frozenset[str]()
_FIXED = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(2, 3)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(2, 3)),),
)
_OPEN = Signature(
    inputs=(
        TensorSpec(name="x", dtype="float32", shape=("batch", 3)),
        TensorSpec(name="fixed", dtype="float32", shape=(3,)),
        TensorSpec(name="scalar", dtype="float32", shape=()),
    ),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 3)),),
)


@pytest.fixture
def fresh_tf32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let TF32 be barred anew, and leave the environment as it was."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "")
    bar_tf32.cache_clear()
    yield
    bar_tf32.cache_clear()


def _save(path: Path, nodes: list[onnx.NodeProto], *, element: int = _FLOAT) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", element, ["batch", 3, 3])],
        [helper.make_tensor_value_info("y", element, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def _relu_and_det(path: Path) -> Path:
    nodes = [helper.make_node("Relu", ["x"], ["up"], name="up"), helper.make_node("Det", ["up"], ["y"], name="volume")]
    return _save(path, nodes)


def _open(path: Path, provider: str | None = None, device: str = "cuda") -> OnnxRuntimeRunner:
    source = ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX)
    return open_model(LoadedModel(ref=replace(source, provider=provider), device=device))


class _Session:
    """A session on the CPU that says of itself what it is told to, in place of one on a GPU."""

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - onnxruntime ships no types
        *,
        providers: list[str],
        options: Mapping[str, Mapping[str, str]],
        moved: tuple[str, ...] = (),
    ) -> None:
        self._session, self._providers, self._options, self._moved = session, providers, options, moved

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as of the session
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        return self._providers

    def get_provider_options(self) -> Mapping[str, Mapping[str, str]]:
        return self._options

    def get_provider_graph_assignment_info(self) -> list[SimpleNamespace]:
        found = []
        for part in self._session.get_provider_graph_assignment_info():
            nodes = list(part.get_nodes())
            is_moved = all(node.op_type in self._moved for node in nodes)
            name = self._providers[0] if is_moved else part.ep_name
            found.append(SimpleNamespace(ep_name=name, get_nodes=lambda nodes=nodes: nodes))
        return found


def _pretend(monkeypatch: pytest.MonkeyPatch, *, moved: tuple[str, ...] | None, **lies: str) -> dict[str, Any]:
    """Let sessions run on the CPU, and tell of a GPU that the operators in `moved` run on; None: tell of the CPU."""
    given: dict[str, Any] = {}
    real = onnxruntime.InferenceSession

    def make(path: str, *, sess_options: Any, providers: Any, **options: Any) -> Any:  # noqa: ANN401 - no types
        given.update(providers=providers, options=options)
        session = real(path, sess_options=sess_options, providers=[CPU])
        if moved is None:
            return session
        told = {name: {**asked, **lies} for name, asked in providers}
        return _Session(session, providers=[*(name for name, _ in providers), CPU], options=told, moved=moved)

    monkeypatch.setattr("paritygate.validate.runners.onnxruntime.device_name", lambda _: "cuda:sm90")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    monkeypatch.setattr("paritygate.validate.runners.onnxruntime.load_libraries", lambda *_: None)
    return given


def _request(provider: str, *, dtypes: frozenset[str] = _IN_FLOAT32, **options: Any) -> ProviderRequest:  # noqa: ANN401
    given = {"own": _FIXED, "served": None, **options}
    return provider_request(provider, "cuda", dtypes=dtypes, **given)


# The provider that is asked for


def test_the_device_says_the_provider_where_none_is_named() -> None:
    for device, name in (("cpu", CPU), ("cuda", CUDA)):
        request = provider_request(None, device, own=_FIXED, served=None, dtypes=_IN_FLOAT32)
        assert request.name == request.providers[0][0] == name
    assert [name for name, _ in _request("tensorrt").providers] == [TENSORRT, CUDA]


def test_a_provider_of_another_device_is_refused() -> None:
    with pytest.raises(UsageError, match="'tensorrt' runs on device cuda, but the requested device is 'cpu'") as raised:
        check_provider("tensorrt", "cpu")
    assert raised.value.hint == "use --device cuda, or leave --provider out"
    with pytest.raises(UsageError, match="'cpu' runs on device cpu, but the requested device is 'cuda'"):
        check_provider("cpu", "cuda")
    with pytest.raises(UsageError, match=r"provider 'dml' is not known \(allowed: cpu, cuda, tensorrt\)"):
        check_provider("dml", "cpu")


def test_the_provider_that_ran_is_in_the_facts(tmp_path: Path) -> None:
    facts = _open(_relu_and_det(tmp_path / "m.onnx"), device="cpu").facts
    assert (facts.provider, facts.tf32, facts.provider_warnings) == (CPU, None, ())


# A silent fall back to the CPU


@pytest.mark.parametrize(("provider", "name"), [("cuda", CUDA), ("tensorrt", TENSORRT)])
@pytest.mark.usefixtures("fresh_tf32")
def test_a_session_that_fell_back_to_the_cpu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, name: str
) -> None:
    given = _pretend(monkeypatch, moved=None)
    words = f"onnxruntime runs .*m.onnx with CPUExecutionProvider, but {name} was requested"
    with pytest.raises(BackendError, match=words) as raised:
        _open(_relu_and_det(tmp_path / "m.onnx"), provider)
    assert "install the CUDA, cuDNN and TensorRT libraries" in raised.value.hint
    # ONNX Runtime's own way of going on with the CPU is off.
    assert given["options"] == {"enable_fallback": 0}


@pytest.mark.skipif(gpu_of_machine() is not None, reason="says what a build for GPUs does where there is none")
@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ("cuda", f"runs .*m.onnx with CPUExecutionProvider, but {CUDA} was requested"),
        ("tensorrt", f"could not start {TENSORRT}: its libraries are not found"),
    ],
)
@pytest.mark.usefixtures("fresh_tf32")
def test_a_build_for_gpus_without_a_gpu_does_not_pass_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, words: str
) -> None:
    if TENSORRT not in onnxruntime.get_available_providers():
        pytest.skip("this build of onnxruntime is for CPUs")
    monkeypatch.setattr("paritygate.validate.runners.onnxruntime.device_name", lambda _: "cuda:sm90")
    with pytest.raises(BackendError, match=words):
        _open(_relu_and_det(tmp_path / "m.onnx"), provider)


def test_libraries_that_are_missing_are_said_without_blaming_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, moved=None)

    def fail(*_: object, **__: object) -> None:
        msg = "/src/state.cc:729 void Register(Options&) Please install TensorRT libraries as mentioned in the page"
        raise RuntimeError(msg)

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with pytest.raises(BackendError, match=f"could not start {CUDA}: its libraries are not found") as raised:
        _open(_relu_and_det(tmp_path / "m.onnx"))
    assert "in the log" in raised.value.hint


def test_nodes_that_compute_floats_on_the_cpu_are_an_error_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, moved=("Relu",))
    words = rf"{CUDA} was requested, but onnxruntime \S+ computes 1 of 2 nodes on the CPU: 1 Det \(volume\)"
    with pytest.raises(BackendError, match=words) as raised:
        _open(_relu_and_det(tmp_path / "m.onnx"))
    assert "export the model without them" in raised.value.hint


def test_a_session_that_computes_all_on_the_provider_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, moved=("Relu", "Det"))
    facts = _open(_relu_and_det(tmp_path / "m.onnx")).facts
    assert (facts.provider, facts.device, facts.tf32, facts.provider_warnings) == (CUDA, "cuda:sm90", False, ())
    assert f"{CUDA} runs 2 of 2 nodes" in facts.notes
    assert any("cudnn_conv_algo_search=HEURISTIC" in note for note in facts.notes)


@pytest.mark.usefixtures("fresh_tf32")
def test_nothing_on_tensorrt_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, moved=())
    nodes = [helper.make_node("Shape", ["x"], ["y"])]
    path = _save(tmp_path / "m.onnx", nodes)
    model = onnx.load(str(path))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(model, str(path))
    with pytest.raises(BackendError, match=f"{TENSORRT} was requested, but runs none of 1 node") as raised:
        _open(path, "tensorrt")
    assert raised.value.hint == "use --provider cuda, or another model"


def test_a_version_that_does_not_tell_where_nodes_run_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, moved=("Relu", "Det"))
    monkeypatch.setattr("paritygate.validate.runners.onnxruntime.placed_nodes", lambda _: None)
    (warning,) = _open(_relu_and_det(tmp_path / "m.onnx")).facts.provider_warnings
    assert f"does not tell where nodes run: some may run on the CPU and not on {CUDA}" in warning


def _as_long_as_its_transpose(path: Path) -> Path:
    """Save a model that asks the shape of a transposed input: ONNX Runtime makes a `Gather` of a shape of that."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], name="turn", perm=[2, 1, 0]),
        helper.make_node("Shape", ["turned"], ["shape"], name="shape"),
        helper.make_node("Expand", ["x", "shape"], ["wide"], name="widen"),
        helper.make_node("Sin", ["wide"], ["y"], name="wave"),
    ]
    return _save(path, nodes)


def test_shapes_that_onnxruntime_takes_from_elsewhere_are_no_floats_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, moved=("Transpose", "Expand", "Sin"))

    facts = _open(_as_long_as_its_transpose(tmp_path / "m.onnx")).facts

    assert any(note.endswith("on the CPU, as ONNX Runtime does") for note in facts.notes), facts.notes


def test_a_node_that_neither_graph_has_counts_as_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, moved=("Relu", "Det"))
    placed = (
        PlacedNode(provider=CUDA, operator="Relu", name="up"),
        PlacedNode(provider=CPU, operator="Gather", name="Gather_token_1"),
    )
    monkeypatch.setattr("paritygate.validate.runners.onnxruntime.placed_nodes", lambda _: placed)

    with pytest.raises(BackendError, match=r"computes 1 of 2 nodes on the CPU: 1 Gather \(Gather_token_1\)"):
        _open(_relu_and_det(tmp_path / "m.onnx"))


def _placed(**operators: str) -> list[PlacedNode]:
    return [PlacedNode(provider=provider, operator=operator, name="") for operator, provider in operators.items()]


def test_what_tensorrt_leaves_to_cuda_is_a_warning_with_its_operators() -> None:
    placed = _placed(Conv=TENSORRT, NonMaxSuppression=CUDA, Shape=CPU)
    notes, warnings = check_placement(_request("tensorrt"), placed, [], version="1.31.1")
    assert warnings == (f"1 of 3 nodes run on {CUDA} and not on {TENSORRT}: 1 NonMaxSuppression",)
    assert notes == (
        f"{TENSORRT} runs 1 of 3 nodes",
        "1 node that computes shapes or indices runs on the CPU, as ONNX Runtime does",
    )


def test_nodes_that_cannot_be_told_apart_are_a_warning() -> None:
    nodes = [GraphNode(operator="Mul", name="", computes_floats=floats) for floats in (True, False)]
    _, warnings = check_placement(_request("cuda"), _placed(Conv=CUDA, Mul=CPU), nodes, version="1.31.1")
    assert warnings == ("1 node without a name runs on the CPU, and whether it computes floats cannot be told: 1 Mul",)


# Options


def test_cuda_is_asked_for_without_tf32_and_with_algorithms_chosen_by_rule() -> None:
    ((_, options),) = _request("cuda").providers
    assert options == {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}


def test_tensorrt_is_asked_for_in_float32_and_without_what_earlier_builds_left() -> None:
    options = _request("tensorrt").providers[0][1]
    assert options == {
        "trt_fp16_enable": "0",
        "trt_int8_enable": "0",
        "trt_engine_cache_enable": "0",
        "trt_timing_cache_enable": "0",
    }


@pytest.mark.parametrize(
    ("dtype", "option"),
    [("float16", "trt_fp16_enable"), ("bfloat16", "trt_bf16_enable"), ("int8", "trt_int8_enable")],
)
def test_tensorrt_gets_the_precision_that_the_file_holds_and_says_what_that_means(dtype: str, option: str) -> None:
    request = _request("tensorrt", dtypes=frozenset({dtype}))
    assert request.providers[0][1][option] == "1"
    (warning,) = request.warnings
    assert warning.startswith(f"the file holds {dtype}, so TensorRT may compute in it, where the file says float32 too")


def test_the_declared_sizes_become_the_profile_of_the_engine() -> None:
    served = Signature(inputs=(), outputs=(), dims={"batch": Dim(min=1, opt=8, max=64)})
    request = _request("tensorrt", own=_OPEN, served=served)
    options = request.providers[0][1]
    assert {name: value for name, value in options.items() if "profile" in name} == {
        "trt_profile_min_shapes": "x:1x3",
        "trt_profile_opt_shapes": "x:8x3",
        "trt_profile_max_shapes": "x:64x3",
    }
    assert request.warnings == ()


@pytest.mark.parametrize("served", [None, Signature(inputs=(), outputs=())], ids=["no signature", "no sizes"])
def test_dims_without_sizes_are_a_warning_with_tensorrt(served: Signature | None) -> None:
    (warning,) = _request("tensorrt", own=_OPEN, served=served).warnings
    assert "TensorRT builds another engine when a shape comes" in warning


def test_options_that_the_session_does_not_have_are_an_error() -> None:
    request = _request("cuda")
    check_options(request, {CUDA: {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}})
    with pytest.raises(BackendError, match=f"{CUDA} was given use_tf32=0 but runs with use_tf32=1"):
        check_options(request, {CUDA: {"use_tf32": "1", "cudnn_conv_algo_search": "HEURISTIC"}})
    with pytest.raises(BackendError, match=f"{CUDA} was given use_tf32=0 but runs with use_tf32=nothing"):
        check_options(request, {CUDA: {}})


def test_a_precision_that_nobody_asked_for_is_an_error() -> None:
    request = _request("tensorrt")
    found = {name: dict(options) for name, options in request.providers}
    found[TENSORRT] |= {"trt_fp16_enable": "False", "trt_bf16_enable": "0"}
    check_options(request, found)
    found[TENSORRT]["trt_bf16_enable"] = "1"
    with pytest.raises(
        BackendError, match=f"{TENSORRT} runs with trt_bf16_enable=1, which was not requested"
    ) as raised:
        check_options(request, found)
    assert raised.value.hint == "unset ORT_TENSORRT_BF16_ENABLE"


def test_options_are_read_back_when_a_model_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, moved=("Relu", "Det"), use_tf32="1")
    with pytest.raises(BackendError, match="was given use_tf32=0 but runs with use_tf32=1"):
        _open(_relu_and_det(tmp_path / "m.onnx"))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros(2, np.float32), set()),
        (np.zeros(2, np.float16), {"float16"}),
        (np.zeros(2, ml_dtypes.bfloat16), {"bfloat16"}),
    ],
)
def test_what_the_graph_holds_below_float32_is_found(array: np.ndarray[Any, Any], expected: set[str]) -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"])
    graph = helper.make_graph([], "graph", [], [], [numpy_helper.from_array(array, "w")])
    assert lower_dtypes(helper.make_model(graph)) == expected
    graph.node.append(node)
    assert lower_dtypes(helper.make_model(graph)) == {*expected, "int8"}


# TF32


def test_whether_tf32_may_be_used_is_what_the_session_says() -> None:
    cuda, tensorrt = _request("cuda"), _request("tensorrt")
    assert tf32_of(cuda, {CUDA: {"use_tf32": "0"}}) is False
    assert tf32_of(cuda, {CUDA: {}}) is True
    assert tf32_of(tensorrt, {CUDA: {"use_tf32": "0"}}) is False
    not_barred = ProviderRequest(name=TENSORRT, providers=tensorrt.providers, is_tf32_barred=False)
    assert tf32_of(not_barred, {CUDA: {"use_tf32": "0"}}) is True


@pytest.mark.usefixtures("fresh_tf32")
def test_tensorrt_bars_tf32_for_the_process_before_cuda_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    prepare_process("cuda")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == ""
    prepare_process("tensorrt")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    assert bar_tf32() is True


@pytest.mark.usefixtures("fresh_tf32")
def test_tf32_that_is_barred_too_late_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", started)
    _pretend(monkeypatch, moved=("Relu", "Det"))
    for _ in range(2):
        # The second time the variable is there, and what had started before it still has not read it.
        facts = _open(_relu_and_det(tmp_path / "m.onnx"), "tensorrt").facts
        assert facts.tf32 is True
        assert any("CUDA was in use before NVIDIA_TF32_OVERRIDE=0" in text for text in facts.provider_warnings)


# Libraries, words, bfloat16


def test_the_libraries_of_a_provider_are_loaded_from_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    runtime = SimpleNamespace(preload_dlls=lambda: loaded.append("CUDA"))
    monkeypatch.setattr("importlib.import_module", loaded.append)
    for provider, expected in ((CPU, []), (CUDA, ["CUDA"]), (TENSORRT, ["CUDA", "tensorrt_libs"])):
        loaded.clear()
        load_libraries(runtime, provider)
        assert loaded == expected
    # Before 1.21, ONNX Runtime had no such function.
    load_libraries(SimpleNamespace(), CUDA)


def test_libraries_that_no_package_has_are_left_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_libs", None)
    load_libraries(SimpleNamespace(), TENSORRT)


def test_only_a_gpu_provider_needs_words() -> None:
    assert say_provider(None) == say_provider(CPU) == ()
    assert say_provider(TENSORRT) == (f"ONNX Runtime ran it by {TENSORRT}",)


def _doubled_in_bfloat16(path: Path) -> Path:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=_FLOAT),
        helper.make_node("Add", ["wide", "wide"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.BFLOAT16),
    ]
    return _save(path, nodes, element=TensorProto.BFLOAT16)


def _check_doubled(runner: OnnxRuntimeRunner) -> None:
    x = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    for values in (x, x[:1] + 1):
        found = runner.run({"x": values.astype(ml_dtypes.bfloat16)})["y"]
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found.astype(np.float32), values * 2)
        found[:] = 0


def test_bfloat16_outputs_are_bound_to_the_cpu_and_belong_to_the_caller(tmp_path: Path) -> None:
    _check_doubled(_open(_doubled_in_bfloat16(tmp_path / "m.onnx"), device="cpu"))


# On a GPU


@pytest.mark.gpu
def test_bfloat16_outputs_come_back_from_the_gpu(tmp_path: Path) -> None:
    _check_doubled(_open(_doubled_in_bfloat16(tmp_path / "m.onnx")))


@pytest.mark.gpu
def test_what_cuda_lacks_is_refused_on_the_gpu(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=rf"{CUDA} was requested.*1 Det \(volume\)"):
        _open(_relu_and_det(tmp_path / "m.onnx"))


@pytest.mark.gpu
def test_shapes_that_onnxruntime_takes_from_elsewhere_are_no_floats_beside_the_gpu(tmp_path: Path) -> None:
    runner = _open(_as_long_as_its_transpose(tmp_path / "m.onnx"))
    x = np.random.default_rng(0).standard_normal((1, 3, 3)).astype(np.float32)
    assert runner.run({"x": x})["y"].shape == (3, 3, 3)


def _sine(path: Path) -> Path:
    return _save(path, [helper.make_node("Mul", ["x", "x"], ["square"]), helper.make_node("Sin", ["square"], ["y"])])


@pytest.mark.gpu
@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_answers_on_the_gpu(tmp_path: Path, provider: str) -> None:
    name = {"cuda": CUDA, "tensorrt": TENSORRT}[provider]
    if name not in onnxruntime.get_available_providers():
        pytest.skip(f"this build of onnxruntime has no {name}")
    # The build for GPUs names this provider everywhere, and brings no libraries for it.
    if name == TENSORRT and not (state := backend_state("tensorrt")).is_available:
        pytest.skip(f"{state.reason}: {state.install}")
    runner = _open(_sine(tmp_path / "m.onnx"), provider)
    assert (runner.facts.provider, runner.facts.tf32) == (name, False)
    x = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    found = runner.run({"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(found, np.sin(x * x), atol=1e-5)
