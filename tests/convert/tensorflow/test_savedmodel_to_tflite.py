"""SavedModel to TFLite, through the checks that every conversion ends with; run by LiteRT's own interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.convert.conftest import Bench, Converted, Lazy, assert_near, sign

from paritygate.convert.conversion import Calibration, Conversion
from paritygate.convert.tensorflow.check_tflite import check
from paritygate.errors import ConversionError, UnsupportedOperatorsError, UsageError
from paritygate.fixtures.sts import keras_model
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.precision import Precision

pytestmark = [pytest.mark.tensorflow, pytest.mark.litert]

tf: Any = Lazy(import_tensorflow)
keras: Any = Lazy(import_keras)
_RANDOM = np.random.default_rng(0)
_WEIGHTS = _RANDOM.standard_normal((16, 8)).astype(np.float32)
_X = _RANDOM.standard_normal((32, 16)).astype(np.float32)
_IDS = np.array([[1, 2**24 + 1, 2**40 + 1], [-5, 2**31, 2**53 + 1]])


def _save(path: Path, function: Callable[..., Any], *specs: Any) -> Path:  # noqa: ANN401 - TensorFlow has no types
    module = tf.Module()
    module.weights = tf.Variable(_WEIGHTS)
    traced = tf.function(lambda *tensors: function(module, *tensors), input_signature=specs, autograph=False)
    module.serve = traced
    tf.saved_model.save(module, str(path), signatures={"serving_default": traced.get_concrete_function()})
    return path


def _x(shape: Sequence[int | None] = (None, 16), dtype: str = "float32") -> Any:  # noqa: ANN401 - a tf.TensorSpec
    return tf.TensorSpec(shape, tf.as_dtype(dtype), name="x")


def _run(converted: Converted, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    from ai_edge_litert.interpreter import Interpreter

    found = Interpreter(model_path=str(converted.main)).get_signature_runner("serving_default")(**inputs)
    return {name: np.asarray(array) for name, array in found.items()}


def _by(*batches: Mapping[str, NDArray[Any]]) -> Calibration:
    return Calibration(read=lambda: iter(batches), tool="onnxruntime", facts={"rows": 32})


def _two_inputs(module: Any, first: Any, second: Any) -> dict[str, Any]:  # noqa: ANN401 - a module and tensors
    return {"z": first @ module.weights, "a": second + 1, "m": tf.nn.relu(first)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel whose outputs are not in alphabetical order, one name no Python name."""
    first = tf.TensorSpec((None, 16), tf.float32, name="first.1")
    second = tf.TensorSpec((None, None), tf.int64, name="second")
    return _save(tmp_path_factory.mktemp("saved") / "model", _two_inputs, first, second)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel of one dense layer."""
    return _save(
        tmp_path_factory.mktemp("dense") / "model", lambda module, x: {"y": tf.nn.relu(x @ module.weights)}, _x()
    )


def test_each_name_has_its_own_tensor_and_open_dims_stay_open(bench: Bench, saved: Path) -> None:
    signature = sign(
        {"second": "int64[batch, sequence]", "first.1": "float32[batch, 16]"},
        {"z": "float32[batch, 8]", "a": "int64[batch, sequence]", "m": "float32[batch, 16]"},
        batch=(1, 2, 8),
        sequence=(1, 3, 9),
    )
    converted = bench.convert("savedmodel", saved, to="tflite", signature=signature)
    assert converted.conversion.signature == signature
    assert converted.conversion.facts["loaded_in"].startswith("litert ")
    for rows in (2, 1):
        actual = _run(converted, {"first.1": _X[:rows], "second": _IDS[:rows]})
        assert_near(actual["z"], _X[:rows] @ _WEIGHTS)
        assert_near(actual["m"], np.maximum(_X[:rows], 0))
        # Above 2 ** 53 not even float64 would keep them.
        np.testing.assert_array_equal(actual["a"], _IDS[:rows] + 1)


def test_without_a_signature_the_models_own_is_taken(bench: Bench, saved: Path) -> None:
    assert bench.convert("savedmodel", saved, to="tflite").conversion.signature == sign(
        {"first.1": "float32[batch, 16]", "second": "int64[batch, second_dim1]"},
        {"a": "int64[batch, a_dim1]", "m": "float32[batch, 16]", "z": "float32[batch, 8]"},
    )


def test_fp16_stores_the_weights_in_half_and_answers_nearly_the_same(bench: Bench, dense: Path) -> None:
    converted = bench.convert("savedmodel", dense, to="tflite", precision=Precision.FP16)
    rounded = np.maximum(_X @ _WEIGHTS.astype(np.float16).astype(np.float32), 0)
    assert_near(_run(converted, {"x": _X})["y"], rounded)
    assert converted.conversion.facts["operators"]["DEQUANTIZE"] == 1
    assert converted.conversion.notes == ()


def test_constants_beyond_float16_are_said_to_be_changed(bench: Bench) -> None:
    path = _save(bench.folder / "mask", lambda module, x: {"y": tf.where(x > 0, x, -1e9) @ module.weights}, _x())
    converted = bench.convert("savedmodel", path, to="tflite", precision=Precision.FP16).conversion
    assert converted.notes == ("constants beyond its range were changed: values at the limit of float16, 65504: 1",)


def test_int8_quantizes_weights_and_activations_but_not_inputs_and_outputs(bench: Bench, dense: Path) -> None:
    calibration = _by({"x": _X[:20]}, {"x": _X[20:]})
    converted = bench.convert("savedmodel", dense, to="tflite", precision=Precision.INT8, calibration=calibration)
    actual = _run(converted, {"x": _X})["y"]
    difference = float(np.max(np.abs(actual - np.maximum(_X @ _WEIGHTS, 0))))
    assert actual.dtype == np.float32
    # Steps of 256: the outputs are integers times one scale.
    assert 0 < difference < 0.15
    assert np.unique(actual).size <= 256
    assert converted.conversion.signature.inputs[0].dtype == "float32"
    assert converted.conversion.facts["calibration"] == {
        "rows": 32,
        "tool": "tensorflow",
        "method": "minmax",
        "activations": "int8",
    }
    assert converted.conversion.facts["float_operators"] == {}
    assert converted.conversion.notes == ()


def test_operators_that_stay_in_floats_are_named(bench: Bench) -> None:
    path = _save(bench.folder / "neg", lambda module, x: {"y": tf.math.negative(x @ module.weights)}, _x())
    converted = bench.convert(
        "savedmodel", path, to="tflite", precision=Precision.INT8, calibration=_by({"x": _X})
    ).conversion
    assert converted.notes == ("1 of 4 operators still compute in float32: NEG (1)",)
    assert converted.facts["float_operators"] == {"NEG": 1}


def test_batches_of_every_shape_count_however_they_come(bench: Bench) -> None:
    def function(module: Any, first: Any, second: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"y": tf.nn.relu(first + second) @ module.weights}

    specs = [tf.TensorSpec((None, None, 16), tf.float32, name=name) for name in ("first", "second")]
    path = _save(bench.folder / "sum", function, *specs)
    # Large values are in one batch only: its shape decides whether they are within the ranges.
    batches = [
        {name: _X[:rows, None].repeat(steps, axis=1) * factor for name in ("first", "second")}
        for rows, steps, factor in ((8, 3, np.float32(1)), (5, 2, np.float32(20)), (8, 4, np.float32(1)))
    ]
    expected = [np.maximum(batch["first"] * 2, 0) @ _WEIGHTS for batch in batches]
    limit = 0.03 * max(float(np.max(np.abs(answers))) for answers in expected)
    for number, order in enumerate((batches, batches[::-1])):
        place = Bench(folder=bench.folder / str(number))
        converted = place.convert("savedmodel", path, to="tflite", precision=Precision.INT8, calibration=_by(*order))
        for batch, answers in zip(batches, expected, strict=True):
            assert np.max(np.abs(_run(converted, batch)["y"] - answers)) < limit


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (None, "needs real inputs for calibration"),
        (_by(), "the calibration holds none"),
        (_by({"z": _X}), "have no 'x'"),
    ],
)
def test_int8_without_inputs_to_calibrate_by_is_refused(
    bench: Bench, dense: Path, calibration: Calibration | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        bench.convert("savedmodel", dense, to="tflite", precision=Precision.INT8, calibration=calibration)
    assert "calibration" in caught.value.hint


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_inputs_to_calibrate_by_are_finite(bench: Bench, dense: Path, value: float) -> None:
    # The converter is killed by infinity, and quantizes by the other rows as if there were no NaN.
    calibration = _by({"x": _X}, {"x": np.full_like(_X, value)})
    with pytest.raises(ConversionError, match="'x' holds NaN or infinity"):
        bench.convert("savedmodel", dense, to="tflite", precision=Precision.INT8, calibration=calibration)


def test_an_operator_that_only_tensorflow_has_is_refused_with_its_place(bench: Bench) -> None:
    def function(module: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"y": tf.math.erf(x, name="my_erf") @ module.weights}

    path = _save(bench.folder / "erf", function, _x())
    with pytest.raises(UnsupportedOperatorsError, match="TFLite does not have this operator of the model: Erf") as err:
        bench.convert("savedmodel", path, to="tflite")
    ((operator, node, reason, hint),) = err.value.rows
    assert (operator, node) == ("Erf", "my_erf")
    assert reason.endswith("on (tensor<?x16xf32>) -> tensor<?x16xf32>")
    assert "serve it as a SavedModel" in hint


def test_a_dtype_that_an_operator_lacks_is_in_the_reason(bench: Bench) -> None:
    path = _save(bench.folder / "double", lambda _, x: {"y": tf.math.tanh(x)}, _x(dtype="float64"))
    with pytest.raises(UnsupportedOperatorsError) as caught:
        bench.convert("savedmodel", path, to="tflite")
    assert "xf64>" in caught.value.rows[0][2]


def test_a_recurrent_layer_with_an_open_batch_is_refused_with_what_to_do(bench: Bench) -> None:
    x = keras.Input((4, 3), name="x")
    model = keras.Model({"x": x}, {"y": keras.layers.GRU(2)(x)})
    model.export(str(bench.folder / "gru"), verbose=False)
    with pytest.raises(UnsupportedOperatorsError, match="TensorListReserve") as caught:
        bench.convert("savedmodel", bench.folder / "gru", to="tflite")
    assert "unroll=True" in caught.value.hint
    unrolled = keras.Model({"x": x}, {"y": keras.layers.GRU(2, unroll=True)(x)})
    unrolled.export(str(bench.folder / "unrolled"), verbose=False)
    values = _X[:, :12].reshape(-1, 4, 3)
    assert_near(
        _run(bench.convert("savedmodel", bench.folder / "unrolled", to="tflite"), {"x": values})["y"],
        unrolled({"x": values})["y"],
    )


def test_an_axis_inserted_by_slicing_is_refused_with_what_to_do(bench: Bench) -> None:
    path = _save(bench.folder / "axis", lambda _, x: {"y": x[..., None]}, _x((None, None)))
    with pytest.raises(UnsupportedOperatorsError, match="StridedSlice") as caught:
        bench.convert("savedmodel", path, to="tflite")
    assert "tf.expand_dims(x, -1)" in caught.value.hint
    path = _save(bench.folder / "expanded", lambda _, x: {"y": tf.expand_dims(x, -1)}, _x((None, None)))
    assert_near(_run(bench.convert("savedmodel", path, to="tflite"), {"x": _X})["y"], _X[..., None])


@pytest.mark.parametrize("is_erfc", [True, False])
def test_an_exact_gelu_becomes_tflites_own(bench: Bench, *, is_erfc: bool) -> None:
    # Keras computes its own by erfc; models that are written out, by erf. TFLite has neither by itself.
    def function(module: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401
        hidden = x @ module.weights
        if is_erfc:
            return {"y": keras.activations.gelu(hidden, approximate=False)}
        return {"y": 0.5 * hidden * (1.0 + tf.math.erf(hidden * np.float32(0.5**0.5)))}

    path = _save(bench.folder / "gelu", function, _x())
    converted = bench.convert("savedmodel", path, to="tflite")
    assert converted.conversion.facts["operators"] == {"FULLY_CONNECTED": 1, "GELU": 1}
    expected = tf.nn.gelu(tf.constant(_X.astype(np.float64) @ _WEIGHTS), approximate=False)
    assert_near(_run(converted, {"x": _X})["y"], tf.cast(expected, tf.float32))


def test_a_transformer_over_ids_of_any_length_is_converted(bench: Bench) -> None:
    model = keras_model()
    model.export(str(bench.folder / "sts"), verbose=False)
    converted = bench.convert("savedmodel", bench.folder / "sts", to="tflite")
    assert not [name for name in converted.conversion.facts["operators"] if name.startswith("Flex")]
    for rows, length in ((3, 20), (1, 128)):
        ids = np.random.default_rng(rows).integers(5, 60, (rows, length))
        mask = (np.arange(length) < length - np.arange(rows)[:, None]).astype(np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask}
        assert_near(_run(converted, inputs)["logits"], model(inputs)["logits"])


def test_a_dim_that_the_file_has_fixed_is_named(bench: Bench) -> None:
    path = _save(bench.folder / "one", lambda module, x: {"y": x @ module.weights}, _x((1, 16)))
    signature = sign({"x": "float32[batch, 16]"}, {"y": "float32[batch, 8]"}, batch=(1, 2, 8))
    with pytest.raises(ConversionError, match="dim 0 of input 'x' is fixed at 1, expected batch"):
        bench.convert("savedmodel", path, to="tflite", signature=signature)


def test_names_cannot_be_changed_on_the_way(bench: Bench, dense: Path) -> None:
    with pytest.raises(UsageError, match="rename does not apply to TFLite"):
        bench.convert("savedmodel", dense, to="tflite", rename={"y": "logits"})


def test_a_file_that_litert_does_not_load_is_unsound(bench: Bench, dense: Path) -> None:
    converted = bench.convert("savedmodel", dense, to="tflite")
    converted.main.write_bytes(converted.main.read_bytes()[:300])
    with pytest.raises(ConversionError, match="the converted model is unsound: LiteRT does not read"):
        check(converted.job, Conversion(main="model.tflite", signature=converted.conversion.signature))
