"""Causes that are seen in files and answers, without a trial, and how all of them are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx import helper
from tests.pipelines.compare.causes.conftest import Fault, compared, model, named, node, normal, pictures

from paritygate.codec import from_data
from paritygate.convert.onnx.check_onnx import load_in_onnxruntime
from paritygate.errors import ConversionError
from paritygate.models.endpoint import limits_of
from paritygate.models.onnx.file import OPTIMISER_HINT
from paritygate.pipelines.compare.redaction import hidden
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.report.ci.cases import suite_of_comparison
from paritygate.pipelines.report.ci.github import annotations_of
from paritygate.pipelines.report.ci.junit import junit_xml
from paritygate.validate.causes import naming
from paritygate.validate.causes.training_mode import training_nodes
from paritygate.validate.runners import onnxruntime as onnxruntime_runner

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

    from paritygate.models.loading import LoadedModel
    from paritygate.validate.causes.cause import Case
    from paritygate.validate.measure.check import Cause
    from paritygate.validate.runners.runner import Runner

Array = NDArray[np.generic]
_REVERSED = Fault(nodes=[node("Gather", ["x", "bgr"], "x1", axis=1)], weights={"bgr": np.array([2, 1, 0], np.int64)})


def _rows(bench: Bench, name: str, last: list[Any], *, columns: int = 4, output: int | str = 4) -> str:
    """Write tanh(x @ a), and what comes last."""
    return bench.model(
        name,
        [node("MatMul", ["x", "a"], "h"), node("Tanh", ["h"], "t"), *last],
        inputs={"x": ("float", ["batch", columns])},
        outputs={"y": ("float", ["batch", output])},
        weights={
            "a": normal(4, 4, seed=3),
            "keep": np.array([1, 1, 1, 0], np.float32),
            "tiny": np.array([1e-2], np.float32),
        },
    )


_PLAIN = [node("Identity", ["t"], "y")]
_NORMALISED = [node("LpNormalization", ["t"], "y", axis=1, p=2)]


def _compared(bench: Bench, reference: list[Any], candidate: list[Any], *options: str) -> Outcome:
    sides = (_rows(bench, name, last) for name, last in (("a", reference), ("b", candidate)))
    return bench.compare(*sides, "--samples", bench.samples(), *options)


@pytest.mark.parametrize("sides", [(_NORMALISED, _PLAIN), (_PLAIN, _NORMALISED)])
def test_rows_with_factors_of_their_own_lack_a_normalisation(bench: Bench, sides: tuple[list[Any], list[Any]]) -> None:
    outcome = _compared(bench, *sides)

    assert named(outcome) == ["row_factors"]
    (cause,) = outcome.result["causes"]
    assert cause["words"][0]["values"]["low"] < cause["words"][0]["values"]["high"]


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (_NORMALISED, [node("Mul", ["t", "keep"], "y")]),
        (_NORMALISED, [node("Sigmoid", ["t"], "y")]),
        (_PLAIN, [node("Sub", ["t", "t"], "y")]),
        (_PLAIN, [node("Mul", ["t", "tiny"], "y")]),
        (_PLAIN, [node("Add", ["t", "tiny"], "y")]),
        (_PLAIN, [node("Softmax", ["t"], "y", axis=1)]),
    ],
    ids=["truncated", "activation", "zero", "one factor", "offset", "softmax"],
)
def test_other_answers_have_no_factors(bench: Bench, reference: list[Any], candidate: list[Any]) -> None:
    outcome = _compared(bench, reference, candidate)

    assert outcome.code == 1
    assert named(outcome) == []


def _at_times(bench: Bench, *, share: float) -> str:
    """Write the model of `_PLAIN` whose batches are 1 larger in this share of calls."""
    draws = helper.make_node("RandomUniform", [], ["draw"], shape=[1], seed=4.0)
    flips = [draws, node("Less", ["draw", "share"], "is_wrong"), node("Cast", ["is_wrong"], "one", to=1)]
    return bench.model(
        "b",
        [node("MatMul", ["x", "a"], "h"), node("Tanh", ["h"], "t"), *flips, node("Add", ["t", "one"], "y")],
        inputs={"x": ("float", ["batch", 4])},
        outputs={"y": ("float", ["batch", 4])},
        weights={"a": normal(4, 4, seed=3), "share": np.array([share], np.float32)},
    )


@pytest.mark.parametrize(
    ("share", "options", "kinds"),
    [(0.2, (), ["intermittent"]), (0.2, ("--repeat", "4"), ["intermittent"]), (2.0, (), [])],
)
def test_a_batch_with_different_answers_is_named(
    bench: Bench, share: float, options: tuple[str, ...], kinds: list[str]
) -> None:
    sides = (_rows(bench, "a", _PLAIN), _at_times(bench, share=share))
    outcome = bench.compare(*sides, "--samples", bench.samples(), "--batch-size", "2", *options)

    assert (outcome.code, named(outcome)) == (1, kinds)


def test_a_row_that_depends_on_its_batch_is_not_called_intermittent(bench: Bench) -> None:
    """Alone it agrees, but its batch fails whenever it runs."""
    candidate = bench.model(
        "b",
        [
            node("MatMul", ["x", "a"], "h"),
            node("Tanh", ["h"], "t"),
            node("ReduceMean", ["t"], "mean", axes=[0], keepdims=1),
            node("Sub", ["t", "mean"], "apart"),
            node("Add", ["t", "apart"], "y"),
        ],
        inputs={"x": ("float", ["batch", 4])},
        outputs={"y": ("float", ["batch", 4])},
        weights={"a": normal(4, 4, seed=3)},
    )
    outcome = bench.compare(_rows(bench, "a", _PLAIN), candidate, "--samples", bench.samples())

    assert (outcome.code, named(outcome)) == (1, [])


def test_outputs_that_were_recorded_are_looked_at_as_well(bench: Bench) -> None:
    expected = normal(20, 6)
    actual = expected * np.linspace(1, 3, 20, dtype=np.float32)[:, None]

    assert named(bench.given({"y": expected}, {"y": actual})) == ["row_factors"]


def test_a_normalisation_in_training_mode_is_named(bench: Bench) -> None:
    vectors = {name: np.ones(3, np.float32) for name in ("scale", "shift", "mean", "variance")}
    training = helper.make_node("BatchNormalization", ["x", *vectors], ["x1", "m", "v"], training_mode=1, name="norm")
    reference = Fault(nodes=[node("BatchNormalization", ["x", *vectors], "x1")], weights=vectors)

    outcome = compared(bench, "dense", reference=reference, candidate=Fault(nodes=[training], weights=vectors))

    assert named(outcome) == ["training_mode"]
    assert outcome.result["causes"][0]["words"][0]["values"] == {"count": 1, "names": ["norm"]}


@pytest.mark.parametrize("is_training", [True, False])
def test_a_dropout_is_in_training_mode_if_its_input_says_so(bench: Bench, *, is_training: bool) -> None:
    nodes = [helper.make_node("Dropout", ["x", "half", "mode"], ["x1"], name="drop")]
    weights = {"half": np.array(0.5, np.float32), "mode": np.full((), is_training)}
    path = model(bench, "a", "dense", Fault(nodes=nodes, weights=weights))

    assert [found.name for found in training_nodes(onnx.load(path))] == (["drop"] if is_training else [])


def test_a_file_that_the_optimiser_of_onnxruntime_breaks_is_not_blamed(bench: Bench) -> None:
    # ONNX Runtime fuses a Relu with the Clip behind it, and knows no double there.
    path = bench.model(
        "double",
        [node("Relu", ["x"], "r"), node("Clip", ["r", "low", "high"], "y")],
        inputs={"x": ("double", ["batch", 4])},
        outputs={"y": ("double", ["batch", 4])},
        weights={"low": np.array(0.0), "high": np.array(6.0)},
    )
    samples = bench.npz("double.npz", {"x": normal(8, 4).astype(np.float64)})
    recorded = bench.npz("y.npz", {"y": np.clip(normal(8, 4), 0, 6).astype(np.float64)})

    outcome = bench.compare(recorded, path, "--samples", samples)

    assert outcome.result["verdict"] == "error"
    assert outcome.result["error"]["hint"] == OPTIMISER_HINT
    with pytest.raises(ConversionError) as caught:
        load_in_onnxruntime(Path(path))
    assert caught.value.hint == OPTIMISER_HINT


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_optimisations_that_change_the_answers_are_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, share: float
) -> None:
    own = onnxruntime_runner.open_model
    bar = np.quantile(pictures()[:, 0, 0, 0], 1 - share)

    def open_model(loaded: LoadedModel) -> Runner:
        runner = own(loaded)
        if loaded.ref.path.stem == "b" and loaded.is_optimised:
            answer = runner._call

            def fused_wrong(feed: Mapping[str, Array]) -> Sequence[Array]:
                is_wrong = np.asarray(feed["x"])[:, 0, 0, :1] >= bar
                return [np.add(found, 0.01 * is_wrong.astype(np.float32)) for found in answer(feed)]

            monkeypatch.setattr(runner, "_call", fused_wrong)
        return runner

    monkeypatch.setattr(onnxruntime_runner, "open_model", open_model)

    assert named(compared(bench, "dense")) == ["optimisations"]


def test_weights_of_another_checkpoint_are_named_and_one_other_tensor_is_not(bench: Bench) -> None:
    all_others = {"a": normal(6, 3, 3, 3, seed=31), "b": normal(24, 5, seed=32)}

    assert named(compared(bench, "convolutions", candidate=Fault(instead=all_others))) == ["other_weights"]
    assert named(compared(bench, "convolutions", candidate=Fault(instead={"b": all_others["b"]}))) == []


def test_weights_that_take_in_a_normalisation_or_are_transposed_are_no_others(bench: Bench) -> None:
    kernels = normal(6, 3, 3, 3, seed=3) * np.linspace(1, 2, 6, dtype=np.float32).reshape(6, 1, 1, 1)

    assert named(compared(bench, "convolutions", candidate=Fault(instead={"a": kernels}))) == []


@pytest.mark.parametrize("kind", ["half", "steps", "pruned"])
def test_weights_of_the_same_checkpoint_that_were_rounded_or_pruned_are_no_others(bench: Bench, kind: str) -> None:
    own = {"a": normal(6, 3, 3, 3, seed=3), "b": normal(24, 5, seed=6)}
    rounded = {
        "half": lambda array: array.astype(np.float16).astype(np.float32),
        "steps": lambda array: np.rint(array * 127 / np.abs(array).max()) * np.abs(array).max() / 127,
        "pruned": lambda array: np.where(np.abs(array) < np.quantile(np.abs(array), 0.3), 0, array),
    }[kind]

    outcome = compared(
        bench, "convolutions", candidate=Fault(instead={name: rounded(array) for name, array in own.items()})
    )

    assert outcome.code == 1
    assert named(outcome) == []


def test_a_verdict_is_the_same_without_looking_for_causes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with_causes = compared(bench, "dense", candidate=_REVERSED).result
    monkeypatch.setattr(naming, "causes_of", lambda _: ())
    without = compared(bench, "dense", candidate=_REVERSED).result

    assert (named_of(with_causes), named_of(without)) == (["channels_reversed"], [])
    for name in ("verdict", "exit_code", "checks", "outputs"):
        assert with_causes[name] == without[name], name


def named_of(result: dict[str, Any]) -> list[str]:
    return [cause["kind"] for cause in result["causes"]]


def test_a_pass_has_no_causes(bench: Bench) -> None:
    assert compared(bench, "dense").result["causes"] == []


def test_a_fault_of_ours_changes_no_verdict(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "rows_taken", lambda *_: 1 / 0)
    outcome = compared(bench, "dense", candidate=_REVERSED)

    assert outcome.code == 1
    assert [cause["outcome"] for cause in outcome.result["causes"]] == ["fault"]


def test_trials_without_time_are_reported_as_such(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(naming, "_SHARE", 0.0)
    outcome = compared(bench, "dense", candidate=_REVERSED)

    assert outcome.code == 1
    assert {cause["outcome"] for cause in outcome.result["causes"]} == {"no_time"}


def test_a_cause_is_shown_in_full_and_hides_rows(bench: Bench) -> None:
    outcome = compared(bench, "dense", candidate=_REVERSED)
    (cause,) = outcome.result["causes"]
    result = from_data(ComparisonResult, outcome.result)
    (shown,) = hidden(result).causes

    assert f"cause: {cause['detail']}" in outcome.out
    assert (shown.kind, shown.before, shown.detail) == (cause["kind"], cause["before"], cause["detail"])
    suites = [suite_of_comparison(result)]
    assert f"cause: {cause['detail']}" in annotations_of(suites)[0].message
    assert junit_xml(suites).count("cause: ") == sum(case.details != "" for case in suites[0].cases)


def test_a_failure_of_one_row_is_left_alone(bench: Bench) -> None:
    samples = bench.npz("one.npz", {"x": pictures(1)})
    sides = (model(bench, name, "dense", fault) for name, fault in (("a", Fault()), ("b", _REVERSED)))

    assert named(bench.compare(*sides, "--samples", samples)) == []


def test_a_model_that_trials_may_not_run_on_gets_no_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    own = naming.causes_of
    calls: list[object] = []

    def not_asked(case: Case) -> tuple[Cause, ...]:
        monkeypatch.setattr(case.runner, "answer", calls.append)
        return own(replace(case, is_asked=False))

    monkeypatch.setattr(naming, "causes_of", not_asked)
    outcome = compared(bench, "dense", candidate=_REVERSED)

    assert [(cause["kind"], cause["outcome"]) for cause in outcome.result["causes"]] == [("trials", "not_asked")]
    assert calls == []


def test_trials_on_a_server_are_made_if_they_are_allowed() -> None:
    assert limits_of({}).trials == 0
    assert limits_of({"trials": 1}).trials == 1
