"""Names, dtypes and shapes are the reference's, and every input that it answers is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome

pytestmark = pytest.mark.usefixtures("asks_probes")

_IN = {"x": ("float", ["batch", 4])}


def _identity(bench: Bench, name: str, *, width: int | str = 4, **outputs: str) -> str:
    nodes = [helper.make_node("Identity", ["x"], [output]) for output in outputs or {"logits": ""}]
    specs = {output: ("float", ["batch", width]) for output in outputs or {"logits": ""}}
    return bench.model(name, nodes, inputs={"x": ("float", ["batch", width])}, outputs=specs)


def _reshaped(bench: Bench, name: str, shape: list[int]) -> str:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["logits"])]
    dims = [f"d{axis}" for axis in range(len(shape))]
    return bench.model(name, nodes, inputs=_IN, outputs={"logits": ("float", dims)}, weights={"shape": np.array(shape)})


def _against_identity(bench: Bench, candidate: str, *options: str) -> Outcome:
    return bench.compare(_identity(bench, "reference"), candidate, "--samples", bench.samples(), *options)


def test_an_innocent_rewrite_passes_every_check(bench: Bench) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b", error=1e-6), "--samples", bench.samples(519))

    assert (outcome.code, outcome.result["verdict"], outcome.result["rows"]) == (0, "pass", 519)
    assert {check["status"] for check in outcome.result["checks"]} == {"pass"}
    assert outcome.out.rstrip().endswith("verdict: pass")


def test_a_contract_that_is_broken_is_not_also_said_to_hold(bench: Bench) -> None:
    outcome = _against_identity(bench, _identity(bench, "b", logits="", extra=""))

    assert outcome.failed == {"contract.outputs"}
    assert "contract" not in {check["name"] for check in outcome.result["checks"]}


@pytest.mark.parametrize(
    ("shape", "seen"),
    [([-1], "[64]"), ([-1, 2, 2], "[16, 2, 2]"), ([1, -1], "[1, 64]"), ([-1, 4, 1], "[16, 4, 1]")],
)
def test_another_shape_fails_and_nothing_is_broadcast(bench: Bench, shape: list[int], seen: str) -> None:
    outcome = _against_identity(bench, _reshaped(bench, "b", shape))

    assert outcome.code == 1
    assert (
        f"the candidate's shape is {seen}, the reference's [16, 4], at rows '0'..'15'"
        in (outcome.check("contract.shape", "logits")["detail"])
    )


def test_a_column_that_became_a_vector_fails(bench: Bench) -> None:
    expected = bench.normal(8, 1)

    outcome = bench.given({"logits": expected}, {"logits": expected[:, 0]})

    assert (outcome.code, outcome.status("contract.shape", "logits")) == (1, "fail")


def test_rows_that_were_padded_to_a_fixed_batch_fail(bench: Bench) -> None:
    # One row in, eight rows out.
    nodes = [
        helper.make_node("Concat", ["x"] * 8, ["all"], axis=0),
        helper.make_node("Identity", ["all"], ["logits"]),
    ]
    padded = bench.model("b", nodes, inputs=_IN, outputs={"logits": ("float", ["rows", 4])})

    outcome = _against_identity(bench, padded, "--batch-size", "1")

    assert outcome.code == 1
    assert (
        "the candidate's shape is [8, 4], the reference's [1, 4]"
        in (outcome.check("contract.shape", "logits")["detail"])
    )
    assert "(in 32 batches)" in outcome.check("contract.shape", "logits")["detail"]


def test_another_dtype_of_an_output_fails_although_the_values_agree(bench: Bench) -> None:
    expected = bench.normal(8, 3)

    outcome = bench.given({"logits": expected}, {"logits": expected.astype(np.float64)})

    assert (outcome.code, outcome.failed) == (1, {"contract.dtype"})
    assert outcome.check("contract.dtype", "logits")["detail"] == (
        "the candidate's dtype is float64, the reference's float32"
    )


def test_text_in_place_of_numbers_fails(bench: Bench) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["logits"], to=8)]
    text = bench.model("b", nodes, inputs=_IN, outputs={"logits": ("string", ["batch", 4])})

    outcome = _against_identity(bench, text)

    assert (outcome.code, outcome.status("contract.dtype", "logits")) == (1, "fail")


def test_text_in_place_of_numbers_fails_as_well_where_passes_are_compared(bench: Bench) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["logits"], to=8)]
    text = bench.model("b", nodes, inputs=_IN, outputs={"logits": ("string", ["batch", 4])})

    outcome = _against_identity(bench, text, "--repeat", "2")

    assert (outcome.code, outcome.status("contract.dtype", "logits")) == (1, "fail")


def test_a_text_output_is_compared_and_may_be_left_out_by_selecting_the_others(bench: Bench) -> None:
    def with_text(name: str) -> str:
        nodes = [helper.make_node("Identity", ["x"], ["logits"]), helper.make_node("Cast", ["x"], ["text"], to=8)]
        outputs = {"logits": ("float", ["batch", 4]), "text": ("string", ["batch", 4])}
        return bench.model(name, nodes, inputs=_IN, outputs=outputs)

    sides = with_text("a"), with_text("b")

    all_outputs = bench.compare(*sides, "--samples", bench.samples())
    selected = bench.compare(*sides, "--samples", bench.samples(), "--outputs", "logits")

    assert (all_outputs.code, all_outputs.status("exact", "text")) == (0, "pass")
    assert (selected.code, selected.result["outputs_left_out"]) == (0, ["text"])
    assert "not compared: text" in selected.out


def test_recorded_text_may_be_left_out_as_well(bench: Bench) -> None:
    expected: dict[str, NDArray[np.generic]] = {"logits": bench.normal(4, 3), "label": np.array(["a", "b", "a", "b"])}
    actual = expected | {"logits": bench.normal(4, 3) + np.float32(1e-6)}

    outcome = bench.given(expected, actual, "--outputs", "logits")

    assert (outcome.code, outcome.result["outputs_left_out"]) == (0, ["label"])


def test_a_selected_output_is_compared_and_the_others_are_recorded_as_left_out(bench: Bench) -> None:
    expected = {"logits": bench.normal(8, 3), "pooled": bench.normal(8, 2)}
    actual = {"logits": expected["logits"] + np.float32(1e-6), "other": bench.normal(8, 5)}

    outcome = bench.given(expected, actual, "--outputs", "logits")

    assert (outcome.code, list(outcome.result["outputs"])) == (0, ["logits"])
    assert outcome.result["outputs_left_out"] == ["other", "pooled"]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_selecting_an_output_that_is_not_there_is_wrong_usage(bench: Bench, *, is_recorded: bool) -> None:
    reference = bench.npz("a.npz", {"logits": bench.normal(32, 4)}) if is_recorded else _identity(bench, "a")

    outcome = bench.compare(reference, _identity(bench, "b"), "--samples", bench.samples(), "--outputs", "prob")

    assert outcome.code == 2
    assert "output 'prob' was selected, but the reference has no such output (it has: logits)" in outcome.message


def test_renamed_outputs_and_inputs_are_compared_under_the_references_names(bench: Bench) -> None:
    nodes = [helper.make_node("Identity", ["input_1"], ["output_0"])]
    renamed = bench.model(
        "b", nodes, inputs={"input_1": ("float", ["n", 4])}, outputs={"output_0": ("float", ["n", 4])}
    )

    without = _against_identity(bench, renamed)
    mapped = _against_identity(bench, renamed, "--map", "output_0=logits", "--map", "input_1=x")

    assert (without.code, mapped.code) == (1, 0)
    names = without.check("contract.inputs")["detail"]
    (words,) = without.check("contract.inputs")["words"]
    assert words["values"] == {"expected_names": ["x"], "actual_names": ["input_1"]}
    assert f"inputs: {names}" in without.out


def test_recorded_outputs_are_renamed_as_well(bench: Bench) -> None:
    expected = bench.normal(8, 3)

    outcome = bench.given({"logits": expected}, {"output_0": expected + np.float32(1e-6)}, "--map", "output_0=logits")

    assert outcome.code == 0


@pytest.mark.parametrize("is_recorded", [False, True])
def test_renaming_what_is_not_there_is_wrong_usage(bench: Bench, *, is_recorded: bool) -> None:
    candidate = bench.npz("b.npz", {"logits": bench.normal(32, 4)}) if is_recorded else _identity(bench, "b")

    outcome = _against_identity(bench, candidate, "--map", "output_9=logits")

    assert outcome.code == 2
    assert "'output_9' cannot be renamed 'logits' because" in outcome.message


@pytest.mark.parametrize("is_recorded", [False, True])
def test_renaming_two_outputs_to_one_name_is_wrong_usage(bench: Bench, *, is_recorded: bool) -> None:
    if is_recorded:
        candidate = bench.npz("b.npz", {"logits": bench.normal(32, 4), "output_0": bench.normal(32, 4, seed=1)})
    else:
        candidate = _identity(bench, "b", logits="", output_0="")

    outcome = _against_identity(bench, candidate, "--map", "output_0=logits")

    assert outcome.code == 2
    assert "'logits'" in outcome.message


def test_outputs_that_swapped_their_names_fail(bench: Bench) -> None:
    expected = {"start": bench.normal(8, 4), "end": bench.normal(8, 4, seed=1)}

    outcome = bench.given(expected, {"start": expected["end"], "end": expected["start"]})

    assert outcome.code == 1


def test_outputs_in_another_order_pass(bench: Bench) -> None:
    expected = {"start": bench.normal(8, 4), "end": bench.normal(8, 4, seed=1)}
    close = {name: array + np.float32(1e-6) for name, array in reversed(expected.items())}

    assert bench.given(expected, close).code == 0


def test_a_static_batch_that_cannot_take_what_the_reference_answers_fails(bench: Bench) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b", batch=1), "--samples", bench.samples())

    assert (outcome.code, outcome.result["verdict"]) == (1, "fail")
    assert outcome.check("accepts_inputs")["measured"] == 2
    assert "rows '0'..'15':" in outcome.check("accepts_inputs")["detail"]


def test_a_candidate_that_raises_on_one_batch_only_fails(bench: Bench) -> None:
    def table(name: str, size: int) -> str:
        return bench.model(
            name,
            [helper.make_node("Gather", ["table", "ids"], ["logits"])],
            inputs={"ids": ("int64", ["batch"])},
            outputs={"logits": ("float", ["batch", 2])},
            weights={"table": bench.normal(100, 2)[:size]},
        )

    ids = np.arange(64) % 10
    ids[40] = 90
    samples = bench.npz("ids.npz", {"ids": ids})

    outcome = bench.compare(table("a", 100), table("b", 50), "--samples", samples)

    assert (outcome.code, outcome.failed) == (1, {"accepts_inputs"})
    assert outcome.check("accepts_inputs")["measured"] == 1
    assert "rows '32'..'47': onnxruntime failed" in outcome.check("accepts_inputs")["detail"]


def _sum_of(bench: Bench, name: str, *inputs: str) -> str:
    specs = {key: ("float", ["batch", 4]) for key in inputs}
    return bench.model(
        name,
        [helper.make_node("Sum", list(inputs), ["logits"])],
        inputs=specs,
        outputs={"logits": ("float", ["batch", 4])},
    )


def test_a_candidate_that_lost_an_input_fails_although_its_answers_agree(bench: Bench) -> None:
    samples = bench.npz("two.npz", {"x": bench.normal(8, 4), "y": np.zeros((8, 4), dtype=np.float32)})

    outcome = bench.compare(_sum_of(bench, "a", "x", "y"), _sum_of(bench, "b", "x"), "--samples", samples)

    assert (outcome.code, outcome.failed) == (1, {"contract.inputs"})
    (words,) = outcome.check("contract.inputs")["words"]
    assert words == {"key": "contract.no_input", "values": {"input": "y"}}


def test_a_candidate_that_takes_one_more_input_fails(bench: Bench) -> None:
    samples = bench.npz("two.npz", {"x": bench.normal(8, 4), "y": np.zeros((8, 4), dtype=np.float32)})

    outcome = bench.compare(_sum_of(bench, "a", "x"), _sum_of(bench, "b", "x", "y"), "--samples", samples)

    assert (outcome.code, outcome.failed) == (1, {"contract.inputs"})
    (words,) = outcome.check("contract.inputs")["words"]
    assert words == {"key": "contract.more_input", "values": {"input": "y"}}


def test_samples_that_do_not_fit_the_candidate_of_a_recorded_reference_are_wrong_usage(bench: Bench) -> None:
    expected = bench.npz("a.npz", {"logits": bench.normal(8, 4)})

    outcome = bench.compare(expected, _identity(bench, "b"), "--samples", bench.npz("y.npz", {"y": bench.normal(8, 4)}))

    assert outcome.code == 2
    assert "the samples have no input 'x', which the model expects (seen: y)" in outcome.message


def _integers(bench: Bench, name: str, dtype: str) -> str:
    return bench.model(
        name,
        [helper.make_node("Cast", ["ids"], ["logits"], to=1)],
        inputs={"ids": (dtype, ["batch", 2])},
        outputs={"logits": ("float", ["batch", 2])},
    )


def test_integers_are_cast_where_their_range_allows(bench: Bench) -> None:
    samples = bench.npz("ids.npz", {"ids": np.arange(16).reshape(8, 2)})

    outcome = bench.compare(_integers(bench, "a", "int64"), _integers(bench, "b", "int32"), "--samples", samples)

    assert outcome.code == 0


def test_integers_that_the_candidate_cannot_hold_fail(bench: Bench) -> None:
    ids = np.arange(16).reshape(8, 2)
    ids[3, 1] = 2**31
    samples = bench.npz("ids.npz", {"ids": ids})

    outcome = bench.compare(_integers(bench, "a", "int64"), _integers(bench, "b", "int32"), "--samples", samples)

    assert outcome.code == 1
    assert (
        "from 0 to 2147483648, but the model expects int32, which holds -2147483648 to 2147483647"
        in (outcome.check("accepts_inputs")["detail"])
    )


def test_no_other_dtype_of_samples_is_cast(bench: Bench) -> None:
    samples = bench.npz("x.npz", {"x": bench.normal(8, 4).astype(np.float64)})

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", samples)

    assert outcome.code == 2
    assert outcome.message == "the samples hold 'x' as float64, but the model expects float32"
    assert "samples.cast" in outcome.result["error"]["hint"]


def test_an_output_without_a_row_of_its_own_per_input_is_compared_whole(bench: Bench) -> None:
    def with_total(name: str, error: float) -> str:
        nodes = [
            helper.make_node("Identity", ["x"], ["logits"]),
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Add", ["sum", "error"], ["total"]),
        ]
        outputs = {"logits": ("float", ["batch", 4]), "total": ("float", [])}
        weights = {"error": np.array(error, dtype=np.float32)}
        return bench.model(name, nodes, inputs=_IN, outputs=outputs, weights=weights)

    good = bench.compare(with_total("a", 0), with_total("b", 1e-6), "--samples", bench.samples())
    bad = bench.compare(with_total("a", 0), with_total("b", 0.5), "--samples", bench.samples())

    assert good.code == 0
    assert (bad.code, bad.status("max_abs_diff", "total"), bad.status("max_abs_diff", "logits")) == (1, "fail", "pass")


def test_outputs_of_many_dims_whose_first_is_not_the_batch_can_be_decided_on(bench: Bench) -> None:
    # As detectors return them: one box a row, however many a batch has.
    def boxes(name: str) -> str:
        return bench.model(
            name,
            [helper.make_node("Concat", ["x", "x"], ["logits"], axis=0)],
            inputs={"x": ("float", ["batch", 5, 3])},
            outputs={"logits": ("float", ["boxes", 5, 3])},
        )

    samples = bench.npz("x.npz", {"x": bench.normal(32, 5, 3)})

    outcome = bench.compare(boxes("a"), boxes("b"), "--samples", samples, "--decision", "logits:argmax,axis=2")

    assert outcome.code == 0, outcome.message
    assert outcome.result["decisions"]["logits"]["decisions"] == 2 * 32 * 5


def test_bfloat16_outputs_are_compared(bench: Bench) -> None:
    def rounded(name: str, error: float) -> str:
        nodes = [
            helper.make_node("Add", ["x", "error"], ["sum"]),
            helper.make_node("Cast", ["sum"], ["logits"], to=16),
        ]
        weights = {"error": np.full(1, error, dtype=np.float32)}
        return bench.model(name, nodes, inputs=_IN, outputs={"logits": ("bfloat16", ["batch", 4])}, weights=weights)

    for error, code in ((0.0, 0), (0.5, 1)):
        outcome = bench.compare(
            rounded("a", 0), rounded("b", error), "--samples", bench.samples(), "--precision", "bf16", "--repeat", "2"
        )
        assert outcome.code == code, outcome.message
        assert outcome.result["outputs"]["logits"]["dtype"] == "bfloat16"


def test_a_size_that_only_the_candidate_has_is_its_fault_where_the_reference_declares_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import torch\n\n\ndef load():\n    return torch.nn.Identity()\n"
    (bench.folder / "of_any_width.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(bench.folder)
    traced = _identity(bench, "traced_at_9", width=9)

    outcome = bench.compare("of_any_width:load", traced, "--samples", bench.samples())

    assert (outcome.code, outcome.failed) == (1, {"accepts_inputs"})
    assert "the model expects x: float32[batch, 9]" in outcome.check("accepts_inputs")["detail"]
