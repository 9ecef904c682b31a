"""Labels are told from codes and counts by the answers, and stand in the first spec as the argmax of their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.pipelines.inspecting.labels import LabelsSeen
from paritygate.pipelines.spec.loading import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from tests.pipelines.conftest import Desk

    Outputs = dict[str, NDArray[np.generic]]

_MODEL = """
< ir_version: 9, opset_import: ["" : 18] >
segments (float[batch, 3, 4] x) => (float[batch, 3, 4] scores, int64[batch, 4] code, int64[batch, 4] rank) {
    scores = Tanh (x)
    code = ArgMax <axis = 1, keepdims = 0> (scores)
    rank = ArgMin <axis = 1, keepdims = 0> (scores)
}
"""


def _found(answer: Callable[[NDArray[np.float32]], Outputs], *, rows: int = 16) -> dict[str, str]:
    seen = LabelsSeen()
    random = np.random.default_rng(0)
    for _ in range(2):
        seen.add(answer(random.standard_normal((rows, 5)).astype(np.float32)))
    return seen.finish()


def test_labels_are_the_argmax_of_the_scores_beside_them() -> None:
    assert _found(lambda x: {"y": x.argmax(1), "x": x, "twice": 2 * x, "state": -x}) == {"y": "x"}


def test_labels_may_keep_the_axis_of_the_classes() -> None:
    assert _found(lambda x: {"y": x.argmax(1)[:, None], "x": x}) == {"y": "x"}


@pytest.mark.parametrize(
    ("answer", "rows"),
    [
        (lambda x: {"y": x.argmin(1), "x": x}, 16),
        (lambda x: {"y": x.argmax(1) * 0, "x": x}, 16),
        (lambda x: {"y": x.argmax(1)[:, None].repeat(2, axis=1), "x": x}, 16),
        # Of one column the largest is always the first one.
        (lambda x: {"y": np.zeros(len(x), np.int64), "x": x[:, :1]}, 16),
        (lambda x: {"y": x.argmax(1), "x": x}, 3),
    ],
)
def test_nothing_is_said_of_other_numbers_or_of_few(
    answer: Callable[[NDArray[np.float32]], Outputs], rows: int
) -> None:
    assert _found(answer, rows=rows) == {}


def test_one_batch_that_does_not_hold_is_enough_to_say_nothing() -> None:
    seen = LabelsSeen()
    x = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    seen.add({"y": x.argmax(1), "x": x})
    seen.add({"y": x.argmin(1), "x": x})
    seen.add({"y": x.argmax(1), "x": x})
    assert seen.finish() == {}


def test_the_first_spec_declares_labels(desk: Desk) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    onnx.save(onnx.parser.parse_model(_MODEL), str(desk.folder / "model.onnx"))
    rows = np.random.default_rng(0).standard_normal((64, 3, 4)).astype(np.float32)
    np.savez(desk.folder / "rows.npz", x=rows)

    called = desk.call("init", "model.onnx", "--samples", "rows.npz", "--out", "first.yaml")

    assert called.code == 0, called

    assert load_spec(desk.folder / "first.yaml").spec.argmax_of == {"code": "scores"}
    text = (desk.folder / "first.yaml").read_text()
    assert "# guess: scores had its largest value" in " ".join(text.split())
