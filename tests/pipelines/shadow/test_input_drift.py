"""Requests with other inputs than the samples of a release are findings, and alike ones are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from tests.pipelines.conftest import jobs_done_here

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.files import json_bytes, json_of
from paritygate.pipelines.shadow.drift import InputComparison, InputDrift
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.probes.input_stats import Surveyor
from paritygate.validate.probes.inputs.survey import StoredSurvey

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

    Arrays = Mapping[str, np.ndarray[Any, Any]]

ROWS, REQUESTS = 200, 100
SPECS = (
    TensorSpec(name="x", dtype="float32", shape=("N", 3)),
    TensorSpec(name="kind", dtype="int64", shape=("N",)),
    TensorSpec(name="mask", dtype="int64", shape=("N", "S")),
    TensorSpec(name="signal", dtype="float32", shape=("N", "T")),
)


def _rows(random: np.random.Generator, rows: int = 1, *, size: int = 16) -> dict[str, np.ndarray[Any, Any]]:
    lengths = random.integers(4, size - 3, rows)
    return {
        "x": random.standard_normal((rows, 3)).astype(np.float32),
        "kind": random.choice([1, 2, 5], rows),
        "mask": (np.arange(size) < lengths[:, None]).astype(np.int64),
        "signal": random.random((rows, random.integers(20, 30))).astype(np.float32),
    }


def _survey(random: np.random.Generator, *, nan_every: int = 0) -> StoredSurvey:
    surveyor = Surveyor(Signature(inputs=SPECS, outputs=()), seed=0)
    for start in range(0, ROWS, 8):
        inputs = _rows(random, 8)
        if nan_every and start % nan_every == 0:
            inputs["x"][0, 1] = np.nan
        surveyor.add(Batch(inputs=inputs, ids=[str(start + row) for row in range(8)]), inputs)
    # As a release stores it.
    return from_data(StoredSurvey, json_of(json_bytes(to_data(surveyor.finish().stored())).decode()))


def _compared(
    change: Callable[[dict[str, np.ndarray[Any, Any]]], Arrays] = lambda inputs: inputs,
    *,
    every: int = 1,
    nan_every: int = 0,
    seed: int = 0,
    rows: int = 1,
    is_showing: bool = False,
) -> list[InputDrift]:
    random = np.random.default_rng(seed)
    comparison = InputComparison(_survey(random, nan_every=nan_every), is_showing=is_showing)
    for number in range(REQUESTS):
        inputs = _rows(random, rows)
        comparison.add(change(inputs) if number % every == 0 else inputs)
    return list(comparison.finish())


def _findings(found: list[InputDrift]) -> set[tuple[str, str]]:
    return {(item.input, item.kind) for item in found if item.is_finding}


def _set(name: str, value: float, at: Any) -> Callable[[dict[str, np.ndarray[Any, Any]]], Arrays]:  # noqa: ANN401 - an index
    def change(inputs: dict[str, np.ndarray[Any, Any]]) -> Arrays:
        inputs[name][at] = value
        return inputs

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("x", 50.0, (0, 2)), {("x", "above")}),
        (_set("x", -50.0, (0, 0)), {("x", "below")}),
        (_set("x", np.inf, (0, 0)), {("x", "above")}),
        (_set("x", np.nan, (0, 1)), {("x", "missing")}),
        (_set("kind", 3, 0), {("kind", "new ids")}),
        (_set("mask", 1, 0), {("mask", "more valid positions")}),
        (lambda inputs: {**inputs, "signal": inputs["signal"][:, :12]}, {("signal", "shorter")}),
        (
            lambda inputs: {**inputs, "signal": np.pad(inputs["signal"], ((0, 0), (0, 20)), mode="wrap")},
            {("signal", "longer")},
        ),
    ],
)
def test_requests_unlike_all_samples_are_a_finding(
    change: Callable[..., Arrays], expected: set[tuple[str, str]]
) -> None:
    found = _compared(change, every=2)
    assert _findings(found) == expected
    (finding,) = (item for item in found if item.is_finding)
    # A few of the others are outside of the range by chance.
    assert finding.of == REQUESTS
    assert 50 <= finding.requests < 60
    assert not finding.seen


def test_a_single_request_outside_of_the_range_is_counted_and_no_finding() -> None:
    found = _compared(_set("x", 50.0, (0, 2)), every=REQUESTS)
    assert _findings(found) == set()
    assert any((item.input, item.kind) == ("x", "above") and item.requests >= 1 for item in found)


def test_padding_is_no_finding_where_a_mask_shows_it() -> None:
    found = _compared(lambda inputs: {**inputs, "mask": np.pad(inputs["mask"], ((0, 0), (0, 8)))})
    assert _findings(found) == set()


def test_nan_is_no_finding_where_as_many_samples_have_it() -> None:
    change = _set("x", np.nan, (0, 1))
    assert _findings(_compared(change, every=10, nan_every=16)) == set()
    assert _findings(_compared(change, every=2, nan_every=40)) == {("x", "missing")}


def test_like_requests_are_rarely_a_finding() -> None:
    # Wrong in 1 of 100 at most: with that rate, more than 2 of 15 come once in 2,000 times.
    found = [_findings(_compared(seed=seed, rows=1 + seed % 3)) for seed in range(15)]
    assert sum(map(bool, found)) <= 2


def test_a_survey_has_a_bounded_size() -> None:
    signature = Signature(inputs=(TensorSpec(name="x", dtype="float32", shape=("N", 2000)),), outputs=())
    surveyor = Surveyor(signature, seed=0)
    for size in range(1, 40):
        inputs = {"x": np.random.default_rng(size).standard_normal((size, 2000)).astype(np.float32)}
        surveyor.add(Batch(inputs=inputs, ids=[f"{size}.{row}" for row in range(size)]), inputs)
    assert len(json_bytes(to_data(surveyor.finish().stored()))) < 2000


def test_values_are_shown_only_where_the_spec_shows_inputs() -> None:
    hidden, shown = (_compared(_set("x", 50.0, (0, 2)), is_showing=is_showing) for is_showing in (False, True))
    assert not any(item.seen for item in hidden)
    assert "50" in next(item.seen for item in shown if item.kind == "above")


def _capture(desk: Desk, moved: float) -> None:
    session = onnxruntime.InferenceSession(str(desk.folder / "model.onnx"))
    random = np.random.default_rng(5)
    with (desk.folder / "traffic.jsonl").open("w", encoding="utf-8") as lines:
        for _ in range(40):
            x = (random.standard_normal((1, 4)) + moved).astype(np.float32)
            line = {"inputs": {"x": x.tolist()}, "outputs": {"logits": session.run(None, {"x": x})[0].tolist()}}
            lines.write(json.dumps(line) + "\n")


def test_a_release_holds_the_survey_that_shadow_compares_with(finished: Desk) -> None:
    data, out = {}, {}
    for moved in (0.0, 20.0):
        _capture(finished, moved)
        with jobs_done_here():
            called = finished.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.3")
        data[moved], out[moved] = called.data, " ".join(called.out.split())
        assert called.code in {0, 3}, str(called)

    assert [item for item in data[0.0]["inputs"] if item["is_finding"]] == []
    assert "like those" not in out[0.0]
    assert ("by chance" in out[0.0]) == bool(data[0.0]["inputs"])
    (finding,) = (item for item in data[20.0]["inputs"] if item["is_finding"])
    assert (finding["input"], finding["kind"], finding["requests"], finding["seen"]) == ("x", "above", 40, "")
    assert data[0.0]["verdict"] == data[20.0]["verdict"], "inputs never change the verdict"
    assert "in 40 of 40 requests" in " ".join(called.out.split())


def test_a_release_whose_spec_hides_inputs_holds_no_survey(finished: Desk, tmp_path: Path) -> None:
    desk = type(finished)(folder=tmp_path)
    desk.onnx()
    desk.samples()
    with jobs_done_here():
        assert desk.call("run", desk.spec(report={"inputs": "hide"})).code == 0
        _capture(desk, 20.0)
        called = desk.json("shadow", "tiny", "--captured", "traffic.jsonl", "--max-flip-rate", "0.3")
    assert called.data["inputs"] is None, str(called)
    assert called.data["requests"] == 40
    assert "not measured" in called.out
