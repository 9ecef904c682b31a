"""Names of outputs that the source does not have, and samples that it does not take, are found before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.errors import UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.pipelines.compare.first_rows import check_declared_outputs
from paritygate.pipelines.spec import output_limits
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipelines.conftest import Bench, Called, Desk


def _refused_before_any_work(desk: Desk, called: Called) -> str:
    assert called.code == 2, str(called)
    # What had been made would be left.
    assert desk.runs == [], str(called)
    return called.err


def _save_keras(folder: Path) -> None:
    keras = import_keras()
    x = keras.Input((4,), name="x")
    keras.Model(x, keras.layers.Dense(3, name="head")(x)).save(folder / "model.keras")


def _save_savedmodel(folder: Path) -> None:
    tf = import_tensorflow()
    module = tf.Module()
    module.weight = tf.Variable(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
    x = tf.TensorSpec((None, 4), tf.float32, name="x")
    module.serve = tf.function(lambda x: {"head": x @ module.weight}, input_signature=[x])
    signatures = {"serving_default": module.serve.get_concrete_function()}
    tf.saved_model.save(module, str(folder / "saved"), signatures=signatures)


_HINT_OF_CAST = (
    "cast it: --cast x=float32 (samples.cast: {x: float32} in a spec), or write float32, with pandas "
    "frame.astype({'x': 'float32'})"
)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"decisions": {"logit": {"argmax": True}}}, "decisions"),
        ({"decisions": {}, "argmax_of": {"logit": "logits"}}, "argmax_of"),
        ({"decisions": {}, "gold": {"metric": "accuracy", "output": "logit"}}, "gold.output"),
        ({"decisions": {}, "axes": {"logit": 1}}, "axes"),
        ({"decisions": {}, "outputs": {"logit": {"ignore": "not served"}}}, "outputs"),
    ],
)
def test_an_output_that_the_onnx_file_lacks_is_named_with_the_key_that_asks_for_it(
    desk: Desk, parts: dict[str, Any], key: str
) -> None:
    said = _refused_before_any_work(desk, desk.call("run", desk.spec(**parts), "--verbose"))
    assert f"spec spec.yaml: {key} names 'logit', which is not an output (outputs: logits)" in said
    assert "hint: did you mean 'logits'?" in said


def _limits(**outputs: object) -> dict[str, Any]:
    return {"onnx-fp32": {"outputs": outputs}}


@pytest.mark.parametrize("required", [["onnx-fp32"], []])
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"tolerance": _limits(logits={"max_abs_diff": [1, 2]})},
            "tolerance.onnx-fp32.outputs.logits.max_abs_diff has 2 numbers, but the output has 3 channels",
        ),
        (
            {"tolerance": _limits(logit={"max_abs_diff": 1})},
            "outputs.logit.max_abs_diff is on 'logit', which is not a numeric output that is compared",
        ),
        (
            {"outputs": {"logits": {"columns": ["a", "b"]}}},
            "outputs.logits.columns has 2 names, but the output has 3 channels",
        ),
    ],
)
def test_limits_that_outputs_of_the_file_cannot_have_are_found_before_it_is_converted(
    desk: Desk, parts: dict[str, Any], said: str, required: list[str]
) -> None:
    called = desk.call("run", desk.spec(**parts, required=required), "--verbose")
    assert said in _refused_before_any_work(desk, called)


@pytest.mark.children
def test_limits_are_held_against_what_is_taken_over_as_well(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITYGATE_CACHE", str(tmp_path / "cache"))
    fits = _limits(logits={"max_abs_diff": [1, 2, 3]})
    assert desk.call("run", desk.spec(tolerance=fits, required=[])).code == 0

    called = desk.call("run", desk.spec(tolerance=_limits(logits={"max_abs_diff": [1, 2]}), required=[]))

    assert called.code == 2, str(called)
    assert len(desk.runs) == 1


def test_columns_of_an_open_size_are_held_against_what_the_reference_answers(desk: Desk) -> None:
    import onnx

    model = onnx.load(str(desk.folder / "model.onnx"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "classes"
    onnx.save(model, str(desk.folder / "model.onnx"))
    tolerance = _limits(logits={"max_abs_diff": [1, 2]})

    called = desk.call("run", desk.spec(tolerance=tolerance, required=[]), "--verbose")

    assert called.code == 2, str(called)
    assert "outputs.logits.max_abs_diff has 2 numbers, but the output has 3 channels" in called.err


def test_a_name_that_is_served_otherwise_is_answered_with_the_name_served(desk: Desk) -> None:
    called = desk.call("run", desk.spec(decisions={"output_0": {"argmax": True}}), "--verbose")
    assert "hint: rename serves it as 'logits': name that" in _refused_before_any_work(desk, called)


def test_a_rename_of_what_the_model_lacks_is_found_too(desk: Desk) -> None:
    model = {"name": "tiny", "source": "model.onnx", "rename": {"output": "logits"}}
    said = _refused_before_any_work(desk, desk.call("run", desk.spec(model=model), "--verbose"))
    assert "'output' cannot be renamed 'logits' because the model has no such input or output" in said
    assert "hint: inputs and outputs of the model are: x, output_0" in said


@pytest.mark.tensorflow
@pytest.mark.parametrize(("source", "save"), [("model.keras", _save_keras), ("saved", _save_savedmodel)])
def test_an_output_that_a_model_of_tensorflow_lacks_is_found_before_it_is_converted(
    desk: Desk, source: str, save: Callable[[Path], None]
) -> None:
    save(desk.folder)
    spec = desk.spec(model={"name": "tiny", "source": source}, decisions={"heads": {"argmax": True}})
    said = _refused_before_any_work(desk, desk.call("run", spec, "--verbose"))
    assert "spec spec.yaml: decisions names 'heads', which is not an output (outputs: head)" in said
    assert "hint: did you mean 'head'?" in said


def _save_keras_of_dict(folder: Path) -> None:
    keras = import_keras()
    x = keras.Input((4,), name="x")
    keras.Model(x, {"head": keras.layers.Dense(3)(x), "other": x}).save(folder / "model.keras")


@pytest.mark.parametrize(
    ("source", "save", "message"),
    [
        ("model.onnx", None, "'heads'"),
        pytest.param("model.keras", _save_keras_of_dict, "no output 'heads'", marks=pytest.mark.tensorflow),
        pytest.param("saved", _save_savedmodel, "no output 'heads' (it has: head)", marks=pytest.mark.tensorflow),
    ],
)
def test_a_declared_output_that_the_model_lacks_is_found_before_it_is_recorded(
    desk: Desk, source: str, save: Callable[[Path], None] | None, message: str
) -> None:
    if save is not None:
        save(desk.folder)
    tensor = {"dtype": "float32", "shape": ["batch", 4]}
    model = {"name": "tiny", "source": source, "inputs": {"x": tensor}, "outputs": {"heads": tensor}}
    called = desk.call("run", desk.spec(model=model, decisions={}), "--verbose")
    assert called.code == 2, str(called)
    assert message in called.err
    assert desk.runs == []


@pytest.mark.parametrize(
    ("samples", "message", "hint"),
    [
        (
            {"x": np.zeros((120, 5), np.float32)},
            "from row '0' on, 'x' has the shape [16, 5], but the model expects x: float32[batch, 4]",
            "give rows of the shape that the model expects",
        ),
        (
            {"x": np.zeros((120, 4, 1), np.float32)},
            "from row '0' on, 'x' has the shape [16, 4, 1], but the model expects x: float32[batch, 4]",
            "give rows of the shape that the model expects",
        ),
        (
            {"x": np.zeros((120, 4), np.float64)},
            "the samples hold 'x' as float64, but the model expects float32",
            _HINT_OF_CAST,
        ),
        (
            {"features": np.zeros((120, 4), np.float32)},
            "the samples have no input 'x', which the model expects (seen: features)",
            "name the samples' keys like the model's inputs, or rename these: model.rename: {x: features} in the spec",
        ),
    ],
)
def test_samples_that_the_model_does_not_take_are_found_before_it_is_converted(
    desk: Desk, samples: dict[str, Any], message: str, hint: str
) -> None:
    np.savez(desk.folder / "inputs.npz", **samples)
    said = _refused_before_any_work(desk, desk.call("run", "spec.yaml", "--verbose"))
    assert message in said
    assert f"hint: {hint}" in said


def test_rows_of_a_wrong_shape_further_on_are_found_before_the_model_is_converted(desk: Desk) -> None:
    batches = {f"{case}/x": np.zeros((2, 4 + case), np.float32) for case in range(2)}
    np.savez(desk.folder / "inputs.npz", **batches)
    said = _refused_before_any_work(desk, desk.call("run", "spec.yaml", "--verbose"))
    assert "from row '1/0' on, 'x' has the shape [2, 5], but the model expects x: float32[batch, 4]" in said


_TOKENS = """
import torch


