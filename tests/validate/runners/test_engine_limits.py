"""What is known of an engine before it is loaded: the shapes it takes, where it runs, and what it computes in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from paritygate.engine.gpu_fit import check_gpu
from paritygate.engine.inspecting import inspected_dtypes
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import EngineSettings, HardwareCompatibility, profile_of
from paritygate.errors import BackendError
from paritygate.machine import Gpu
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.runners import tensorrt
from paritygate.validate.runners.engine_profile import check_profile, describe_profile
from paritygate.validate.runners.tensorrt import check_version, describe_dtypes, gpu_for_engines, precision_of_dtypes

_SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence")),
        TensorSpec(name="mask", dtype="int64", shape=("batch", "sequence")),
        TensorSpec(name="scale", dtype="float32", shape=()),
    ),
    outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 1)),),
    dims={"batch": Dim(min=1, opt=8, max=64), "sequence": Dim(min=8, opt=64, max=128)},
)
_PROFILE = profile_of(_SIGNATURE)
_H100 = Gpu(name="NVIDIA H100 80GB HBM3", capability="90", driver="580.1", cuda="13.0")
_H200 = Gpu(name="NVIDIA H200", capability="90", driver="580.1", cuda="13.0")
_A100 = Gpu(name="NVIDIA A100-SXM4-40GB", capability="80", driver="580.1", cuda="13.0")
_T4 = Gpu(name="Tesla T4", capability="75", driver="580.1", cuda="13.0")
_RTX5090 = Gpu(name="NVIDIA GeForce RTX 5090", capability="120", driver="580.1", cuda="13.0")
_OFFERED = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
_BUILT_ON_H100 = {"name": _H100.name, "capability": "90", "driver": "580.1", "cuda": "13.0"}


def _record(library: str = "tensorrt", *, built_on: dict[str, Any] | None = None, **settings: Any) -> EngineRecord:  # noqa: ANN401
    return EngineRecord(
        library=library,
        version="10.16.1.11",
        precision=Precision.FP32,
        signature=_SIGNATURE,
        profile=_PROFILE,
        tf32=False,
        settings=EngineSettings(**settings),
        dtype_counts={},
        built_on=built_on,
        targets="",
    )


def _check(ids: tuple[int, ...], mask: tuple[int, ...] | None = None) -> None:
    inputs = {"ids": ids, "mask": ids if mask is None else mask, "scale": ()}
    check_profile(_SIGNATURE, _PROFILE, {name: np.zeros(shape) for name, shape in inputs.items()})


@pytest.mark.parametrize("shape", [(1, 8), (8, 64), (64, 128), (3, 127)])
def test_takes_every_shape_from_the_smallest_to_the_largest(shape: tuple[int, int]) -> None:
    _check(shape)


def test_names_the_shape_seen_and_those_the_engine_was_built_for() -> None:
    with pytest.raises(BackendError) as caught:
        _check((65, 64), (64, 64))

    assert str(caught.value) == (
        "input 'ids' has shape [65, 64], and the engine was built for shapes from [1, 8] to [64, 128]"
    )
    assert caught.value.hint == (
        "declare wider model.dims, such as {batch: {min: 1, opt: 8, max: 65}}, and build the engine again: "
        "convert-and-validate build"
    )


def test_names_every_input_and_every_dim_that_lies_outside() -> None:
    with pytest.raises(BackendError, match=r"input 'ids' .*\[100, 4\].*; input 'mask' .*\[2, 129\]") as caught:
        _check((100, 4), (2, 129))

    assert "{batch: {min: 1, opt: 8, max: 100}, sequence: {min: 4, opt: 64, max: 129}}" in caught.value.hint


@pytest.mark.parametrize("shape", [(0, 64), (8, 0)])
def test_refuses_a_size_of_0_and_does_not_tell_to_declare_it(shape: tuple[int, int]) -> None:
    with pytest.raises(BackendError, match=r"built for shapes from \[1, 8\]") as caught:
        _check(shape)

    assert caught.value.hint == "give samples of the shapes above: an engine takes no others, and nothing of size 0"


def test_refuses_another_rank() -> None:
    with pytest.raises(BackendError, match=r"input 'ids' has shape \[8, 64, 1\]") as caught:
        check_profile(_SIGNATURE, _PROFILE, {"ids": np.zeros((8, 64, 1))})

    assert caught.value.hint.startswith("give samples of the shapes above")


def test_describes_the_shapes_of_every_input() -> None:
    assert describe_profile(_PROFILE) == (
        "ids: [1, 8] to [64, 128], tuned for [8, 64]; mask: [1, 8] to [64, 128], tuned for [8, 64]; scale: []"
    )


def test_an_engine_runs_in_the_version_that_built_it() -> None:
    assert check_version(_record(), "10.16.1.11") == ()


def test_refuses_another_version_of_the_library() -> None:
    with pytest.raises(BackendError) as caught:
        check_version(_record(), "11.4.0.106")

    assert "TensorRT 10.16.1.11 and runs only in that version (installed: 11.4.0.106)" in str(caught.value)
    assert caught.value.hint == (
        "build it again on this machine: convert-and-validate build; or install TensorRT 10.16.1.11"
    )


def test_a_version_compatible_engine_runs_in_later_versions_and_that_is_noted() -> None:
    (note,) = check_version(_record(version_compatible=True), "11.4.0.106")

    assert note.endswith("(installed: 11.4.0.106)")


@pytest.mark.parametrize("version", ["10.9.0.34", "10.16.1.9", "9.3.0.1"])
def test_a_version_compatible_engine_does_not_run_in_earlier_versions(version: str) -> None:
    with pytest.raises(BackendError, match="that version and later ones"):
        check_version(_record(version_compatible=True), version)


def test_an_engine_runs_on_the_gpu_it_was_built_on() -> None:
    assert check_gpu(_record(built_on=_BUILT_ON_H100), _H100) == ()


def test_a_gpu_of_another_name_and_the_same_capability_is_noted() -> None:
    (note,) = check_gpu(_record(built_on=_BUILT_ON_H100), _H200)

    assert note == (
        "the engine was built on NVIDIA H100 80GB HBM3 (compute capability 9.0), and runs on NVIDIA H200; "
        "TensorRT advises to build on the GPU that runs it"
    )


@pytest.mark.parametrize("level", [HardwareCompatibility.NONE, HardwareCompatibility.SAME_COMPUTE_CAPABILITY])
def test_refuses_a_gpu_of_another_capability(level: HardwareCompatibility) -> None:
    with pytest.raises(BackendError) as caught:
        check_gpu(_record(built_on=_BUILT_ON_H100, hardware_compatibility=level), _A100)

    assert str(caught.value) == (
        "the engine was built on NVIDIA H100 80GB HBM3 (compute capability 9.0), and runs only there; "
        "the GPU here, NVIDIA A100-SXM4-40GB, has 8.0"
    )
    assert "tensorrt: {hardware_compatibility: ampere_plus}" in caught.value.hint


def test_a_hardware_compatible_engine_runs_on_other_gpus_and_that_is_noted() -> None:
    record = _record(built_on=_BUILT_ON_H100, hardware_compatibility=HardwareCompatibility.AMPERE_PLUS)

    assert check_gpu(record, _A100) == (
        "the engine was built on NVIDIA H100 80GB HBM3 (compute capability 9.0), and runs on NVIDIA A100-SXM4-40GB",
    )


def test_a_hardware_compatible_engine_does_not_run_below_its_level() -> None:
    record = _record(built_on=_BUILT_ON_H100, hardware_compatibility=HardwareCompatibility.AMPERE_PLUS)

    with pytest.raises(BackendError, match=r"for compute capability 8\.0 and later; the GPU here, Tesla T4, has 7\.5"):
        check_gpu(record, _T4)


def test_an_engine_of_unknown_descent_is_noted() -> None:
    assert check_gpu(_record(), _H100) == ("its record does not name the GPU that it was built on",)


@pytest.mark.parametrize("targets", [("8.9", "12.0"), ()])
def test_an_engine_that_was_built_ahead_of_time_runs_on_its_targets(targets: tuple[str, ...]) -> None:
    assert check_gpu(_record("tensorrt-rtx", compute_capabilities=targets), _RTX5090, _OFFERED) == ()


def test_refuses_a_gpu_that_an_engine_was_not_built_for_ahead_of_time() -> None:
    with pytest.raises(BackendError) as caught:
        check_gpu(_record("tensorrt-rtx", compute_capabilities=("8.6", "8.9")), _RTX5090, _OFFERED)

    assert str(caught.value) == (
        "the engine was built for compute capability 8.6, 8.9; the GPU here, NVIDIA GeForce RTX 5090, has 12.0"
    )
    assert caught.value.hint == 'build it for this GPU: tensorrt_rtx: {compute_capabilities: ["8.6", "8.9", "12.0"]}'


def test_an_engine_without_targets_does_not_run_below_ampere() -> None:
    with pytest.raises(BackendError, match=r"capability 8\.0 and above; the GPU here, Tesla T4, has 7\.5$") as caught:
        check_gpu(_record("tensorrt-rtx"), _T4, _OFFERED)

    assert caught.value.hint == 'build it for this GPU: tensorrt_rtx: {compute_capabilities: ["7.5"]}'


@pytest.mark.parametrize("targets", [("8.6",), ()])
def test_says_that_there_are_no_engines_for_a_gpu(targets: tuple[str, ...]) -> None:
    with pytest.raises(BackendError) as caught:
        check_gpu(_record("tensorrt-rtx", compute_capabilities=targets), _H100, _OFFERED)

    assert str(caught.value).endswith(
        "has 9.0, which TensorRT-RTX has no engines for (it has: 7.5, 8.0, 8.6, 8.9, 12.0, 12.1)"
    )
    assert caught.value.hint == "build a tensorrt target on this GPU instead"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_says_that_engines_need_a_gpu_whatever_was_asked_for(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: None)

    with pytest.raises(BackendError) as caught:
        gpu_for_engines(device)

    assert str(caught.value) == ("engines run on NVIDIA GPUs only, but the CUDA driver shows none to this process")
    assert "--device cuda" in caught.value.hint
    assert "promote.accept" in caught.value.hint


def test_says_that_another_device_was_asked_for_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "gpu_of_machine", lambda: _H100)

    with pytest.raises(BackendError, match="GPUs only, but the requested device is 'cpu'") as caught:
        gpu_for_engines("cpu")

    assert caught.value.hint == "run it on the GPU: --device cuda"
    assert gpu_for_engines("cuda") == _H100


@pytest.mark.parametrize(
    ("dtype_counts", "precision"),
    [
        ({"FLOAT": {"CONVOLUTION": 53, "CAST": 2}, "INT64": {"SHAPE": 4}}, Precision.FP32),
        ({"FLOAT": {"CAST": 1}, "HALF": {"CONVOLUTION": 53}}, Precision.FP16),
        ({"FLOAT": {"SOFTMAX": 1}, "BF16": {"MATRIX_MULTIPLY": 9}}, Precision.BF16),
        ({"HALF": {"CONVOLUTION": 1}, "BF16": {"MATRIX_MULTIPLY": 9}}, Precision.MIXED),
        ({"FLOAT": {"CONVOLUTION": 3, "DEQUANTIZE": 6}, "INT8": {"QUANTIZE": 6}}, Precision.INT8),
        ({"FLOAT": {"CONVOLUTION": 3}, "HALF": {"CAST": 2, "SHUFFLE": 1}}, Precision.FP32),
        ({"INT64": {"SHAPE": 4}}, None),
        ({}, None),
    ],
)
def test_the_precision_is_that_of_the_layers_that_compute(
    dtype_counts: dict[str, dict[str, int]], precision: Precision | None
) -> None:
    assert precision_of_dtypes(dtype_counts) is precision


def test_describes_dtypes_with_the_most_first() -> None:
    assert describe_dtypes({"FLOAT": {"CAST": 2}, "HALF": {"CONVOLUTION": 53, "ACTIVATION": 49}}) == "HALF 102, FLOAT 2"


def test_reads_the_dtypes_of_an_engine_in_the_words_of_several_versions() -> None:
    said = {
        "Layers": [
            {"LayerType": "CaskConvolution", "Outputs": [{"Name": "a", "Format/Datatype": "Half NC/8HW8"}]},
            {"LayerType": "gemm", "Outputs": [{"Name": "b", "Format/Datatype": "Row major linear FP16 format"}]},
            {"LayerType": "Reformat", "Outputs": [{"Name": "c", "Format": "Row major linear", "Datatype": "Float"}]},
            {"LayerType": "kgen", "Outputs": [{"Name": "d", "Format/Datatype": "N/A due to dynamic shapes"}]},
            "a name alone",
        ],
        "Bindings": ["a", "c"],
    }

    dtype_counts = inspected_dtypes(json.dumps(said))

    assert dtype_counts == {"HALF": {"CaskConvolution": 1, "gemm": 1}, "FLOAT": {"Reformat": 1}}
    assert precision_of_dtypes(dtype_counts) is Precision.FP16


@pytest.mark.parametrize("said", ["", "no JSON", "[]", '{"Layers": ["conv1", "relu1"]}', '{"Layers": []}', "{}"])
def test_reads_nothing_where_the_engine_says_nothing(said: str) -> None:
    assert inspected_dtypes(said) == {}
