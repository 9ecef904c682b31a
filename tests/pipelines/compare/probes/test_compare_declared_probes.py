"""Probes of a model that rightly answers with NaN or infinity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench

pytestmark = pytest.mark.usefixtures("asks_probes")

# What lies beyond the samples is at the edge.
_DECLARED = ("--non-finite", "match", "--probes", "values", "--edge", "fail")


def _barred(bench: Bench, name: str, *, most: float = 1e6, bar: float = -np.inf) -> str:
    """Write a model that answers `bar` wherever the sum is not positive, and nothing above `most`."""
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["sum"]),
        helper.make_node("Clip", ["sum", "", "most"], ["clipped"]),
        helper.make_node("Greater", ["clipped", "zero"], ["is_allowed"]),
        helper.make_node("Where", ["is_allowed", "clipped", "bar"], ["logits"]),
    ]
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", 4])},
        outputs={"logits": ("float", ["batch", 3])},
        weights={
            "weight": bench.normal(4, 3, seed=1),
            "most": np.array(most, dtype=np.float32),
            "zero": np.array(0, dtype=np.float32),
            "bar": np.array(bar, dtype=np.float32),
        },
    )


def test_an_innocent_candidate_passes_and_is_asked(bench: Bench) -> None:
    sides = _barred(bench, "a"), _barred(bench, "b")

    found = bench.compare(*sides, "--samples", bench.samples(64), *_DECLARED)

    assert found.code == 0, found.out
    assert found.result["probes"]["asked"]["values"]["rows"] > 50
    # What becomes of made-up NaN nobody declared.
    dropped = found.result["probes"]["asked"]["values"]["dropped_by"]["not_answered"]["first"]
    assert any("answers 'logits' with NaN or infinity" in text for text in dropped)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_candidate_that_clips_beyond_the_samples_is_caught_in_float32(bench: Bench, precision: str) -> None:
    samples = bench.samples(64)
    # No row within the range of each feature reaches it.
    most = float((np.abs(np.load(samples)["x"]).max(axis=0) @ np.abs(bench.normal(4, 3, seed=1))).max())
    sides = _barred(bench, "a"), _barred(bench, "b", most=most)

    found = bench.compare(*sides, "--samples", samples, "--precision", precision, *_DECLARED)

    # Lower precision may clip there, and is finite as it should be.
    assert found.failed == ({"probe_values"} if precision == "fp32" else set()), found.out


def test_what_is_not_declared_is_dropped(bench: Bench) -> None:
    # All samples are positive, so that no answer to them is infinite.
    weight = np.abs(bench.normal(4, 3, seed=1))
    samples = bench.npz("positive.npz", {"x": np.abs(bench.normal(64, 4)) + np.float32(0.5)})

    def model(name: str, bar: float) -> str:
        nodes = [
            helper.make_node("MatMul", ["x", "weight"], ["sum"]),
            helper.make_node("Greater", ["sum", "zero"], ["is_allowed"]),
            helper.make_node("Where", ["is_allowed", "sum", "bar"], ["logits"]),
        ]
        weights = {"weight": weight, "zero": np.array(0, np.float32), "bar": np.array(bar, np.float32)}
        shapes = {"x": ("float", ["batch", 4])}, {"logits": ("float", ["batch", 3])}
        return bench.model(name, nodes, inputs=shapes[0], outputs=shapes[1], weights=weights)

    sides = model("a", -np.inf), model("b", -1e4)

    assert bench.compare(*sides, "--samples", samples, "--probes", "values").code == 0
    assert bench.compare(*sides, "--samples", samples, *_DECLARED).failed == {"probe_values"}


def test_every_probe_can_be_asked_where_samples_hold_nan(bench: Bench) -> None:
    values = bench.normal(64, 4)
    values[::7, 1] = np.nan
    sides = _barred(bench, "a"), _barred(bench, "b")

    found = bench.compare(*sides, "--samples", bench.npz("nan.npz", {"x": values}), "--non-finite", "match")

    assert found.code == 0, found.out + found.err
    assert "is missing" not in found.out + found.err
    assert {item["error"] for item in found.result["probes"]["asked"].values()} == {""}
