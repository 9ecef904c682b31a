"""What every runner keeps to, whatever its framework: one small model in each, its answers computed by NumPy.

`scores` = mean of the embeddings of the tokens that are not 0, times a matrix, times `scale`;
`lengths` = number of tokens that are not 0. The names are in no alphabetical order on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.errors import BackendError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.openvino.model import import_openvino
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.runners.runner import Runner

if TYPE_CHECKING:
    import onnx
    import torch

_TOKENS, _WIDTH, _CLASSES = 50, 8, 3
_RANDOM = np.random.default_rng(7)
_EMBEDDINGS = _RANDOM.standard_normal((_TOKENS, _WIDTH)).astype(np.float32)
_MATRIX = _RANDOM.standard_normal((_WIDTH, _CLASSES)).astype(np.float32)

_SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="tokens", dtype="int64", shape=("batch", "sequence")),
        TensorSpec(name="scale", dtype="float32", shape=("batch", 1)),
    ),
    outputs=(
        TensorSpec(name="scores", dtype="float32", shape=("batch", _CLASSES)),
        TensorSpec(name="lengths", dtype="int64", shape=("batch",)),
    ),
)


def _expected_outputs(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return what the model answers, computed in float64."""
    mask = inputs["tokens"] != 0
    lengths = mask.sum(axis=1)
    total = (_EMBEDDINGS.astype(np.float64)[inputs["tokens"]] * mask[..., None]).sum(axis=1)
    scores = total / np.maximum(lengths, 1)[:, None] @ _MATRIX.astype(np.float64) * inputs["scale"]
    return {"scores": scores, "lengths": lengths}


