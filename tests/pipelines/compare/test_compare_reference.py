"""The reference must be fit to judge by: finite, equal to itself, not constant, and on the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench

_IN = {"x": ("float", ["batch", 4])}
_OUT = {"logits": ("float", ["batch", 4])}


def _noisy(bench: Bench, name: str, *, noise: float) -> str:
    # What dropout that was left on looks like from outside: another answer at every call.
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], scale=noise),
        helper.make_node("Add", ["x", "noise"], ["logits"]),
    ]
    return bench.model(name, nodes, inputs=_IN, outputs=_OUT)


def _scaled(bench: Bench, name: str, factor: float = 1.0) -> str:
    nodes = [helper.make_node("Mul", ["x", "factor"], ["logits"])]
    weights = {"factor": np.full(1, factor, dtype=np.float32)}
    return bench.model(name, nodes, inputs=_IN, outputs=_OUT, weights=weights)


def _square_root(bench: Bench, name: str) -> str:
    # NaN for every negative input.
    return bench.model(name, [helper.make_node("Sqrt", ["x"], ["logits"])], inputs=_IN, outputs=_OUT)


def _recording_of(bench: Bench, model: str, samples: str, folder: Path, *, is_non_finite_declared: bool = False) -> str:
    from paritygate.models.loading import LoadedModel
    from paritygate.models.source import parse_source
    from paritygate.validate.reference.record import RecordPlan, record_reference
    from paritygate.validate.runners.opening import open_runner
    from paritygate.validate.samples.samples import SampleSource, open_samples

    folder.mkdir()
    record_reference(
        open_runner(LoadedModel(ref=parse_source(model, bench.folder))),
        open_samples(SampleSource(text=samples, folder=bench.folder)),
        RecordPlan(
            folder=folder,
            model={"name": model, "digest": None},
            axes={},
            is_non_finite_declared=is_non_finite_declared,
        ),
    )
    return str(folder)


def test_a_reference_that_answers_otherwise_the_second_time_is_refused(bench: Bench) -> None:
    outcome = bench.compare(_noisy(bench, "a", noise=0.1), _scaled(bench, "b"), "--samples", bench.samples())

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "ReferenceRefusedError")
    assert "the reference is refused: output 'logits' differs by" in outcome.message
    assert "between two runs on the same input" in outcome.message
    assert outcome.result["error"]["hint"] == (
        "put the model into evaluation mode and remove dropout and other randomness"
    )


def test_noise_below_the_repeat_limit_does_not_refuse_the_reference(bench: Bench) -> None:
    outcome = bench.compare(_noisy(bench, "a", noise=1e-7), _scaled(bench, "b"), "--samples", bench.samples())

    assert outcome.code == 0
    assert "rows run twice, largest difference" in outcome.check("reference_repeats")["detail"]


def test_randomness_that_only_some_shapes_show_is_found(bench: Bench) -> None:
    # Only the last of many shapes has inputs high enough to be answered with noise.
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("ReduceMean", ["x"], ["level"], axes=[1], keepdims=1),
        helper.make_node("Greater", ["level", "bar"], ["is_high"]),
        helper.make_node("Where", ["is_high", "noise", "none"], ["added"]),
        helper.make_node("Add", ["x", "added"], ["logits"]),
    ]
    weights = {"bar": np.full(1, 50, dtype=np.float32), "none": np.zeros(1, dtype=np.float32)}
    spec = {"x": ("float", ["batch", "width"])}
    model = bench.model("a", nodes, inputs=spec, outputs={"logits": ("float", ["batch", "width"])}, weights=weights)
    cases: dict[str, NDArray[np.generic]] = {f"c{width}/x": bench.normal(24, width) for width in range(2, 12)}
    cases["last/x"] = bench.normal(24, 40) + np.float32(100)
    candidate = bench.model(
        "b",
        [helper.make_node("Identity", ["x"], ["logits"])],
        inputs=spec,
        outputs={"logits": ("float", ["batch", "width"])},
    )

    outcome = bench.compare(model, candidate, "--samples", bench.npz("cases.npz", cases))

    assert outcome.result["error"]["kind"] == "ReferenceRefusedError"


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_reference_with_the_same_answer_for_every_row_is_refused(bench: Bench, *, is_recorded: bool) -> None:
    if is_recorded:
        reference = bench.npz("a.npz", {"logits": np.full((32, 4), 0.71883, dtype=np.float32)})
    else:
        reference = _scaled(bench, "a", 0.0)

    outcome = bench.compare(reference, _scaled(bench, "b"), "--samples", bench.samples())

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "ReferenceRefusedError")
    assert "the reference is refused: its output is the same for every row ('logits')" in outcome.message


def test_answers_that_differ_by_rounding_alone_are_the_same_answer(bench: Bench) -> None:
    expected = np.full((32, 2), 1.0, dtype=np.float32)
    expected[1::2] = np.nextafter(np.float32(1), np.float32(2))

    assert "is the same for every row" in bench.given({"logits": expected}, {"logits": expected * 1}).message


def test_one_output_that_varies_is_enough(bench: Bench) -> None:
    expected = {"logits": bench.normal(8, 3), "version": np.ones((8, 1), dtype=np.float32)}

    outcome = bench.given(expected, {**expected, "logits": expected["logits"] + np.float32(1e-6)})

    assert outcome.code == 0
    assert outcome.check("reference_varies")["detail"] == "logits varies between rows"


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_reference_with_nan_is_refused(bench: Bench, *, is_recorded: bool) -> None:
    values = bench.normal(32, 4)
    bad = int((values < 0).sum())
    rows = [str(row) for row in np.flatnonzero((values < 0).any(axis=1))[:3]]
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(values)
    reference = bench.npz("a.npz", {"logits": roots}) if is_recorded else _square_root(bench, "a")

    outcome = bench.compare(reference, _square_root(bench, "b"), "--samples", bench.samples())

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "ReferenceRefusedError")
    assert outcome.message == (
        f"the reference is refused: output 'logits' holds {bad} values that are NaN or infinite, of 128; "
        f"first at rows {', '.join(map(repr, rows))}"
    )
    assert outcome.result["error"]["hint"].endswith(
        "or declare them correct: non_finite: match in the spec, or --non-finite match"
    )


def test_declared_nan_that_matches_passes(bench: Bench) -> None:
    bad = int((bench.normal(32, 4) < 0).sum())

    outcome = bench.compare(
        _square_root(bench, "a"), _square_root(bench, "b"), "--samples", bench.samples(), "--non-finite", "match"
    )

    assert outcome.code == 0
    assert outcome.check("reference_finite")["words"][0]["values"] == {"count": bad}
    assert outcome.check("finite", "logits")["detail"] == (
        f"the candidate is finite wherever the reference is; {bad} declared non-finite values match"
    )
    assert outcome.result["outputs"]["logits"]["compared"] == 128 - bad


@pytest.mark.parametrize(
    ("expected", "actual", "key"),
    [
        (np.nan, 0.0, "finite.other"),
        (np.nan, np.inf, "finite.other"),
        (np.inf, -np.inf, "finite.other"),
        (0.0, np.nan, "finite.broken"),
    ],
)
def test_declared_nan_that_does_not_match_fails(bench: Bench, expected: float, actual: float, key: str) -> None:
    right = bench.normal(16, 2)
    right[0, 0] = np.nan
    wrong = right.copy()
    right[7, 1], wrong[7, 1] = expected, actual

    outcome = bench.given({"logits": right}, {"logits": wrong}, "--non-finite", "match")

    assert outcome.code == 1
    assert outcome.check("finite", "logits")["words"] == [
        {"key": key, "values": {"count": 1}},
        {"key": "in_rows", "values": {"in_rows": 1, "row": "7"}},
    ]
    assert outcome.result["outputs"]["logits"]["non_finite"] == 1


def test_rows_that_are_not_finite_are_counted_once_over_batches_and_passes(bench: Bench) -> None:
    right = bench.normal(40, 2)
    wrong = right.copy()
    wrong[[9, 30, 31]] = np.inf

    outcome = bench.given({"logits": right}, {"logits": wrong}, "--repeat", "2")

    assert outcome.check("finite", "logits")["detail"] == (
        "6 values are NaN or infinite where the reference is finite, in 3 rows, first in row '9'"
    )


def test_outputs_that_are_all_nan_are_not_measured_even_where_declared(bench: Bench) -> None:
    outputs = {"logits": np.full((8, 2), np.nan, dtype=np.float32), "score": bench.normal(8, 1)}

    outcome = bench.given(outputs, {**outputs, "score": outputs["score"] + np.float32(1e-6)}, "--non-finite", "match")

    assert outcome.code == 5
    assert outcome.status("measured", "logits") == "error"


def test_values_too_large_for_their_spread_to_be_known_are_refused(bench: Bench) -> None:
    # The square of the spread is infinite, and so would be every limit that follows from it.
    expected = np.linspace(-1, 1, 8).reshape(8, 1) * 1e200

    outcome = bench.given({"logits": expected}, {"logits": expected * 2})

    assert outcome.code == 5
    assert "too large for their spread to be known" in outcome.message


def test_a_single_row_passes_and_says_that_variation_was_not_measured(bench: Bench) -> None:
    outcome = bench.compare(_scaled(bench, "a"), _scaled(bench, "b"), "--samples", bench.samples(1))

    assert (outcome.code, outcome.result["rows"]) == (0, 1)
    assert outcome.check("reference_varies")["kind"] == "not_measured"


def test_a_static_batch_of_the_reference_is_repeated_whole(bench: Bench) -> None:
    reference, candidate = bench.linear("a", batch=48), bench.linear("b")

    outcome = bench.compare(reference, candidate, "--samples", bench.samples(96), "--batch-size", "48")

    assert outcome.code == 0, outcome.err


def test_samples_that_do_not_fit_the_reference_are_wrong_usage(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a"), bench.linear("b"), "--samples", bench.npz("other.npz", {"y": bench.normal(4, 4)})
    )

    assert outcome.code == 2
    assert "the samples have no input 'x', which the model expects (seen: y)" in outcome.message


def test_samples_of_another_width_than_the_reference_takes_are_wrong_usage(bench: Bench) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(4, width=5))

    assert outcome.code == 2
    assert "'x' has the shape [4, 5], but the model expects x: float32[batch, 4]" in outcome.message


def test_a_recording_judges_like_the_model_it_was_recorded_from(bench: Bench) -> None:
    samples, reference = bench.samples(), bench.linear("a")
    recording = _recording_of(bench, reference, samples, bench.folder / "recording")

    good = bench.compare(recording, bench.linear("b", error=1e-6), "--samples", samples)
    bad = bench.compare(recording, bench.linear("c", error=1e-2), "--samples", samples)

    assert (good.code, good.result["reference"]["kind"]) == (0, "recording")
    assert bad.code == 1


def test_a_recording_may_be_the_candidate(bench: Bench) -> None:
    samples = bench.samples()
    recording = _recording_of(bench, bench.linear("a", error=0.1), samples, bench.folder / "recording")

    outcome = bench.compare(bench.linear("b"), recording, "--samples", samples)

    assert outcome.code == 1
    assert outcome.result["outputs"]["logits"]["max_abs_diff"] == pytest.approx(0.1, abs=1e-6)


def test_a_recording_against_itself_is_not_a_comparison(bench: Bench) -> None:
    samples = bench.samples()
    recording = _recording_of(bench, bench.linear("a"), samples, bench.folder / "recording")

    outcome = bench.compare(recording, recording, "--samples", samples)

    assert (outcome.code, outcome.result["error"]["kind"]) == (2, "UsageError")


def test_a_recording_of_other_samples_is_refused(bench: Bench) -> None:
    recording = _recording_of(bench, bench.linear("a"), bench.samples(), bench.folder / "recording")
    other = bench.npz("other.npz", {"x": bench.normal(32, 4, seed=9)})

    outcome = bench.compare(recording, bench.linear("b"), "--samples", other)

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "ArtifactIntegrityError")
    assert "was recorded on" in outcome.message


@pytest.mark.parametrize(("rows", "message"), [(48, "no more batches"), (16, "the reference has 32, the samples 16")])
def test_a_recording_with_another_number_of_rows_is_not_measured(bench: Bench, rows: int, message: str) -> None:
    recording = _recording_of(bench, bench.linear("a"), bench.samples(), bench.folder / "recording")

    outcome = bench.compare(recording, bench.linear("b"), "--samples", bench.samples(rows))

    assert outcome.code == 5
    assert message in outcome.message


def test_a_recording_made_in_other_batches_is_not_measured(bench: Bench) -> None:
    samples = bench.samples()
    recording = _recording_of(bench, bench.linear("a"), samples, bench.folder / "recording")

    outcome = bench.compare(recording, bench.linear("b"), "--samples", samples, "--batch-size", "5")

    assert outcome.code == 5
    assert outcome.result["error"]["hint"] == (
        "use the samples and the batch size that the reference was recorded with"
    )


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_recording_whose_chunk_was_tampered_with_is_not_measured(bench: Bench, damage: str) -> None:
    samples = bench.samples()
    recording = _recording_of(bench, bench.linear("a"), samples, bench.folder / "recording")
    chunk = next(Path(recording).glob("chunk-*"))
    content = bytearray(chunk.read_bytes())
    content[-1] ^= 1
    chunk.write_bytes(content)
    if damage == "missing":
        chunk.unlink()

    outcome = bench.compare(recording, bench.linear("b"), "--samples", samples)

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "ArtifactIntegrityError")
    assert f"{chunk.name} {'was changed' if damage == 'changed' else 'is missing'}" in outcome.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "record.json is corrupt"),
        ("[]", "record.json is corrupt"),
        ('{"format": 3}', "record.json is corrupt: its digest is missing"),
        ("[" * 100_000, "record.json is corrupt"),
        ('{"format": 99}', "record.json has format 99 (allowed: 3)"),
    ],
)
def test_a_damaged_recording_is_a_corrupt_input_file(bench: Bench, content: str, message: str) -> None:
    samples = bench.samples()
    recording = _recording_of(bench, bench.linear("a"), samples, bench.folder / "recording")
    (Path(recording) / "record.json").write_text(content)

    outcome = bench.compare(recording, bench.linear("b"), "--samples", samples)

    assert outcome.code == 2
    assert message in outcome.message


@pytest.mark.parametrize("field", ["shapes", "chunks", "profiles", "health", "signature"])
def test_a_recording_that_was_edited_is_not_what_was_recorded(bench: Bench, field: str) -> None:
    samples = bench.samples()
    recording = _recording_of(bench, bench.linear("a"), samples, bench.folder / "recording")
    record = Path(recording) / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), field: ["surprise"]}))

    outcome = bench.compare(recording, bench.linear("b"), "--samples", samples)

    assert outcome.code == 5, outcome.err
    assert "record.json is corrupt: digest mismatch" in outcome.message


def test_outputs_by_case_are_matched_by_case_and_not_by_order(bench: Bench) -> None:
    small, large = bench.normal(2, 4), bench.normal(5, 4, seed=1)
    samples = bench.npz("inputs.npz", {"small/x": small, "large/x": large})
    weight = bench.normal(4, 3, seed=7)
    expected = bench.npz("expected.npz", {"large/logits": large @ weight, "small/logits": small @ weight})

    outcome = bench.compare(expected, bench.linear("candidate"), "--samples", samples)

    assert (outcome.code, outcome.result["rows"], outcome.result["batches"]) == (0, 7, 2)


def test_a_case_without_recorded_outputs_is_not_measured(bench: Bench) -> None:
    samples = bench.npz("inputs.npz", {"a/x": bench.normal(2, 4), "b/x": bench.normal(2, 4)})
    expected = bench.npz("expected.npz", {"a/logits": bench.normal(2, 3)})

    outcome = bench.compare(expected, bench.linear("candidate"), "--samples", samples)

    assert outcome.code == 5
    assert "hold no case 'b', which the samples have" in outcome.message


def test_a_recorded_case_without_samples_is_not_measured(bench: Bench) -> None:
    samples = bench.npz("inputs.npz", {"a/x": bench.normal(2, 4)})
    expected = bench.npz("expected.npz", {"a/logits": bench.normal(2, 3), "b/logits": bench.normal(2, 3)})

    outcome = bench.compare(expected, bench.linear("candidate"), "--samples", samples)

    assert outcome.code == 5
    assert "hold 1 cases that the samples lack (b)" in outcome.message


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_an_output_that_one_case_lacks_is_never_skipped(bench: Bench, side: str) -> None:
    right = {f"{case}/{name}": bench.normal(4, 2) for case in "ab" for name in ("logits", "score")}
    close = {key: array + np.float32(1e-6) for key, array in right.items()}
    sides = {"reference": right, "candidate": close}
    del sides[side]["b/logits"]
    samples = bench.npz("inputs.npz", {"a/x": bench.normal(4, 1), "b/x": bench.normal(4, 1)})

    outcome = bench.compare(bench.npz("expected.npz", right), bench.npz("actual.npz", close), "--samples", samples)

    assert outcome.code == 5
    assert "lack 'logits' in case 'b'" in outcome.message


def test_recorded_outputs_that_mix_both_forms_of_keys_are_wrong_usage(bench: Bench) -> None:
    mixed = {"logits": bench.normal(4, 3), "a/logits": bench.normal(4, 3)}

    outcome = bench.given(mixed, {"logits": bench.normal(4, 3)})

    assert outcome.code == 2
    assert "mix keys of the form CASE/OUTPUT with plain keys" in outcome.message


def test_recorded_text_is_compared_exactly(bench: Bench) -> None:
    expected: dict[str, NDArray[np.generic]] = {"logits": bench.normal(4, 3), "label": np.array(["a", "b", "a", "b"])}

    assert bench.given(expected, expected | {"logits": bench.normal(4, 3)}).code == 0
    assert bench.given(expected, expected | {"label": np.array(["a", "b", "a", "c"])}).code == 1


def test_numbers_of_a_kind_that_has_no_tolerance_are_not_taken_for_integers(bench: Bench) -> None:
    expected = np.linspace(0, 1, 8, dtype=np.longdouble).reshape(8, 1)

    outcome = bench.given({"logits": expected}, {"logits": expected + 1})

    assert outcome.code == 5
    assert f"'logits' is of dtype {expected.dtype.name}, which is not compared" in outcome.message


def test_recorded_values_in_the_other_byte_order_are_the_same_values(bench: Bench) -> None:
    expected = bench.normal(8, 3)

    outcome = bench.given({"logits": expected.astype(">f4")}, {"logits": expected + np.float32(1e-6)})

    assert outcome.code == 0, outcome.failed


def test_a_corrupt_model_is_wrong_input_on_either_side(bench: Bench) -> None:
    broken = bench.folder / "broken.onnx"
    broken.write_bytes(Path(bench.linear("whole")).read_bytes()[:60])

    for sides in ((str(broken), bench.linear("b")), (bench.linear("a"), str(broken))):
        outcome = bench.compare(*sides, "--samples", bench.samples())
        assert outcome.code == 2
        assert "is not an ONNX model" in outcome.message


def test_a_model_that_the_runtime_refuses_is_not_measured(bench: Bench) -> None:
    unknown = bench.model("b", [helper.make_node("Surprise", ["x"], ["logits"])], inputs=_IN, outputs=_OUT)

    outcome = bench.compare(_scaled(bench, "a"), unknown, "--samples", bench.samples())

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "BackendError")
    assert f"refused {unknown}" in outcome.message


@pytest.mark.parametrize(
    ("ids_of_rows", "code", "kind", "message"),
    [
        (
            [0, 1, 99, 98],
            2,
            "UsageError",
            (
                "the reference refuses row '2' of the samples (index 2), for the 99 in 'x' "
                "(allowed: at most 4), but accepts others: onnxruntime failed on x: int64[1]: "
            ),
        ),
        ([98, 99], 5, "BackendError", "onnxruntime failed on x: int64[2]"),
    ],
)
def test_a_row_that_the_reference_refuses_is_wrong_usage_and_a_reference_that_refuses_all_is_not_measured(
    bench: Bench, ids_of_rows: list[int], code: int, kind: str, message: str
) -> None:
    ids = {"x": ("int64", ["batch"])}
    gather = bench.model(
        "a",
        [helper.make_node("Gather", ["table", "x"], ["logits"])],
        inputs=ids,
        outputs={"logits": ("float", ["batch", 2])},
        weights={"table": bench.normal(5, 2)},
    )
    samples = bench.npz("inputs.npz", {"x": np.array(ids_of_rows)})

    outcome = bench.compare(gather, _scaled(bench, "b"), "--samples", samples)

    assert (outcome.code, outcome.result["error"]["kind"]) == (code, kind)
    assert message in outcome.message


def test_external_data_beside_the_model_is_part_of_it(bench: Bench) -> None:
    path = Path(bench.linear("whole"))
    for name, factor in (("a", 1.0), ("b", 1.5)):
        model = onnx.load(str(path))
        weight = model.graph.initializer[0]
        values = onnx.numpy_helper.to_array(weight) * np.float32(factor)
        weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
        (bench.folder / name).mkdir()
        onnx.save_model(
            model,
            str(bench.folder / name / "model.onnx"),
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=0,
        )
    models = [bench.folder / name / "model.onnx" for name in "ab"]

    outcome = bench.compare(*map(str, models), "--samples", bench.samples())

    # The two .onnx files are the same bytes; only the weights beside them differ.
    assert models[0].read_bytes() == models[1].read_bytes()
    assert outcome.code == 1
    assert outcome.status("distinct") == "pass"
