"""Keras models and SavedModels behind a signature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.models.tensorflow.keras_model import as_named_function, notes_on_names, signature_of_keras
from paritygate.models.tensorflow.savedmodel import load_savedmodel, note_on_signatures, signature_of_savedmodel
from paritygate.signature import Signature, TensorSpec, name_unknown_dims

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def keras() -> Any:  # noqa: ANN401 - Keras has no types
    return import_keras()


def _spec(name: str, *shape: int | str | None, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def test_open_dims_get_names_and_only_the_batch_is_shared() -> None:
    scalar, unknown = _spec("s"), TensorSpec(name="u", dtype="float32", shape=None)
    found = name_unknown_dims([_spec("a", None, None, 3), scalar], [_spec("b", None, None), unknown])
    assert found.inputs == (_spec("a", "batch", "a_dim1", 3), scalar)
    assert found.outputs == (_spec("b", "batch", "b_dim1"), unknown)


def test_an_output_is_no_batch_where_no_input_is_one() -> None:
    found = name_unknown_dims([_spec("a", 4)], [_spec("b", None)])
    assert found.outputs == (_spec("b", "b_dim0"),)


@pytest.mark.parametrize("structure", ["bare", "list", "twice", "dict", "sequential"])
def test_the_names_of_a_model_are_found_and_its_inputs_fed(keras: Any, structure: str) -> None:  # noqa: ANN401
    x = keras.Input((2,), name="x")
    y = keras.Input((2,), name="y", dtype="int32")
    plus = keras.layers.Rescaling(1.0, 1.0)
    made = {
        "bare": lambda: keras.Model(x, keras.layers.Rescaling(1.0, 1.0, name="plus")(x)),
        "list": lambda: keras.Model([x, y], [keras.layers.Rescaling(1.0, 1.0, name="plus")(x), y]),
        "twice": lambda: keras.Model([x, y], [plus(x), plus(x)]),
        "dict": lambda: keras.Model({"y": y, "x": x}, {"sum": x + 1.0, "ids": y}),
        "sequential": lambda: keras.Sequential(
            [keras.Input((2,), name="x"), keras.layers.Rescaling(1.0, 1.0, name="plus")]
        ),
    }
    expected = {
        "bare": (["x"], ["plus"]),
        # An input that is handed on, and two outputs of one layer, are told apart by their order.
        "list": (["x", "y"], ["plus", "output_1"]),
        "twice": (["x", "y"], ["output_0", "output_1"]),
        "dict": (["y", "x"], ["sum", "ids"]),
        "sequential": (["x"], ["plus"]),
    }
    model = made[structure]()
    signature = signature_of_keras(model, {})
    assert ([spec.name for spec in signature.inputs], [spec.name for spec in signature.outputs]) == expected[structure]
    fed = {"x": np.ones((3, 2), np.float32), "y": np.zeros((3, 2), np.int32)}
    outputs = as_named_function(model, signature, {})(*(fed[spec.name] for spec in signature.inputs))
    values = {spec.name: np.asarray(value) for spec, value in zip(signature.outputs, outputs, strict=True)}
    assert float(values.get("sum", next(iter(values.values())))[0, 0]) == 2.0


def test_a_model_runs_in_inference_mode(keras: Any) -> None:  # noqa: ANN401
    x = keras.Input((1000,), name="x")
    model = keras.Model(x, keras.layers.Dropout(0.5)(x))
    (found,) = as_named_function(model, signature_of_keras(model, {}), {})(np.ones((1, 1000), np.float32))
    assert np.array_equal(found, np.ones((1, 1000)))


def test_renaming_what_the_model_does_not_have_is_refused(keras: Any) -> None:  # noqa: ANN401
    x = keras.Input((2,), name="x")
    with pytest.raises(UsageError, match=r"rename names 'z', .* \(it has: x, score\)"):
        signature_of_keras(keras.Model(x, keras.layers.Dense(1, name="score")(x)), {"z": "y"})


def _two_heads(keras: Any) -> Any:  # noqa: ANN401
    x = keras.Input((2,), name="x")
    heads = [keras.layers.Rescaling(1.0, float(plus), name=name)(x) for plus, name in enumerate(("same", "plus"))]
    return keras.Model(x, heads)


@pytest.mark.parametrize("rename", [{"output_1": "more"}, {"plus": "more"}])
def test_an_output_is_renamed_by_its_layer_or_for_one_version_by_its_order(keras: Any, rename: dict[str, str]) -> None:  # noqa: ANN401
    model = _two_heads(keras)
    signature = signature_of_keras(model, rename)
    assert [spec.name for spec in signature.outputs] == ["same", "more"]
    _, more = as_named_function(model, signature, rename)(np.zeros((1, 2), np.float32))
    assert float(more[0, 0]) == 1.0
    notes = notes_on_names(model, signature, rename)
    said = ("output_1 is the output of layer 'plus': the next version knows it as 'plus' only, so write that, or "
            "model.rename: {plus: more}")  # fmt: skip
    assert notes == ((said,) if "output_1" in rename else ())


def test_an_output_is_not_renamed_twice(keras: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match="rename names 'output_1', which the model does not have"):
        signature_of_keras(_two_heads(keras), {"plus": "more", "output_1": "most"})


def test_declared_outputs_are_found_by_the_names_of_their_layers_in_any_order(keras: Any) -> None:  # noqa: ANN401
    signature = Signature(
        inputs=(_spec("x", "batch", 2),), outputs=(_spec("plus", "batch", 2), _spec("same", "batch", 2))
    )
    plus, same = as_named_function(_two_heads(keras), signature, {})(np.zeros((1, 2), np.float32))
    assert (float(plus[0, 0]), float(same[0, 0])) == (1.0, 0.0)


def test_a_ragged_input_is_refused(keras: Any) -> None:  # noqa: ANN401
    x = keras.Input((2,), name="x", sparse=True)
    with pytest.raises(UsageError, match="input 'x' of the Keras model is sparse or ragged"):
        signature_of_keras(keras.Model(x, keras.layers.Dense(1)(x)), {})


def test_keras_on_another_backend_is_refused(keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(BackendError, match="the backend 'jax', not on tensorflow") as caught:
        import_keras()
    assert "KERAS_BACKEND=tensorflow" in caught.value.hint


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel with two signatures and a name that is no Python name."""
    tf = import_tensorflow()
    module = tf.Module()
    specs = [tf.TensorSpec((None, 2), tf.float32, name="x.1"), tf.TensorSpec(None, tf.int64, name="any")]
    module.two = tf.function(lambda x, y: {"z": x * 2, "a": y}, input_signature=specs)
    module.one = tf.function(lambda x: {"out": x + 1}, input_signature=specs[:1])
    path = tmp_path_factory.mktemp("saved") / "model"
    signatures = {"serving_default": module.two.get_concrete_function(), "other": module.one.get_concrete_function()}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def test_the_signature_is_read_without_loading_the_graph(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_tensorflow().saved_model, "load", None)
    assert signature_of_savedmodel(saved) == Signature(
        inputs=(TensorSpec(name="any", dtype="int64", shape=None), _spec("x.1", "batch", 2)),
        outputs=(TensorSpec(name="a", dtype="int64", shape=None), _spec("z", "batch", 2)),
    )
    assert [spec.name for spec in signature_of_savedmodel(saved, "other").outputs] == ["out"]


