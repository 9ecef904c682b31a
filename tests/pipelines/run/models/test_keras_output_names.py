"""Outputs of Keras models are named after their layers; for one version their names by order are taken as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from paritygate.models.tensorflow.importing import import_keras

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

pytestmark = pytest.mark.tensorflow

_NOTE = "output_0 is the output of layer 'head': the next version knows it as 'head' only"


def _model(*, head: str = "head") -> Any:  # noqa: ANN401 - a keras.Model
    keras = import_keras()
    keras.utils.set_random_seed(0)
    x = keras.Input((4,), name="x")
    return keras.Model(x, keras.layers.Dense(3, name=head)(x))


@pytest.mark.parametrize(("output", "is_old"), [("head", False), ("output_0", True)])
def test_a_run_takes_the_name_of_the_layer_and_with_a_note_the_one_by_order(
    desk: Desk, output: str, *, is_old: bool
) -> None:
    _model().save(desk.folder / "model.keras")
    spec = desk.spec(model={"name": "tiny", "source": "model.keras"}, decisions={output: {"argmax": True}})
    called = desk.call("run", spec, "--verbose", "--no-promote")
    assert called.code == 0, str(called)
    (entry,) = desk.evidence()["variants"]
    assert list(entry["result"]["outputs"]) == [output]
    assert any(_NOTE in note for note in entry["result"]["notes"]) is is_old


def test_what_keras_exports_by_order_is_compared_with_the_model_it_came_from(bench: Bench) -> None:
    path, saved = bench.folder / "model.keras", bench.folder / "saved"
    _model().save(path)
    _model().export(str(saved), verbose=False)
    options = ("--samples", bench.samples(), "--probes", "none")

    there = bench.compare(str(path), str(saved), *options)
    assert there.code == 0, there.message
    assert list(there.result["outputs"]) == ["head"]
    back = bench.compare(str(saved), str(path), *options)
    assert back.code == 0, back.message
    assert list(back.result["outputs"]) == ["output_0"]
    assert any(_NOTE in note for note in back.result["notes"])


@pytest.mark.parametrize("options", [("--decision", "output_0:argmax"), ("--outputs", "output_0")])
def test_compare_takes_the_name_by_order_with_a_note(bench: Bench, options: tuple[str, str]) -> None:
    path, other = bench.folder / "model.keras", bench.folder / "other.keras"
    _model().save(path)
    _model(head="top").save(other)
    outcome = bench.compare(str(path), str(other), "--samples", bench.samples(), "--probes", "none", *options)
    assert outcome.code == 0, outcome.message
    assert list(outcome.result["outputs"]) == ["output_0"]
    assert any(_NOTE in note for note in outcome.result["notes"])


def test_an_output_that_is_of_another_name_by_either_count_is_missing(bench: Bench) -> None:
    path = bench.folder / "model.keras"
    _model().save(path)
    other = bench.linear("other", output="output_1")
    outcome = bench.compare(str(path), other, "--samples", bench.samples(), "--probes", "none")
    assert outcome.code == 1
    assert (
        "the candidate has no output 'head' (outputs: output_1)" in outcome.check("contract.outputs", "head")["detail"]
    )