def _some_inputs(rows: int = 4, length: int = 6, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return a batch of tokens, the first of each row not 0, and scales."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, _TOKENS, (rows, length))
    tokens[:, :1] = 1
    return {"tokens": tokens.astype(np.int64), "scale": random.random((rows, 1), dtype=np.float32) + 0.5}


def _onnx_model() -> onnx.ModelProto:
    """Return the model in ONNX."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "embeddings": _EMBEDDINGS,
        "matrix": _MATRIX,
        "zero": np.array(0, dtype=np.int64),
        "one": np.array(1, dtype=np.int64),
        "axis_1": np.array([1], dtype=np.int64),
        "axis_2": np.array([2], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Equal", ["tokens", "zero"], ["padded"]),
        helper.make_node("Not", ["padded"], ["mask"]),
        helper.make_node("Cast", ["mask"], ["mask_int"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["mask_int", "axis_1"], ["lengths"], keepdims=0),
        helper.make_node("Max", ["lengths", "one"], ["divisor_int"]),
        helper.make_node("Cast", ["divisor_int"], ["divisor_flat"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["divisor_flat", "axis_1"], ["divisor"]),
        helper.make_node("Cast", ["mask_int"], ["mask_flat"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask_flat", "axis_2"], ["mask_float"]),
        helper.make_node("Gather", ["embeddings", "tokens"], ["embedded"]),
        helper.make_node("Mul", ["embedded", "mask_float"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis_1"], ["total"], keepdims=0),
        helper.make_node("Div", ["total", "divisor"], ["mean"]),
        helper.make_node("MatMul", ["mean", "matrix"], ["unscaled"]),
        helper.make_node("Mul", ["unscaled", "scale"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "sequence"]),
            helper.make_tensor_value_info("scale", TensorProto.FLOAT, ["batch", 1]),
        ],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", _CLASSES]),
            helper.make_tensor_value_info("lengths", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _torch_model() -> torch.nn.Module:
    """Return the model as a PyTorch module with a dict output, in the order of the names' alphabet."""
    import torch

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = torch.nn.Parameter(torch.from_numpy(_EMBEDDINGS.copy()))
            self.matrix = torch.nn.Parameter(torch.from_numpy(_MATRIX.copy()))

        def forward(self, tokens: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
            mask = tokens != 0
            lengths = mask.sum(dim=1)
            total = (self.embeddings[tokens] * mask.unsqueeze(-1)).sum(dim=1)
            scores = total / lengths.clamp(min=1).unsqueeze(-1) @ self.matrix * scale
            return {"lengths": lengths, "scores": scores}

    return Small()


def _keras_model() -> Any:  # noqa: ANN401 - a keras.Model, and Keras has no types
    """Return the model as a Keras functional model with a dict output."""
    import keras

    tokens = keras.Input((None,), dtype="int64", name="tokens")
    scale = keras.Input((1,), dtype="float32", name="scale")
    embedding = keras.layers.Embedding(_TOKENS, _WIDTH, name="embeddings")
    dense = keras.layers.Dense(_CLASSES, use_bias=False, name="matrix")
    mask = keras.ops.not_equal(tokens, 0)
    lengths = keras.ops.sum(keras.ops.cast(mask, "int64"), axis=1)
    kept = embedding(tokens) * keras.ops.expand_dims(keras.ops.cast(mask, "float32"), -1)
    divisor = keras.ops.cast(keras.ops.maximum(lengths, 1), "float32")
    mean = keras.ops.sum(kept, axis=1) / keras.ops.expand_dims(divisor, -1)
    model = keras.Model({"tokens": tokens, "scale": scale}, {"scores": dense(mean) * scale, "lengths": lengths})
    embedding.set_weights([_EMBEDDINGS])
    dense.set_weights([_MATRIX])
    return model


def _saved_model(folder: Path) -> Path:
    """Write the model as a TensorFlow SavedModel into `folder` and return it."""
    import tensorflow as tf

    class Small(tf.Module):  # type: ignore[misc]  # TensorFlow ships no types
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = tf.Variable(_EMBEDDINGS)
            self.matrix = tf.Variable(_MATRIX)

        @tf.function(  # type: ignore[misc]
            input_signature=[
                tf.TensorSpec((None, None), tf.int64, name="tokens"),
                tf.TensorSpec((None, 1), tf.float32, name="scale"),
            ]
        )
        def __call__(self, tokens: tf.Tensor, scale: tf.Tensor) -> dict[str, tf.Tensor]:
            mask = tf.not_equal(tokens, 0)
            lengths = tf.reduce_sum(tf.cast(mask, tf.int64), axis=1)
            total = tf.reduce_sum(
                tf.gather(self.embeddings, tokens) * tf.expand_dims(tf.cast(mask, tf.float32), -1), axis=1
            )
            divisor = tf.cast(tf.maximum(lengths, 1), tf.float32)[:, None]
            return {"scores": tf.matmul(total / divisor, self.matrix) * scale, "lengths": lengths}

    module = Small()
    tf.saved_model.save(module, str(folder), signatures=module.__call__.get_concrete_function())
    return folder


def _of_object(kind: SourceKind) -> ModelRef:
    """Return the source of a model object that a callable made."""
    return ModelRef(text="somewhere:model", folder=Path(), kind=kind)


class _Subject(Struct, frozen=True, kw_only=True):
    """One runner with the small model in it, and the way to open it again."""

    name: str
    model: LoadedModel
    runner: Runner


_RUNNER_NAMES = [
    "onnxruntime",
    pytest.param("torch", marks=pytest.mark.torch),
    pytest.param("keras", marks=pytest.mark.tensorflow),
    pytest.param("keras-file", marks=pytest.mark.tensorflow),
    pytest.param("savedmodel", marks=pytest.mark.tensorflow),
    pytest.param("torchscript", marks=pytest.mark.torch),
    pytest.param("pt2", marks=pytest.mark.torch),
    pytest.param("openvino", marks=pytest.mark.openvino),
    pytest.param("litert", marks=[pytest.mark.tensorflow, pytest.mark.litert]),
]


def _model_of(name: str, folder: Path) -> LoadedModel:
    makers: dict[str, Callable[[], LoadedModel]] = {
        "onnxruntime": lambda: _onnx(folder),
        "torch": lambda: LoadedModel(
            ref=replace(_of_object(SourceKind.TORCH), signature=_SIGNATURE), model=_torch_model()
        ),
        "keras": lambda: LoadedModel(ref=_of_object(SourceKind.KERAS), model=_keras_model()),
        "keras-file": lambda: _keras_file(folder),
        "savedmodel": lambda: LoadedModel(ref=parse_source("saved", _saved_model(folder / "saved").parent)),
        "torchscript": lambda: _torchscript(folder),
        "pt2": lambda: _pt2(folder),
        "openvino": lambda: _openvino(folder),
        "litert": lambda: _tflite(folder),
    }
    return makers[name]()


def _onnx(folder: Path) -> LoadedModel:
    import onnx

    onnx.save(_onnx_model(), str(folder / "small.onnx"))
    return LoadedModel(ref=parse_source("small.onnx", folder))


def _torchscript(folder: Path) -> LoadedModel:
    import torch

    example = tuple(torch.from_numpy(array) for array in _some_inputs().values())
    torch.jit.save(torch.jit.trace(_torch_model(), example, strict=False), str(folder / "small.pt"))
    return LoadedModel(ref=replace(parse_source("small.pt", folder), signature=_SIGNATURE))


def _pt2(folder: Path) -> LoadedModel:
    import torch

    example = tuple(torch.from_numpy(array) for array in _some_inputs().values())
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence")
    program = torch.export.export(
        _torch_model(), example, dynamic_shapes={"tokens": {0: batch, 1: sequence}, "scale": {0: batch}}
    )
    torch.export.save(program, folder / "small.pt2")
    return LoadedModel(ref=replace(parse_source("small.pt2", folder), signature=_SIGNATURE))


def _openvino(folder: Path) -> LoadedModel:
    import onnx

    openvino = import_openvino()
    onnx.save(_onnx_model(), str(folder / "small.onnx"))
    model = openvino.Core().read_model(str(folder / "small.onnx"))
    openvino.save_model(model, str(folder / "small.xml"), compress_to_fp16=False)
    return LoadedModel(ref=parse_source("small.xml", folder))


def _tflite(folder: Path) -> LoadedModel:
    import tensorflow as tf

    saved = _saved_model(folder / "saved")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved), signature_keys=["serving_default"])
    (folder / "small.tflite").write_bytes(converter.convert())
    return LoadedModel(ref=parse_source("small.tflite", folder))


