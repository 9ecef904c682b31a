"""SavedModels of several signatures: which is used is said, and another is chosen by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import paritygate
from paritygate.errors import UsageError
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.pipelines.spec.loading import load_spec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench, Desk

pytestmark = pytest.mark.tensorflow

_NOTE = (
    "saved/ has 3 signatures: serving_default (used), classify, regress; model.signature: classify in a spec, or "
    "--signature, chooses another"
)


def _save(folder: Path, name: str = "saved", *, scale: float = 2.0) -> str:
    tf = import_tensorflow()
    module = tf.Module()
    module.weights = tf.Variable(np.float32([[1, 5], [2, -1], [0, 1], [3, 3]]))
    x, image = tf.TensorSpec((None, 4), tf.float32, name="x"), tf.TensorSpec((None, 4), tf.float32, name="image")
    module.default = tf.function(lambda x: {"y": x @ module.weights}, input_signature=[x])
    module.classify = tf.function(lambda image: {"scores": image * scale}, input_signature=[image])
    module.regress = tf.function(lambda x: {"y": x + 1}, input_signature=[x])
    signatures = {
        "serving_default": module.default.get_concrete_function(),
        "classify": module.classify.get_concrete_function(),
        "regress": module.regress.get_concrete_function(),
    }
    tf.saved_model.save(module, str(folder / name), signatures=signatures)
    np.savez(folder / "images.npz", image=np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32))
    return name


def _spec(desk: Desk, **model: Any) -> str:  # noqa: ANN401 - any part of a spec
    model = {"name": "tiny", "source": _save(desk.folder), **model}
    return desk.spec(
        model=model, samples={"source": "images.npz"}, targets=["onnx-fp32", "savedmodel-fp32"], decisions={}
    )


@pytest.mark.slow
def test_a_run_judges_the_signature_that_the_spec_names(desk: Desk) -> None:
    called = desk.json("run", _spec(desk, signature="classify"))
    assert called.code == 0, str(called)
    variants = called.data["runs"][0]["variants"]
    assert {name: list(found["outputs"]) for name, found in variants.items()} == {
        "onnx-fp32": ["scores"],
        "savedmodel-fp32": ["scores"],
    }
    notes = [note for note in variants["onnx-fp32"]["notes"] if "signatures" in note]
    assert len(notes) == 1
    assert notes[0].startswith("reference: saved/ has 3 signatures: classify (used), regress, serving_default; ")


def test_samples_that_fit_another_signature_are_answered_with_all_of_them(desk: Desk) -> None:
    called = desk.call("run", _spec(desk), "--quiet")
    assert called.code == 2, str(called)
    assert f"the samples have no input 'x', which the model expects (seen: image); {_NOTE}" in called.err


def test_a_signature_that_the_savedmodel_does_not_have_is_refused_with_those_it_has(desk: Desk) -> None:
    called = desk.call("run", _spec(desk, signature="rank"), "--quiet")
    assert called.code == 2, str(called)
    assert "no signature 'rank' (it has: classify, regress, serving_default)" in called.err


def test_only_a_savedmodel_has_signatures(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    spec = desk.spec(model={"name": "tiny", "source": "model.onnx", "signature": "classify"}, decisions={})
    called = desk.call("run", spec, "--quiet")
    assert called.code == 2, str(called)
    assert (
        "model.signature names the signature 'classify', and model.onnx is a model of kind 'onnx', but only a "
        "SavedModel has signatures"
    ) in called.err


def test_a_first_spec_says_which_signature_was_taken_and_which_others_there_are(desk: Desk) -> None:
    _save(desk.folder)
    called = desk.call("init", "saved", "--out", "new.yaml")
    assert called.code == 0, str(called)
    said = "model.signature: serving_default - it is the one that servers take; the others: classify, regress"
    assert said in " ".join(called.out.split())
    assert load_spec(str(desk.folder / "new.yaml")).spec.model.signature == "serving_default"
    assert "the others: classify, regress" in (desk.folder / "new.yaml").read_text(encoding="utf-8")


def test_a_first_spec_is_of_the_signature_that_is_asked_for(desk: Desk) -> None:
    _save(desk.folder)
    called = desk.json("init", "saved", "--samples", "images.npz", "--signature", "classify", "--out", "new.yaml")
    assert called.code == 0, str(called)
    assert "model.signature: classify was taken, as asked; the others: regress, serving_default" in called.data["notes"]
    assert load_spec(str(desk.folder / "new.yaml")).spec.model.signature == "classify"
    text = (desk.folder / "new.yaml").read_text(encoding="utf-8")
    assert "convert-and-validate init saved --samples images.npz --signature classify\n" in text
    assert "input image: float32[batch, 4]; output scores: float32[batch, 4]" in " ".join(text.split()).replace(
        "# ", ""
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--samples", "pairs.npz"), "3 signatures: serving_default (used), classify, regress"),
        (("--signature", "rank"), "has no signature 'rank' (it has: classify, regress, serving_default)"),
    ],
)
def test_a_first_spec_is_refused_with_the_signatures_that_there_are(
    desk: Desk, options: tuple[str, str], words: str
) -> None:
    _save(desk.folder)
    # Of one array alone init takes it that the model calls it otherwise.
    np.savez(desk.folder / "pairs.npz", image=np.ones((4, 4), np.float32), other=np.ones((4, 4), np.float32))
    called = desk.call("init", "saved", *options, "--out", "new.yaml")
    assert called.code == 2, str(called)
    assert words in " ".join(called.err.split())
    assert not (desk.folder / "new.yaml").exists()


def test_a_first_spec_of_another_model_has_no_signature(desk: Desk) -> None:
    desk.onnx()
    called = desk.call("init", "model.onnx", "--signature", "classify", "--out", "new.yaml")
    assert called.code == 2, str(called)
    assert "only a SavedModel has signatures" in called.err


def test_record_takes_the_signature_that_is_named(desk: Desk) -> None:
    _save(desk.folder)
    options = ("--samples", "images.npz", "--out", "out", "--signature")
    assert desk.call("record", "saved", *options, "classify").code == 0
    refused = desk.call("record", "saved", *options, "rank")
    assert refused.code == 2, str(refused)
    assert "no signature 'rank' (it has: classify, regress, serving_default)" in refused.err


def test_compare_takes_a_signature_of_either_side(bench: Bench) -> None:
    first, second = _save(bench.folder), _save(bench.folder, "other", scale=3.0)
    options = ("--samples", str(bench.folder / "images.npz"), "--probes", "none", "--signature", "reference=classify")
    paths = str(bench.folder / first), str(bench.folder / second)
    outcome = bench.compare(*paths, *options, "--signature", "candidate=classify")
    assert outcome.code == 1, outcome.message
    assert list(outcome.result["outputs"]) == ["scores"]


def test_a_side_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / _save(tmp_path)
    with pytest.raises(UsageError) as caught:
        paritygate.compare(path, path, samples={"image": np.zeros((1, 4), "f")}, signatures={"both": "classify"})
    assert "'both', which is not a side of the comparison (allowed: reference, candidate)" in str(caught.value)
    with pytest.raises(UsageError, match="only a SavedModel has signatures") as caught:
        paritygate.compare(path, _same, samples={"x": np.zeros((1, 4), "f")}, signatures={"candidate": "classify"})
    assert caught.value.hint == "leave --signature candidate out, or give a SavedModel folder"


def _same(inputs: Any) -> Any:  # noqa: ANN401 - arrays by name
    return inputs
