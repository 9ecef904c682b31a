"""What is particular to Keras models and SavedModels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.machine import gpu_of_machine
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners import tensorflow as tensorflow_runner
from paritygate.validate.runners.tensorflow import precision_of_operations, tensorflow_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from paritygate.validate.runners.tensorflow import KerasRunner, SavedModelRunner

pytestmark = pytest.mark.tensorflow
_X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
_WEIGHTS = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)


def _keras(model: Any, signature: Signature | None = None) -> KerasRunner:  # noqa: ANN401 - a keras.Model
    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.KERAS)
    return tensorflow_runner.open_model(LoadedModel(ref=replace(source, signature=signature), model=model))


def _dense(**options: object) -> Any:  # noqa: ANN401 - a keras.Model
    keras = import_keras()
    x = keras.Input((8,), name="x")
    return keras.Model({"x": x}, {"y": keras.layers.Dense(16, **options)(x)})


def _saved(folder: Path, function: Callable[..., Any], *, element: str = "float32") -> SavedModelRunner:
    tf = import_tensorflow()
    module = tf.Module()
    module.variable = tf.Variable(tf.constant(_WEIGHTS))
    call = tf.function(
        lambda x: {"y": function(tf, module.variable, x)},
        input_signature=[tf.TensorSpec((None, 8), tf.as_dtype(element), name="x")],
    )
    tf.saved_model.save(module, str(folder), signatures=call)
    return tensorflow_runner.open_model(LoadedModel(ref=parse_source(folder.name, folder.parent)))


def test_tf32_is_switched_off() -> None:
    tf = import_tensorflow()
    tf.config.experimental.enable_tensor_float_32_execution(enabled=True)
    _keras(_dense())
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_dropout_and_batch_statistics_of_training_are_off() -> None:
    keras = import_keras()
    x = keras.Input((8,), name="x")
    normalised = keras.layers.BatchNormalization()(keras.layers.Dropout(0.5)(x))
    runner = _keras(keras.Model({"x": x}, {"y": normalised}))
    alone = np.concatenate([runner.run({"x": _X[row : row + 1]})["y"] for row in range(4)])
    np.testing.assert_allclose(alone, _X / np.sqrt(1 + 1e-3), rtol=1e-5)
    np.testing.assert_allclose(runner.run({"x": _X})["y"], alone, rtol=1e-5)


def test_keras_facts_name_both_versions() -> None:
    facts = _keras(_dense()).facts
    assert facts.runtime == "keras"
    assert f"{import_keras().__version__} on tensorflow {import_tensorflow().__version__}" == facts.version


def test_a_mixed_policy_is_found_though_the_weights_are_float32() -> None:
    keras = import_keras()
    x = keras.Input((8,), name="x")
    inner = keras.layers.Dense(32, dtype="mixed_float16")(x)
    mixed = keras.Model({"x": x}, {"y": keras.layers.Dense(2, dtype="float32")(inner)})
    assert _keras(mixed).facts.precision_found is Precision.MIXED
    assert _keras(_dense(dtype="mixed_bfloat16")).facts.precision_found is Precision.BF16
    assert _keras(_dense(dtype="float16")).facts.precision_found is Precision.FP16
    assert _keras(_dense()).facts.precision_found is Precision.FP32


def test_rounded_keras_weights_are_found() -> None:
    model = _dense(use_bias=False)
    model.set_weights([_WEIGHTS.astype(np.float16).astype(np.float32)])
    assert _keras(model).facts.precision_found is Precision.FP16


def test_a_keras_file_that_is_none_is_an_input_file_error(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(InputFileError, match=r"m\.keras"):
        tensorflow_runner.open_model(LoadedModel(ref=parse_source("m.keras", tmp_path)))


def test_a_subclassed_model_needs_a_signature_and_runs_with_one() -> None:
    keras = import_keras()

    class Twice(keras.Model):  # type: ignore[misc]  # Keras ships no types
        def call(self, x: Any) -> dict[str, Any]:  # noqa: ANN401 - a tensor
            return {"y": x * 2, "loss": x[0]}

    with pytest.raises(UsageError, match="are not known before it is called"):
        _keras(Twice())
    spec = TensorSpec(name="x", dtype="float32", shape=("batch", 8))
    runner = _keras(Twice(), Signature(inputs=(spec,), outputs=(TensorSpec(name="y", dtype="float32", shape=None),)))
    np.testing.assert_array_equal(runner.run({"x": _X})["y"], _X * 2)
    assert runner.facts.notes == ("the model also returns loss, which the signature does not have",)


def test_weights_of_a_saved_model_are_judged_by_their_values(tmp_path: Path) -> None:
    assert _saved(tmp_path / "a", lambda tf, w, x: tf.matmul(x, w)).facts.precision_found is Precision.FP32
    rounded = _WEIGHTS.astype(np.float16).astype(np.float32)
    frozen = _saved(tmp_path / "b", lambda tf, w, x: tf.matmul(x, tf.constant(rounded)) + 0 * w[0])
    # Half of the elements are the variable's, which is not rounded.
    assert frozen.facts.precision_found is Precision.MIXED


def test_a_saved_model_that_casts_its_weights_is_of_that_precision(tmp_path: Path) -> None:
    def half(tf: Any, weights: Any, x: Any) -> Any:  # noqa: ANN401 - TensorFlow ships no types
        return tf.cast(tf.matmul(tf.cast(x, tf.float16), tf.cast(weights, tf.float16)), tf.float32)

    runner = _saved(tmp_path / "m", half)
    assert runner.facts.precision_found is Precision.FP16
    assert (runner.facts.runtime, runner.facts.tf32) == ("tensorflow", None)


def test_what_goes_wrong_in_a_graph_is_told_in_one_line(tmp_path: Path) -> None:
    def pick(tf: Any, weights: Any, x: Any) -> Any:  # noqa: ANN401 - TensorFlow ships no types
        return tf.gather(weights, tf.cast(x, tf.int32))

    runner = _saved(tmp_path / "m", pick)
    with pytest.raises(
        BackendError, match=r"on x: float32\[1, 8\]: InvalidArgumentError: indices\[0,0\] = 100 is not in"
    ):
        runner.run({"x": np.full((1, 8), 100, dtype=np.float32)})


def test_a_saved_model_without_serving_signature_is_refused(tmp_path: Path) -> None:
    tf = import_tensorflow()
    tf.saved_model.save(tf.Module(), str(tmp_path / "m"))
    with pytest.raises(InputFileError, match="has no signature 'serving_default'"):
        tensorflow_runner.open_model(LoadedModel(ref=parse_source("m", tmp_path)))


def test_a_saved_model_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    _saved(tmp_path / "m", lambda tf, w, x: tf.matmul(x, w))
    for file in (tmp_path / "m" / "variables").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(BackendError, match="does not load"):
        tensorflow_runner.open_model(LoadedModel(ref=parse_source("m", tmp_path)))


@pytest.mark.skipif(gpu_of_machine() is not None, reason="says what happens where there is no GPU")
def test_cuda_without_a_gpu_is_refused() -> None:
    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.KERAS)
    with pytest.raises(BackendError, match="the CUDA driver shows no GPU"):
        tensorflow_runner.open_model(LoadedModel(ref=source, model=_dense(), device="cuda"))


def test_an_error_without_a_graph_is_told_by_class_and_first_line() -> None:
    assert tensorflow_reason(ValueError("one\ntwo")) == "ValueError: one"
    assert tensorflow_reason(ValueError("{{function_node f}} bad shape [Op:MatMul]")) == "ValueError: bad shape"
    assert tensorflow_reason(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("weights", "dtypes", "expected"),
    [
        (Precision.FP32, ["float32", "float32"], Precision.FP32),
        (Precision.FP32, ["float16", "float32"], Precision.MIXED),
        (Precision.FP32, ["float16"], Precision.FP16),
        (Precision.BF16, ["float32"], Precision.BF16),
        (None, ["float32"], None),
        (None, [], None),
        (None, ["bfloat16"], Precision.BF16),
    ],
)
def test_operations_count_where_the_weights_are_full(
    weights: Precision | None, dtypes: list[str], expected: Precision | None
) -> None:
    assert precision_of_operations(weights, dtypes) is expected