def _keras_file(folder: Path) -> LoadedModel:
    _keras_model().save(folder / "small.keras")
    return LoadedModel(ref=parse_source("small.keras", folder))


@pytest.fixture(scope="module", params=_RUNNER_NAMES)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Subject:
    """Return each runner in turn, with the small model in it."""
    model = _model_of(request.param, tmp_path_factory.mktemp("model"))
    return _Subject(name=request.param, model=model, runner=open_runner(model))


def test_names_dtypes_and_ranks_are_those_of_the_model(subject: _Subject) -> None:
    signature = subject.runner.signature
    for found, expected in ((signature.inputs, _SIGNATURE.inputs), (signature.outputs, _SIGNATURE.outputs)):
        assert {spec.name: spec.dtype for spec in found} == {spec.name: spec.dtype for spec in expected}
        ranks = {spec.name: len(spec.shape or ()) for spec in expected}
        assert {spec.name: len(spec.shape or ()) for spec in found} == ranks


@pytest.mark.parametrize(("rows", "length"), [(1, 6), (4, 6), (9, 3), (2, 1)])
def test_outputs_are_the_model_s_under_their_names(subject: _Subject, rows: int, length: int) -> None:
    inputs = _some_inputs(rows, length)
    found = subject.runner.run(inputs)
    expected = _expected_outputs(inputs)
    assert list(found) == [spec.name for spec in subject.runner.signature.outputs]
    assert (found["scores"].dtype, found["lengths"].dtype) == (np.float32, np.int64)
    assert (found["scores"].shape, found["lengths"].shape) == ((rows, _CLASSES), (rows,))
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["lengths"], expected["lengths"])


def test_inputs_go_by_name_in_any_order(subject: _Subject) -> None:
    inputs = _some_inputs()
    turned = dict(reversed(inputs.items()))
    np.testing.assert_array_equal(subject.runner.run(turned)["scores"], subject.runner.run(inputs)["scores"])


def test_an_array_of_any_layout_is_taken(subject: _Subject) -> None:
    inputs = _some_inputs(rows=5, length=8)
    strided = {name: np.repeat(np.asfortranarray(array), 2, axis=0)[::2] for name, array in inputs.items()}
    np.testing.assert_array_equal(subject.runner.run(strided)["scores"], subject.runner.run(inputs)["scores"])


def test_read_only_inputs_are_taken_without_a_word(subject: _Subject, recwarn: pytest.WarningsRecorder) -> None:
    inputs = _some_inputs()
    for array in inputs.values():
        array.flags.writeable = False
    subject.runner.run(inputs)
    assert not [str(warning.message) for warning in recwarn]


