"""The reference's own noise over threads, in the runtimes that references are run by."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recording import Recording
from paritygate.validate.runners import runner as runner_base
from paritygate.validate.runners.fixed_shape import FixedShapeRunner
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.runners.runner import ALL_THERE_IS, ON_THE_GPU, Runner, threads_of_process

_TREES = 400


def _signature(batch: int | str, width: int) -> Signature:
    return Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=(batch, width)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=None),),
    )


def _record(folder: Path, runner: Runner, *, rows: int = 16) -> Recording:
    width = runner.signature.inputs[0].shape[1]

    def read() -> Iterator[Batch]:
        random = np.random.default_rng(0)
        for number in range(2):
            values = random.standard_normal((rows, width)).astype(np.float32)
            yield Batch(inputs={"x": values}, ids=[f"{number}/{row}" for row in range(rows)])

    folder.mkdir()
    return record_reference(runner, read, RecordPlan(folder=folder, model={"name": "m"}, axes={}))


def _noise(recording: Recording) -> str:
    return dict(recording.health)["reference_noise"]


def _save(path: Path, nodes: list[Any], batch: int | str, weights: dict[str, Any] | None = None) -> Path:
    from onnx import TensorProto, helper, numpy_helper, save

    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, "n"])],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _linear(path: Path, *, factor: float = 1.0, batch: int | str = "batch") -> Path:
    from onnx import helper

    weight = (factor * np.eye(4)).astype(np.float32)
    return _save(path, [helper.make_node("MatMul", ["x", "w"], ["y"])], batch, {"w": weight})


def _forest(path: Path, batch: int) -> Path:
    """Write a regressor of trees of one split each, whose leaves ONNX Runtime adds up by thread."""
    from onnx import helper

    random = np.random.default_rng(0)
    splits, leaves = random.standard_normal(_TREES), random.standard_normal((_TREES, 2))
    trees = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=np.repeat(range(_TREES), 3).tolist(),
        nodes_nodeids=[0, 1, 2] * _TREES,
        nodes_featureids=[tree % 4 for tree in range(_TREES) for _ in range(3)],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * _TREES,
        nodes_values=[float(value) for split in splits for value in (split, 0, 0)],
        nodes_truenodeids=[1, 0, 0] * _TREES,
        nodes_falsenodeids=[2, 0, 0] * _TREES,
        target_treeids=np.repeat(range(_TREES), 2).tolist(),
        target_nodeids=[1, 2] * _TREES,
        target_ids=[0, 0] * _TREES,
        target_weights=leaves.reshape(-1).tolist(),
    )
    return _save(path, [trees], batch)


def _on_several_threads(path: Path, **options: Any) -> Runner:  # noqa: ANN401 - fields of LoadedModel
    runner = open_runner(LoadedModel(ref=parse_source(path.name, path.parent), **options))
    if runner.on_one_thread() == ALL_THERE_IS:
        pytest.skip("needs a processor of several cores: this runtime takes one thread here")
    return runner


def test_a_sum_that_onnx_runtime_makes_by_thread_has_noise_over_threads(tmp_path: Path) -> None:
    runner = _on_several_threads(_forest(tmp_path / "model.onnx", 60))

    recording = _record(tmp_path / "reference", runner, rows=60)

    noise = recording.settings["noise"]
    assert noise["repeats"] == {"y": [0.0]}
    assert 1e-7 < noise["threads"]["y"][0] < 1e-3
    assert noise["why_no_threads"] == ""
    assert "over repeats and threads, in output 'y'; not over batch sizes because its " in _noise(recording)


def test_the_second_session_of_onnx_runtime_has_one_thread_and_is_given_back(tmp_path: Path) -> None:
    runner = _on_several_threads(_linear(tmp_path / "model.onnx"))
    before = threads_of_process()

    opened = runner.on_one_thread()

    assert before is not None
    assert not isinstance(opened, str)
    with opened as alone:
        assert (threads_of_process() or frozenset()) <= before
        assert alone.on_one_thread() == ALL_THERE_IS
        assert alone.run({"x": np.ones((1, 4), dtype=np.float32)})["y"].tolist() == [[1, 1, 1, 1]]
    found = weakref.ref(alone)
    del alone, opened
    assert found() is None


def test_what_the_second_session_answers_is_what_is_compared(tmp_path: Path) -> None:
    runner = _on_several_threads(_linear(tmp_path / "model.onnx"))
    # Another model in the same file: only what is opened later sees it.
    _linear(tmp_path / "model.onnx", factor=2.0)

    recording = _record(tmp_path / "reference", runner)

    assert recording.settings["noise"]["threads"]["y"][0] > 1
    assert dict(recording.health)["reference_threads"].startswith("output 'y' differs")


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    runner = _on_several_threads(_linear(tmp_path / "model.onnx"))
    (tmp_path / "model.onnx").unlink()

    recording = _record(tmp_path / "reference", runner)

    assert "; not over threads because it does not answer on one thread (onnxruntime " in _noise(recording)


def test_a_system_that_does_not_show_threads_leaves_their_number_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_base, "_TASKS", tmp_path / "none")
    path = _linear(tmp_path / "model.onnx")

    recording = _record(tmp_path / "reference", open_runner(LoadedModel(ref=parse_source(path.name, tmp_path))))

    assert _noise(recording).endswith("; not over threads because on how many threads it ran is not known here")


def test_a_model_with_fixed_dims_is_asked_on_one_thread(tmp_path: Path) -> None:
    inner = _on_several_threads(_linear(tmp_path / "model.onnx", batch=8))
    outputs = (TensorSpec(name="y", dtype="float32", shape=("batch", "n")),)
    rule = FixedShape(
        dims={"batch": 8}, pad={}, dtypes={}, signature=Signature(inputs=_signature("batch", 4).inputs, outputs=outputs)
    )
    runner = FixedShapeRunner(inner, rule)

    recording = _record(tmp_path / "reference", runner)

    assert recording.settings["noise"]["threads"] == {"y": [0.0] * 4}
    assert _noise(recording) == "noise floor 0 over repeats, batch sizes and threads"


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Have PyTorch take two threads, however many processors there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _torch(forward: Callable[[Any], Any], width: int) -> Runner:
    import torch

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x)

    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.TORCH)
    return open_runner(LoadedModel(ref=replace(source, signature=_signature("batch", width)), model=Module()))


@pytest.mark.torch
@pytest.mark.usefixtures("two_threads")
def test_a_sum_that_pytorch_makes_by_thread_has_noise_over_threads(tmp_path: Path) -> None:
    import torch

    # Row by row, because PyTorch shares a sum among its threads where it has one result.
    runner = _torch(lambda x: torch.stack([row.sum() for row in x]), 100_000)

    recording = _record(tmp_path / "reference", runner)

    noise = recording.settings["noise"]
    assert (noise["repeats"], noise["batches"]) == ({"y": [0.0]}, {"y": [0.0]})
    assert 1e-6 < noise["threads"]["y"][0] < 1e-2
    assert torch.get_num_threads() == 2


@pytest.mark.torch
@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("offset", [2.0**-18, 1.0])
def test_a_module_that_depends_on_the_number_of_threads_is_found(tmp_path: Path, offset: float) -> None:
    import torch

    runner = _torch(lambda x: torch.round(x * 8) / 8 + offset * (torch.get_num_threads() == 1), 4)

    recording = _record(tmp_path / "reference", runner)

    assert recording.settings["noise"]["threads"] == {"y": [offset] * 4}
    assert ("reference_threads" in dict(recording.health)) == (offset == 1.0)


@pytest.mark.torch
@pytest.mark.usefixtures("two_threads")
def test_pytorch_has_its_threads_back_after_a_failure(tmp_path: Path) -> None:
    import torch

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x if torch.get_num_threads() > 1 else x.missing

    recording = _record(tmp_path / "reference", _torch(forward, 4))

    assert torch.get_num_threads() == 2
    assert "; not over threads because it does not answer on one thread (the PyTorch module failed" in _noise(recording)


@pytest.mark.torch
@pytest.mark.usefixtures("two_threads")
def test_one_thread_is_all_that_pytorch_may_have(tmp_path: Path) -> None:
    import torch

    torch.set_num_threads(1)

    recording = _record(tmp_path / "reference", _torch(lambda x: x, 4))

    assert _noise(recording).endswith(
        "over repeats and batch sizes; not over threads because one thread is all there is"
    )


@pytest.mark.tensorflow
def test_keras_says_why_threads_were_not_measured(tmp_path: Path) -> None:
    from paritygate.models.tensorflow.importing import import_keras

    keras = import_keras()
    x = keras.Input((4,), name="x")
    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.KERAS)
    model = keras.Model({"x": x}, {"y": keras.layers.Dense(2)(x)})

    recording = _record(tmp_path / "reference", open_runner(LoadedModel(ref=source, model=model)))

    assert _noise(recording).endswith("; not over threads because TensorFlow fixes its threads when it starts")
    assert recording.settings["noise"]["threads"] == {}


@pytest.mark.openvino
@pytest.mark.parametrize("settings", [{}, {"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2}])
def test_openvino_is_asked_on_one_thread(tmp_path: Path, settings: dict[str, int]) -> None:
    from paritygate.models.openvino.model import import_openvino

    openvino = import_openvino()
    ops = openvino.opset13
    x = ops.parameter(openvino.PartialShape([-1, 4]), openvino.Type.f32, name="x")

    def save(factor: float) -> None:
        weight = ops.constant((factor * np.eye(4)).astype(np.float32))
        model = openvino.Model([ops.matmul(x, weight, False, False)], [x], "net")  # noqa: FBT003 - transpose neither
        model.outputs[0].get_tensor().set_names({"y"})
        openvino.save_model(model, str(tmp_path / "new.xml"), compress_to_fp16=False)
        # OpenVINO maps the weights: other files in their place are read later, and the first stay what they are.
        for suffix in (".xml", ".bin"):
            (tmp_path / f"new{suffix}").replace(tmp_path / f"model{suffix}")

    save(1.0)
    if settings:
        (tmp_path / "model.config.json").write_text(json.dumps({"CPU": settings}), encoding="utf-8")
    runner = _on_several_threads(tmp_path / "model.xml")

    alike = _record(tmp_path / "alike", runner)
    save(2.0)
    other = _record(tmp_path / "other", runner)

    assert _noise(alike) == "noise floor 0 over repeats, batch sizes and threads"
    assert "reference_threads" in dict(other.health)


@pytest.mark.tensorflow
@pytest.mark.litert
def test_litert_is_asked_on_one_thread(tmp_path: Path) -> None:
    from paritygate.models.tensorflow.importing import import_tensorflow

    tf = import_tensorflow()

    def save(factor: float) -> None:
        module = tf.Module()
        spec = tf.TensorSpec((None, 4), tf.float32, name="x")
        module.serve = tf.function(lambda x: {"y": factor * x}, input_signature=[spec])
        tf.saved_model.save(module, str(tmp_path / f"saved-{factor}"), signatures={"serving_default": module.serve})
        converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / f"saved-{factor}"))
        (tmp_path / f"{factor}.tflite").write_bytes(converter.convert())

    save(1.0)
    save(2.0)
    (tmp_path / "model.tflite").write_bytes((tmp_path / "1.0.tflite").read_bytes())
    runner = _on_several_threads(tmp_path / "model.tflite")

    alike = _record(tmp_path / "alike", runner)
    # LiteRT maps the file: another one in its place is opened later, and the first stays what it is.
    (tmp_path / "2.0.tflite").replace(tmp_path / "model.tflite")
    other = _record(tmp_path / "other", runner)

    assert _noise(alike) == "noise floor 0 over repeats, batch sizes and threads"
    assert "reference_threads" in dict(other.health)


@pytest.mark.gpu
@pytest.mark.torch
def test_what_is_computed_on_a_gpu_has_no_threads_to_choose(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("this build of torch does not run on CUDA")
    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.TORCH)
    model = LoadedModel(
        ref=replace(source, signature=_signature("batch", 4)), model=torch.nn.Linear(4, 2), device="cuda"
    )

    recording = _record(tmp_path / "reference", open_runner(model))

    assert _noise(recording).endswith(f"; not over threads because {ON_THE_GPU}")