def test_a_saved_function_is_called_by_the_names_of_its_signature(saved: Path) -> None:
    found = load_savedmodel(saved)({"x.1": np.ones((1, 2), np.float32), "any": np.array([7])})
    assert np.array_equal(found["z"], [[2, 2]])
    assert np.array_equal(found["a"], [7])


def test_a_signature_that_is_not_there_is_named_with_those_that_are(saved: Path) -> None:
    with pytest.raises(InputFileError, match=r"no signature 'missing' \(it has: other, serving_default\)"):
        signature_of_savedmodel(saved, "missing")


def test_the_hint_of_a_missing_signature_says_how_another_is_chosen(saved: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        signature_of_savedmodel(saved, "missing")
    assert caught.value.hint == "name one of these: model.signature: other in a spec, or --signature"


def test_all_signatures_are_named_beside_the_one_that_is_used(saved: Path) -> None:
    assert note_on_signatures(saved, "model/", None) == (
        "model/ has 2 signatures: serving_default (used), other; model.signature: other in a spec, or --signature, "
        "chooses another"
    )
    assert "other (used), serving_default" in note_on_signatures(saved, "model", "other")


def test_a_folder_without_a_model_is_no_savedmodel(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"saved_model\.pb is missing"):
        signature_of_savedmodel(tmp_path)