def test_results_belong_to_the_caller(subject: _Subject) -> None:
    inputs = _some_inputs()
    kept = {name: array.copy() for name, array in inputs.items()}
    first = subject.runner.run(inputs)
    before = {name: array.copy() for name, array in first.items()}
    second = subject.runner.run(_some_inputs(seed=1))
    for name, array in first.items():
        np.testing.assert_array_equal(array, before[name])
        array[...] = 99
    third = subject.runner.run(_some_inputs(seed=1))
    for name, array in third.items():
        np.testing.assert_array_equal(array, second[name])
        assert not np.shares_memory(array, second[name])
    for name, array in inputs.items():
        np.testing.assert_array_equal(array, kept[name])


def _wrong_inputs() -> dict[str, dict[str, NDArray[Any]]]:
    inputs = _some_inputs()
    tokens, scale = inputs["tokens"], inputs["scale"]
    return {
        "missing": {"tokens": tokens},
        "unknown": {"tokens": tokens, "scales": scale},
        "one too many": {**inputs, "other": scale},
        "dtype": {"tokens": tokens.astype(np.int32), "scale": scale},
        "float dtype": {"tokens": tokens, "scale": scale.astype(np.float64)},
        "rank": {"tokens": tokens, "scale": scale[:, 0]},
        "fixed size": {"tokens": tokens, "scale": np.repeat(scale, 2, axis=1)},
        "value": {"tokens": tokens + _TOKENS, "scale": scale},
        "rows": {"tokens": tokens, "scale": np.repeat(scale, 2, axis=0)},
    }


@pytest.mark.parametrize("fault", list(_wrong_inputs()))
def test_inputs_that_the_model_does_not_take_are_a_backend_error(subject: _Subject, fault: str) -> None:
    if subject.name == "openvino" and fault in {"value", "rows"}:
        pytest.skip("OpenVINO's CPU plugin answers an index out of range with zeros, and unequal rows now and then")
    inputs = _wrong_inputs()[fault]
    with pytest.raises(BackendError) as raised:
        subject.runner.run(inputs)
    message = str(raised.value)
    assert "\n" not in message
    assert all(name in message for name in inputs) or "(got " in message
    assert raised.value.hint
    # The next batch is none the worse for it.
    good = _some_inputs()
    np.testing.assert_array_equal(subject.runner.run(good)["lengths"], _expected_outputs(good)["lengths"])


def test_facts_say_what_ran(subject: _Subject) -> None:
    facts = subject.runner.facts
    assert facts.device == "cpu"
    assert facts.precision_found is Precision.FP32
    assert facts.version[:1].isdigit()
    assert facts.tf32 in {None, False}


def test_the_names_served_replace_those_of_the_model(subject: _Subject) -> None:
    rename = {"tokens": "input_ids", "scores": "logits"}
    signature = subject.model.ref.signature
    ref = replace(subject.model.ref, rename=rename, signature=signature and _renamed(signature, rename))
    runner = open_runner(replace(subject.model, ref=ref))
    inputs = _some_inputs()
    found = runner.run({"scale": inputs["scale"], "input_ids": inputs["tokens"]})
    np.testing.assert_allclose(found["logits"], _expected_outputs(inputs)["scores"], rtol=1e-5, atol=1e-6)
    assert {spec.name for spec in runner.signature.inputs} == {"input_ids", "scale"}
    assert set(found) == {spec.name for spec in runner.signature.outputs} == {"logits", "lengths"}


def _renamed(signature: Signature, rename: dict[str, str]) -> Signature:
    return Signature(
        inputs=tuple(replace(spec, name=rename.get(spec.name, spec.name)) for spec in signature.inputs),
        outputs=tuple(replace(spec, name=rename.get(spec.name, spec.name)) for spec in signature.outputs),
    )


def test_a_kind_without_runner_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no runner for a model of kind 'callable'"):
        open_runner(LoadedModel(ref=_of_object(SourceKind.CALLABLE)))


@pytest.mark.parametrize(("name", "value"), [("NVIDIA_TF32_OVERRIDE", "1"), ("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")])
def test_an_environment_that_lowers_float32_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BackendError, match=f"{name}={value} lets float32 be computed in a lower precision") as raised:
        open_runner(LoadedModel(ref=_of_object(SourceKind.ONNX)))
    assert raised.value.hint == f"unset {name}"