class Scores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(50, 3)

    def forward(self, ids, mask):
        rows = self.table(ids) * mask.unsqueeze(-1)
        return rows.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def load():
    return Scores().eval()
"""


def _tokens(desk: Desk, *, width: int = 3, **row_70: list[int]) -> None:
    """Write a module of two inputs that share a dim, its spec, and samples in which row 70 is as given."""
    desk.module("token_scores", _TOKENS)
    tensor = {"dtype": "int64", "shape": ["batch", "sequence"]}
    model = {
        "name": "tiny",
        "source": "token_scores:load",
        "inputs": {"ids": tensor, "mask": tensor},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", width]}},
        "dims": {"batch": {"min": 1, "opt": 8, "max": 64}, "sequence": {"min": 2, "opt": 4, "max": 6}},
    }
    rows = [{"id": f"r{row}", "ids": [row % 50, 1, 2], "mask": [1, 1, 1]} for row in range(120)]
    rows[70].update(row_70)
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (desk.folder / "tokens.jsonl").write_text(lines, encoding="utf-8")
    desk.spec(model=model, samples={"source": "tokens.jsonl", "pad": {"ids": 0, "mask": 0}})


@pytest.mark.torch
@pytest.mark.parametrize(
    ("row_70", "message", "hint"),
    [
        (
            {"ids": [1] * 7, "mask": [1] * 7},
            (
                "at row 'r70', 'ids' has the shape [8, 7]: axis 1, 'sequence', is 7, and model.dims.sequence declares "
                "2 to 6"
            ),
            "declare the served sizes in model.dims.sequence, or correct the rows",
        ),
        (
            {"ids": [1] * 3, "mask": [1] * 2},
            "row 'r70' is 3 long in 'ids' and 2 in 'mask', but the model expects one 'sequence' for both",
            (
                "give every row as many places in one of them as in the other, or give the dims other names: in the "
                "model, or, where it has none for them, in model.inputs of a spec"
            ),
        ),
    ],
)
def test_rows_that_are_too_long_or_of_two_lengths_are_found_before_the_model_is_converted(
    desk: Desk, row_70: dict[str, list[int]], message: str, hint: str
) -> None:
    _tokens(desk, **row_70)
    said = _refused_before_any_work(desk, desk.call("run", "spec.yaml", "--verbose"))
    assert said == f"error: tiny: {message}\nhint: {hint}\n"


@pytest.mark.torch
def test_an_output_of_another_size_than_declared_is_found_before_the_model_is_converted(desk: Desk) -> None:
    _tokens(desk, width=4)
    said = _refused_before_any_work(desk, desk.call("run", "spec.yaml", "--verbose"))
    assert said == (
        "error: tiny: model.outputs declares logits: float32[batch, 4], but the source returns "
        "float32[8, 3] for the first 8 rows of the samples\n"
        "hint: declare the output, model.outputs: {logits: {dtype: float32, shape: [batch, 3]}}, or correct the "
        "model\n"
    )


@pytest.mark.torch
def test_an_id_beyond_the_table_is_wrong_usage_that_names_row_input_and_value(desk: Desk) -> None:
    _tokens(desk, ids=[3, 50, 51])
    called = desk.call("run", "spec.yaml", "--verbose")
    assert called.code == 2, str(called)
    assert called.err.endswith(
        "error: tiny: the reference refuses row 'r70' of the samples (index 70), for the 50 in 'ids' (allowed: "
        "at most 49), but accepts others: the PyTorch module failed on ids: int64[1, 3]; mask: int64[1, 3]: "
        "IndexError: index out of range in self\n"
        "hint: correct 'ids' in this row, or remove the row from the samples\n"
    )


@pytest.mark.torch
def test_a_module_is_tried_without_a_change_of_its_buffers_attributes_and_mode() -> None:
    import torch

    class Counting(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.register_buffer("calls", torch.zeros(1))
            self.seen: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.seen.append(len(x))
            return super().forward(x)

    module = Counting().train()
    source = ModelRef(kind=SourceKind.TORCH, text="net:load", folder=Path())
    x = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
    signature = Signature(inputs=(x,), outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),))
    batch = Batch(inputs={"x": np.ones((5, 4), np.float32)}, ids=list("abcde"))

    with pytest.raises(UsageError, match=r"y: float32\[batch, 2\], but the source returns .* for the first 5 rows"):
        check_declared_outputs(LoadedModel(ref=source, model=module), signature, batch)

    assert (module.calls.item(), module.seen, module.training) == (0, [], True)


def test_a_model_of_a_fixed_number_of_rows_is_answered_with_the_batch_size(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a", batch=8), bench.linear("b", batch=8), "--samples", bench.samples(), "--probes", "none"
    )
    assert outcome.code == 2
    assert outcome.result["error"]["message"] == (
        "from row '0' on, 'x' has the shape [16, 4], but the model expects x: float32[8, 4]"
    )
    hint = "give 8 rows a call: samples: {batch_size: 8} in the spec, or --batch-size 8"
    assert outcome.result["error"]["hint"] == hint
    again = ("--samples", bench.samples(), "--probes", "none", "--batch-size", "8")
    assert bench.compare(bench.linear("a", batch=8), bench.linear("b", batch=8), *again).code == 0


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--outputs", "logit", "output 'logit' was selected, but the reference has no such output (it has: logits)"),
        ("--decision", "logit:argmax", "decision logit:argmax is on an output that is not compared (compared: logits)"),
    ],
)
def test_compare_finds_a_wrong_name_before_the_reference_answers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, option: str, value: str, message: str
) -> None:
    def record(*_: object) -> None:
        pytest.fail("the reference was recorded")

    monkeypatch.setattr("paritygate.pipelines.compare.opening.record_reference", record)
    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), option, value)
    assert outcome.code == 2
    assert outcome.result["error"]["message"] == message


@pytest.mark.parametrize(
    ("shape", "axis", "channels"),
    [
        (("N", 3), None, [3]),
        (("N", 5000, 84), None, [84]),
        (("N", 8, 3), 1, [8]),
        # The reference's values decide which axis has quantities in other units.
        (("N", 8, 3), None, [3, 8]),
        (("N", 100, 84), None, [84, 100]),
    ],
)
def test_channels_count_before_any_work_where_the_shape_alone_shows_them(
    shape: tuple[int | str, ...], axis: int | None, channels: list[int]
) -> None:
    spec = TensorSpec(name="y", dtype="float32", shape=shape)

    assert [*output_limits._channels(spec, axis, [])] == channels
