"""Keras 3 to SavedModel, and a SavedModel as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.convert.conftest import Bench, Lazy, sign

from paritygate.errors import ConversionError, InputFileError, StorageError, UsageError
from paritygate.models.tensorflow.importing import import_keras
from paritygate.models.tensorflow.savedmodel import load_savedmodel

pytestmark = pytest.mark.tensorflow

keras: Any = Lazy(import_keras)


@pytest.fixture
def classifier() -> Any:  # noqa: ANN401 - Keras has no types
    """Return a model with two inputs, one of them integers, and an output that its layer names."""
    keras.utils.set_random_seed(0)
    values = keras.Input((None, 4), name="values")
    ids = keras.Input((None,), name="ids", dtype="int32")
    hidden = keras.layers.Embedding(5, 4)(ids) + values
    return keras.Model([values, ids], keras.layers.Dense(2, name="score")(keras.layers.BatchNormalization()(hidden)))


def test_the_signature_has_the_names_declared(bench: Bench, classifier: Any) -> None:  # noqa: ANN401
    signature = sign(
        {"ids": "int32[batch, sequence]", "values": "float32[batch, sequence, 4]"},
        {"logits": "float32[batch, sequence, 2]"},
        batch=(1, 2, 8),
    )
    converted = bench.convert("keras", to="savedmodel", model=classifier, signature=signature)
    assert converted.conversion.signature == signature
    random = np.random.default_rng(0)
    values = random.standard_normal((3, 2, 4)).astype(np.float32)
    ids = random.integers(0, 5, (3, 2)).astype(np.int32)
    actual = load_savedmodel(converted.main)({"ids": ids, "values": values})
    assert list(actual) == ["logits"]
    assert np.array_equal(actual["logits"], classifier([values, ids], training=False))


def test_without_a_signature_it_has_the_names_of_the_model(bench: Bench, classifier: Any) -> None:  # noqa: ANN401
    converted = bench.convert("keras", to="savedmodel", model=classifier)
    assert converted.conversion.signature == sign(
        {"ids": "int32[batch, ids_dim1]", "values": "float32[batch, values_dim1, 4]"},
        {"score": "float32[batch, score_dim1, 2]"},
    )


def test_a_name_that_tensorflow_does_not_allow_is_an_error(bench: Bench, classifier: Any) -> None:  # noqa: ANN401
    signature = sign({"i:0": "int32[b, s]", "v": "float32[b, s, 4]"}, {"logits": "float32[b, s, 2]"})
    rename = {"ids": "i:0", "values": "v"}
    with pytest.raises(ConversionError, match=r"^converting keras to savedmodel-fp32 failed: ValueError: "):
        bench.convert("keras", to="savedmodel", model=classifier, signature=signature, rename=rename)


def test_inputs_that_the_model_does_not_have_are_refused(bench: Bench, classifier: Any) -> None:  # noqa: ANN401
    signature = sign({"ids": "int32[b, s]", "x": "float32[b, s, 4]"}, {"logits": "float32[b, s, 2]"})
    with pytest.raises(UsageError, match="got 'ids', 'x', expected 'values', 'ids'"):
        bench.convert("keras", to="savedmodel", model=classifier, signature=signature)


@pytest.fixture
def saved(bench: Bench, classifier: Any) -> Path:  # noqa: ANN401
    path = bench.folder / "saved"
    classifier.export(str(path), verbose=False)
    return path


def test_a_savedmodel_is_copied_as_it_is(bench: Bench, saved: Path) -> None:
    converted = bench.convert("savedmodel", saved, to="savedmodel")
    assert [spec.name for spec in converted.conversion.signature.inputs] == ["ids", "values"]
    originals = [path for path in saved.rglob("*") if path.is_file()]
    assert converted.files == {path.relative_to(saved).as_posix(): path.read_bytes() for path in originals}


def test_a_copy_does_not_rename(bench: Bench, saved: Path) -> None:
    with pytest.raises(UsageError, match="rename does not apply to a SavedModel"):
        bench.convert("savedmodel", saved, to="savedmodel", rename={"ids": "input_ids"})


def test_a_copy_with_other_outputs_than_promised_is_an_error(bench: Bench, saved: Path) -> None:
    signature = sign({"ids": "int32[b, s]", "values": "float32[b, s, 4]"}, {"logits": "float32[b, s, 2]"})
    with pytest.raises(ConversionError, match="its outputs are 'output_0', expected 'logits'"):
        bench.convert("savedmodel", saved, to="savedmodel", signature=signature)


def test_a_savedmodel_that_is_cut_off_is_an_input_error(bench: Bench, saved: Path) -> None:
    file = saved / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputFileError, match="is not a SavedModel"):
        bench.convert("savedmodel", saved, to="savedmodel")


def test_a_savedmodel_without_its_variables_does_not_load(bench: Bench, saved: Path) -> None:
    for file in (saved / "variables").iterdir():
        file.unlink()
    with pytest.raises(ConversionError, match=r"unsound: a file of the SavedModel .* is missing"):
        bench.convert("savedmodel", saved, to="savedmodel")


def test_a_link_out_of_the_savedmodel_is_not_followed(bench: Bench, saved: Path) -> None:
    outside = bench.folder / "outside.txt"
    outside.write_text("secret")
    (saved / "assets").mkdir(exist_ok=True)
    (saved / "assets" / "link.txt").symlink_to(outside)
    with pytest.raises(StorageError, match="is a link to a place outside"):
        bench.convert("savedmodel", saved, to="savedmodel")
