"""`compare --ignore`: outputs that are not compared, with the reason on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

_WHY = "noise=drawn anew on every call, seed=none"


def _noisy(bench: Bench, name: str, *, error: float = 0.0, noise: str = "noise") -> str:
    """Write a model with an output `logits` and one that no two calls agree in."""
    return bench.model(
        name,
        [
            helper.make_node("MatMul", ["x", "weight"], ["product"]),
            helper.make_node("Add", ["product", "error"], ["logits"]),
            helper.make_node("RandomNormalLike", ["x"], [noise]),
        ],
        inputs={"x": ("float", ["batch", 4])},
        outputs={"logits": ("float", ["batch", 3]), noise: ("float", ["batch", 4])},
        weights={"weight": bench.normal(4, 3, seed=7), "error": np.full(1, error, dtype=np.float32)},
    )


def _compare(bench: Bench, *options: str, error: float = 0.0) -> Outcome:
    return bench.compare(_noisy(bench, "a"), _noisy(bench, "b", error=error), "--samples", bench.samples(), *options)


def test_a_random_output_is_refused_unless_it_is_ignored(bench: Bench) -> None:
    refused, ignored = _compare(bench), _compare(bench, "--ignore", _WHY)

    assert refused.code == 5
    assert ignored.code == 0, ignored.out
    assert ignored.result["outputs_ignored"] == {"noise": "drawn anew on every call, seed=none"}
    assert set(ignored.result["outputs"]) == {"logits"}
    assert ignored.result["outputs_left_out"] == []
    assert "ignored: noise: drawn anew on every call, seed=none" in ignored.out


def test_the_other_outputs_are_held_to_everything(bench: Bench) -> None:
    outcome = _compare(bench, "--ignore", _WHY, error=0.1)

    assert outcome.code == 1
    assert "max_abs_diff" in outcome.failed


def test_an_output_that_one_side_alone_has_may_be_ignored(bench: Bench) -> None:
    pair = (bench.linear("a"), _noisy(bench, "b"))

    assert bench.compare(*pair, "--samples", bench.samples()).code == 1
    assert bench.compare(*pair, "--samples", bench.samples(), "--ignore", _WHY).code == 0
    assert bench.compare(*reversed(pair), "--samples", bench.samples(), "--ignore", _WHY).code == 0


def test_recorded_outputs_that_are_ignored_are_not_read(bench: Bench) -> None:
    good = bench.normal(8, 3)
    names = np.array(["a"] * 8)

    outcome = bench.given({"logits": good, "names": names}, {"logits": good, "names": names}, "--ignore", "names=texts")

    assert outcome.code == 0
    assert outcome.result["outputs_ignored"] == {"names": "texts"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ignore", "absent=typo", "--ignore", _WHY), "output 'absent' cannot be ignored"),
        (("--ignore", _WHY, "--ignore", "logits=also"), "every output is ignored (logits, noise), so nothing would be"),
        (("--ignore", "logits=why", "--outputs", "logits"), "every output is ignored (logits)"),
        (
            ("--ignore", _WHY, "--outputs", "noise", "--outputs", "logits"),
            "output 'noise' is both selected and ignored",
        ),
        (
            ("--ignore", _WHY, "--decision", "noise:argmax"),
            "decision noise:argmax is on an output that is not compared",
        ),
        (("--ignore", _WHY, "--gold", "pearson:noise"), "gold pearson:noise is on an output that is not compared"),
        (
            ("--ignore", _WHY, "--match", "d:boxes=noise,scores=logits"),
            "match 'd' names 'noise', which is not an output",
        ),
    ],
)
def test_what_is_ignored_is_there_and_asked_for_nothing(bench: Bench, options: tuple[str, ...], message: str) -> None:
    outcome = _compare(bench, *options)

    assert outcome.code == 2
    assert message in outcome.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ignore", "noise"), "--ignore 'noise' is not of the form OUTPUT=REASON"),
        (("--ignore", "noise= "), "--ignore 'noise= ' is not of the form OUTPUT=REASON"),
        (("--ignore", "noise=Reason"), "--ignore 'noise=Reason' gives no reason, only the placeholder"),
        (("--ignore", "noise=a", "--ignore", "noise=b"), "--ignore names 'noise' twice"),
    ],
)
def test_a_reason_is_needed(bench: Bench, options: tuple[str, ...], message: str) -> None:
    outcome = _compare(bench, *options)

    assert outcome.code == 2
    assert message in outcome.err
