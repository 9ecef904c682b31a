"""Keras 3 to SavedModel, and a SavedModel as it is."""

from __future__ import annotations

import numpy as np
import pytest

from paritygate.convert.checked import convert_and_check
from paritygate.errors import ConversionError, InputFileError, UsageError
from paritygate.savedmodel import load_savedmodel
from paritygate.tensorflow_import import import_keras

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def keras():
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'paritygate[tensorflow]'")
    return import_keras()


@pytest.fixture
def classifier(keras):
    """Return a model with two inputs, one of them integers, and an unnamed output."""
    keras.utils.set_random_seed(0)
    values = keras.Input((None, 4), name="values")
    ids = keras.Input((None,), name="ids", dtype="int32")
    hidden = keras.layers.Embedding(5, 4)(ids) + values
    return keras.Model([values, ids], keras.layers.Dense(2)(keras.layers.BatchNormalization()(hidden)))


def test_the_signature_has_the_names_declared(classifier, make_job, sign):
    signature = sign(
        {"ids": "int32[batch, sequence]", "values": "float32[batch, sequence, 4]"},
        {"logits": "float32[batch, sequence, 2]"},
        batch=(1, 2, 8),
    )
    job = make_job(kind="keras", model=classifier, signature=signature)
    conversion = convert_and_check(job, "savedmodel")
    assert conversion.signature == signature
    random = np.random.default_rng(0)
    values = random.standard_normal((3, 2, 4), np.float32)
    ids = random.integers(0, 5, (3, 2)).astype(np.int32)
    actual = load_savedmodel(job.folder)({"ids": ids, "values": values})
    assert list(actual) == ["logits"]
    assert np.array_equal(actual["logits"], classifier([values, ids], training=False))


def test_without_a_signature_it_has_the_names_of_the_model(classifier, make_job, sign):
    conversion = convert_and_check(make_job(kind="keras", model=classifier), "savedmodel")
    assert conversion.signature == sign(
        {"ids": "int32[batch, ids_dim1]", "values": "float32[batch, values_dim1, 4]"},
        {"output_0": "float32[batch, output_0_dim1, 2]"},
    )


def test_a_name_that_tensorflow_does_not_allow_is_an_error(classifier, make_job, sign):
    signature = sign({"i:0": "int32[b, s]", "v": "float32[b, s, 4]"}, {"logits": "float32[b, s, 2]"})
    job = make_job(kind="keras", model=classifier, signature=signature, rename={"ids": "i:0", "values": "v"})
    with pytest.raises(ConversionError, match="converting keras to savedmodel failed: ValueError"):
        convert_and_check(job, "savedmodel")


def test_inputs_that_the_model_does_not_have_are_refused(classifier, make_job, sign):
    signature = sign({"ids": "int32[b, s]", "x": "float32[b, s, 4]"}, {"logits": "float32[b, s, 2]"})
    with pytest.raises(UsageError, match="feeds 'ids', 'x', the Keras model takes 'values', 'ids'"):
        convert_and_check(make_job(kind="keras", model=classifier, signature=signature), "savedmodel")


@pytest.fixture
def saved(classifier, keras, tmp_path):
    path = tmp_path / "saved"
    classifier.export(str(path), verbose=False)
    return path


def test_a_savedmodel_is_copied_as_it_is(saved, make_job):
    job = make_job(saved, kind="savedmodel")
    conversion = convert_and_check(job, "savedmodel")
    assert [spec.name for spec in conversion.signature.inputs] == ["ids", "values"]
    originals = {path.relative_to(saved): path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    copies = {path.relative_to(job.folder): path.read_bytes() for path in job.folder.rglob("*") if path.is_file()}
    assert copies == originals


def test_a_copy_does_not_rename(saved, make_job):
    with pytest.raises(UsageError, match="rename does not apply to a SavedModel"):
        convert_and_check(make_job(saved, kind="savedmodel", rename={"ids": "input_ids"}), "savedmodel")


def test_a_copy_with_other_outputs_than_promised_is_an_error(saved, make_job, sign):
    signature = sign({"ids": "int32[b, s]", "values": "float32[b, s, 4]"}, {"logits": "float32[b, s, 2]"})
    with pytest.raises(ConversionError, match="its outputs are 'output_0', promised are 'logits'"):
        convert_and_check(make_job(saved, kind="savedmodel", signature=signature), "savedmodel")


def test_a_savedmodel_that_is_cut_off_is_an_input_error(saved, make_job):
    file = saved / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputFileError, match="is not a SavedModel"):
        convert_and_check(make_job(saved, kind="savedmodel"), "savedmodel")


def test_a_savedmodel_without_its_variables_does_not_load(saved, make_job):
    for file in (saved / "variables").iterdir():
        file.unlink()
    job = make_job(saved, kind="savedmodel")
    with pytest.raises(ConversionError, match="the converted model is unsound: a file of the SavedModel .* is missing"):
        convert_and_check(job, "savedmodel")
