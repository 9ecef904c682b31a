"""What is particular to TFLite models in LiteRT."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from paritygate.backends import version_of
from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.precision import Precision
from paritygate.signature import TensorSpec
from paritygate.validate.runners import litert
from paritygate.validate.runners.opening import open_runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from paritygate.validate.runners.litert import LiteRtRunner

pytestmark = [pytest.mark.tensorflow, pytest.mark.litert]
_RANDOM = np.random.default_rng(1)
_WEIGHTS = _RANDOM.standard_normal((8, 16)).astype(np.float32)
_X = _RANDOM.standard_normal((4, 8)).astype(np.float32)
_TABLE = _RANDOM.standard_normal((5, 3)).astype(np.float32)


class _Shelf(Struct, frozen=True, kw_only=True):
    """A folder of TFLite files."""

    folder: Path

    def write(
        self,
        name: str,
        function: Callable[..., dict[str, Any]],
        *specs: Any,  # noqa: ANN401 - a tf.TensorSpec
        change: Callable[[Any, Any], None] | None = None,
    ) -> Path:
        tf = import_tensorflow()
        module = tf.Module()
        module.weights = tf.Variable(_WEIGHTS)
        module.serve = tf.function(
            lambda *tensors: function(tf, module, *tensors), input_signature=specs or [self.spec("x", (None, 8))]
        )
        saved = str(self.folder / f"{name}.saved")
        tf.saved_model.save(module, saved, signatures={"serving_default": module.serve})
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=["serving_default"])
        if change is not None:
            change(tf, converter)
        path = self.folder / f"{name}.tflite"
        path.write_bytes(converter.convert())
        return path

    @staticmethod
    def spec(name: str, shape: tuple[int | None, ...], dtype: str = "float32") -> Any:  # noqa: ANN401
        tf = import_tensorflow()
        return tf.TensorSpec(shape, tf.as_dtype(dtype), name=name)


def _open(path: Path, **fields: Any) -> LiteRtRunner:  # noqa: ANN401 - any field
    return litert.open_model(
        LoadedModel(ref=replace(parse_source(path.name, path.parent), rename=fields.pop("rename", {})), **fields)
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> _Shelf:
    """Return a folder to write models into."""
    return _Shelf(folder=tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def dense(shelf: _Shelf) -> Path:
    """Return a dense layer, `y = x @ weights`, with a scalar beside it and its input handed on."""

    def function(tf: Any, module: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow ships no types
        return {"y": tf.matmul(x, module.weights), "rows": tf.shape(x)[0], "same": x}

    return shelf.write("dense", function)


@pytest.fixture(scope="module")
def lookup(shelf: _Shelf) -> Path:
    """Return a lookup of ids of both widths in a table of 5, the ids handed on with 1 added."""

    def function(tf: Any, module: Any, ids: Any, more: Any) -> dict[str, Any]:  # noqa: ANN401, ARG001
        rows = tf.gather(_TABLE, tf.math.floormod(ids, 5))
        return {"row": rows, "plain": tf.gather(_TABLE, more), "next": ids + 1, "following": more + 1}

    return shelf.write(
        "lookup", function, shelf.spec("ids", (None, None), "int64"), shelf.spec("more", (None, None), "int32")
    )


def test_names_and_open_dims_are_those_of_the_signature(lookup: Path) -> None:
    signature = _open(lookup).signature
    assert signature.inputs == (
        TensorSpec(name="ids", dtype="int64", shape=("batch", "ids_dim1")),
        TensorSpec(name="more", dtype="int32", shape=("batch", "more_dim1")),
    )
    assert [spec.name for spec in signature.outputs] == ["following", "next", "plain", "row"]


def test_every_batch_may_have_another_shape(dense: Path) -> None:
    runner = _open(dense)
    for rows in (4, 1, 3, 4, 4):
        found = runner.run({"x": _X[:rows]})
        np.testing.assert_allclose(found["y"], _X[:rows] @ _WEIGHTS, rtol=1e-5, atol=1e-6)
        assert (found["rows"].shape, found["rows"].dtype, found["rows"]) == ((), np.int32, rows)


def test_images_in_nhwc_of_any_size_are_taken_where_the_model_takes_them(tmp_path: Path) -> None:
    keras = import_keras()
    image = keras.Input((None, None, 3), name="image")
    hidden = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3, activation="relu")(image))
    model = keras.Model({"image": image}, {"logits": keras.layers.Dense(2)(hidden)})
    model.export(str(tmp_path / "saved"), verbose=False)
    converter = import_tensorflow().lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"))
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    # The sizes that stand in the file, 1 by 1, are too small for the kernel: that is no reason to refuse it.
    runner = _open(tmp_path / "net.tflite")
    small = np.zeros((1, 2, 2, 3), np.float32)
    for shape in ((2, 9, 7, 3), (1, 5, 5, 3)):
        with pytest.raises(BackendError) as raised:
            runner.run({"image": small})
        # LiteRT says it twice in a row, without a blank between words.
        assert str(raised.value) == (
            "LiteRT failed on image: float32[1, 2, 2, 3]: XNNPack delegate failed to reshape runtime; "
            "Node number 3 (TfLiteXNNPackDelegate) failed to prepare"
        )
        images = _RANDOM.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(
            runner.run({"image": images})["logits"], model({"image": images})["logits"], rtol=1e-4, atol=1e-5
        )


def test_ids_that_float32_does_not_hold_stay_exact(lookup: Path) -> None:
    ids = np.array([[2**24 + 1, 2**40 + 3], [2**53 + 1, 4]])
    more = np.array([[0, 1], [2, 4]], dtype=np.int32)
    found = _open(lookup).run({"ids": ids, "more": more})
    np.testing.assert_array_equal(found["next"], ids + 1)
    np.testing.assert_array_equal(found["row"], _TABLE[ids % 5])
    np.testing.assert_array_equal(found["plain"], _TABLE[more])
    large = np.array([[2**24 + 1]], dtype=np.int32)
    with pytest.raises(BackendError, match="out of bounds"):
        _open(lookup).run({"ids": ids[:1, :1], "more": large})


def test_an_old_complaint_is_not_repeated_in_a_new_one(lookup: Path) -> None:
    runner = _open(lookup)
    one = np.zeros((1, 1), np.int64)
    for _ in range(3):
        with pytest.raises(BackendError) as raised:
            runner.run({"ids": one, "more": np.array([[7]], np.int32)})
        assert str(raised.value).count("gather index out of bounds") == 1
        assert "; Node number" in str(raised.value)
        assert runner.run({"ids": one, "more": np.array([[3]], np.int32)})["following"] == 4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"expects the inputs x \(got nothing"),
        ({"x": _X, "z": _X}, r"\(got x, z"),
        ({"x": _X.astype(np.float64)}, r"\(got x: float64\[4, 8\]"),
        ({"x": _X[0]}, r"\(got x: float32\[8\]"),
        ({"x": _X[:, :7]}, r"expects x: float32\[batch, 8\] \(got x: float32\[4, 7\]"),
    ],
)
def test_inputs_that_are_not_the_models_are_refused(dense: Path, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendError, match=message):
        _open(dense).run(inputs)


def test_outputs_belong_to_the_caller_though_the_model_hands_its_input_on(dense: Path) -> None:
    runner = _open(dense)
    given = _X.copy()
    first = runner.run({"x": given})
    runner.run({"x": given * 2})
    np.testing.assert_array_equal(first["same"], _X)
    first["same"][...] = 0
    np.testing.assert_array_equal(given, _X)


def test_names_served_replace_the_models(dense: Path) -> None:
    runner = _open(dense, rename={"x": "features", "y": "logits"})
    found = runner.run({"features": _X})
    assert list(found) == [spec.name for spec in runner.signature.outputs] == ["rows", "same", "logits"]
    with pytest.raises(UsageError, match="'z' cannot be renamed"):
        _open(dense, rename={"z": "a"})


def test_calls_from_several_threads_do_not_mix(dense: Path) -> None:
    runner = _open(dense)
    barrier = threading.Barrier(4)

    def call(index: int) -> None:
        barrier.wait()
        for step in range(20):
            x = np.full((1 + (index + step) % 3, 8), index, np.float32)
            np.testing.assert_array_equal(runner.run({"x": x})["same"], x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))


def test_facts_say_what_ran(dense: Path) -> None:
    facts = _open(dense).facts
    assert (facts.runtime, facts.version, facts.device) == ("litert", version_of("ai-edge-litert"), "cpu")
    assert facts.precision_found is Precision.FP32
    assert facts.optimisation is not None
    assert facts.optimisation.startswith("xnnpack, ")
    assert "thread" in facts.optimisation
    assert facts.notes == ()


def _half(tf: Any, converter: Any) -> None:  # noqa: ANN401 - TensorFlow ships no types
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]


def _integers(tf: Any, converter: Any) -> None:  # noqa: ANN401 - as _half
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter([[_X]])


def _product(tf: Any, module: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401 - as _half
    return {"y": tf.nn.relu(tf.matmul(x, module.weights))}


@pytest.mark.parametrize(
    ("change", "precision", "limit", "note"),
    [(_half, Precision.FP16, 1e-2, "compute in float32"), (_integers, Precision.INT8, 2e-1, "")],
)
def test_the_precision_of_the_weights_is_found_and_shapes_stay_free(
    shelf: _Shelf, change: Callable[[Any, Any], None], precision: Precision, limit: float, note: str
) -> None:
    runner = _open(shelf.write(str(precision), _product, change=change))
    assert runner.facts.precision_found is precision
    assert [note in text for text in runner.facts.notes] == ([True] if note else [])
    for rows in (4, 1, 2):
        difference = np.abs(runner.run({"x": _X[:rows]})["y"] - np.maximum(_X[:rows] @ _WEIGHTS, 0))
        assert 0 < difference.max() < limit


def test_rounded_weights_are_found_whatever_they_are_stored_in(shelf: _Shelf) -> None:
    rounded = _WEIGHTS.astype(np.float16).astype(np.float32)
    path = shelf.write("rounded", lambda tf, _, x: {"y": tf.matmul(x, tf.constant(rounded))})
    assert _open(path).facts.precision_found is Precision.FP16


def test_a_file_with_tensorflows_own_kernels_is_refused(shelf: _Shelf) -> None:
    def flex(tf: Any, converter: Any) -> None:  # noqa: ANN401 - TensorFlow ships no types
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]

    path = shelf.write("flex", lambda tf, _, x: {"y": tf.math.erf(x)}, change=flex)
    with pytest.raises(BackendError, match="needs TensorFlow's own kernels, which LiteRT does not have: Erf"):
        _open(path)


def test_a_file_that_is_none_is_an_input_file_error(tmp_path: Path, dense: Path) -> None:
    (tmp_path / "zip.tflite").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(InputFileError, match=r"zip\.tflite is not a TFLite model: bytes 4 to 7 are"):
        _open(tmp_path / "zip.tflite")
    (tmp_path / "empty.tflite").touch()
    with pytest.raises(InputFileError, match="is not a TFLite model"):
        _open(tmp_path / "empty.tflite")
    (tmp_path / "cut.tflite").write_bytes(dense.read_bytes()[:500])
    with pytest.raises(InputFileError, match=r"LiteRT does not read .*cut\.tflite: .*not a valid Flatbuffer"):
        _open(tmp_path / "cut.tflite")
    missing = ModelRef(text="missing.tflite", folder=tmp_path, kind=SourceKind.TFLITE)
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        open_runner(LoadedModel(ref=missing))


def test_a_file_without_a_signature_cannot_be_called_by_name(tmp_path: Path) -> None:
    tf = import_tensorflow()
    function = tf.function(lambda x: x * 2, input_signature=[tf.TensorSpec((None, 2), tf.float32)])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    # As files from before there were signatures have none.
    converter.experimental_lower_to_saved_model = False
    (tmp_path / "old.tflite").write_bytes(converter.convert())
    with pytest.raises(InputFileError, match=r"has no signature 'serving_default' \(it has: none\)") as raised:
        _open(tmp_path / "old.tflite")
    assert "signature_keys" in raised.value.hint


def test_another_device_than_the_cpu_is_refused(dense: Path) -> None:
    model = LoadedModel(ref=parse_source(dense.name, dense.parent))
    with pytest.raises(BackendError, match="not on cuda"):
        litert.open_model(replace(model, device="cuda"))
