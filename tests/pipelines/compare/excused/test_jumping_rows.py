"""Rows at a split of a tree, which either side answers by the last digit of the scaled input, are excused alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome

_ROWS = 400
_MEAN, _SCALE = 50.1, 7.3
_TREES = 60
_THRESHOLDS = np.sort(np.random.default_rng(1).uniform(-2, 2, _TREES)).astype(np.float32)
_WEIGHTS = np.random.default_rng(2).uniform(0.5, 1.5, _TREES)


def _trees(bench: Bench, name: str, *, how: str, mean: float = _MEAN, scale: float = _SCALE) -> str:
    """Write stumps on a scaled input: `subtract`, then divide; or one `product` and a sum, which rounds otherwise."""
    if how == "subtract":
        scaler = [helper.make_node("Sub", ["x", "mean"], ["moved"]), helper.make_node("Div", ["moved", "scale"], ["z"])]
    else:
        scaler = [
            helper.make_node("Mul", ["x", "factor"], ["grown"]),
            helper.make_node("Add", ["grown", "shift"], ["z"]),
        ]
    weights = {
        "mean": np.float32(mean),
        "scale": np.float32(scale),
        "factor": np.float32(1 / scale),
        "shift": np.float32(-mean / scale),
    }
    count = range(_TREES)
    ensemble = helper.make_node(
        "TreeEnsembleRegressor",
        ["z"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[tree for tree in count for _ in range(3)],
        nodes_nodeids=[0, 1, 2] * _TREES,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * _TREES,
        nodes_featureids=[0] * 3 * _TREES,
        nodes_values=[value for threshold in _THRESHOLDS for value in (float(threshold), 0.0, 0.0)],
        nodes_truenodeids=[1, 0, 0] * _TREES,
        nodes_falsenodeids=[2, 0, 0] * _TREES,
        target_ids=[0] * 2 * _TREES,
        target_nodeids=[1, 2] * _TREES,
        target_treeids=[tree for tree in count for _ in range(2)],
        target_weights=[value for weight in _WEIGHTS for value in (0.0, float(weight))],
    )
    graph = helper.make_graph(
        [*scaler, ensemble],
        name,
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 1])],
        [onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path: Path = bench.folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return str(path)


def _rows(at_splits: int) -> NDArray[np.float32]:
    """Return rows of which so many lie where the two ways to scale fall on different sides of a split."""
    mean, scale = np.float32(_MEAN), np.float32(_SCALE)
    factor, shift = np.float32(1 / _SCALE), np.float32(-_MEAN / _SCALE)
    near = (mean + scale * _THRESHOLDS).astype(np.float32)
    steps = np.spacing(near)[:, None] * np.arange(-4, 5, dtype=np.float32)
    candidates = (near[:, None] + steps).astype(np.float32)
    left = (candidates - mean) / scale <= _THRESHOLDS[:, None]
    right = candidates * factor + shift <= _THRESHOLDS[:, None]
    apart = candidates[left != right]
    assert apart.size >= at_splits
    rows = np.random.default_rng(0).uniform(mean - 2 * scale, mean + 2 * scale, _ROWS).astype(np.float32)
    # Not nearer to a split than a thousandth: these rows are answered alike.
    nearest = near[np.abs(rows[:, None] - near).argmin(axis=1)]
    rows = np.where(np.abs(rows - nearest) < 1e-3, nearest + np.float32(2e-3), rows)
    rows[:at_splits] = apart[:: max(1, apart.size // max(1, at_splits))][:at_splits]
    return rows[:, None]


def _compare(bench: Bench, candidate: str, *, at_splits: int) -> Outcome:
    samples = bench.npz("rows.npz", {"x": _rows(at_splits)})
    return bench.compare(_trees(bench, "reference", how="subtract"), candidate, "--samples", samples)


@pytest.mark.parametrize("at_splits", [1, 2])
def test_a_right_candidate_passes_and_its_rows_are_counted(bench: Bench, at_splits: int) -> None:
    found = _compare(bench, _trees(bench, "candidate", how="product"), at_splits=at_splits)

    check = found.check("reference_jumps")
    assert found.code == 0, found.out
    assert (check["status"], check["measured"], check["limit"]) == ("warning", at_splits, 2)
    # What was measured stays as it is.
    assert found.result["outputs"]["y"]["max_abs_diff"] > 0.4


def test_without_such_rows_nothing_is_excused(bench: Bench) -> None:
    found = _compare(bench, _trees(bench, "candidate", how="product"), at_splits=0)

    assert found.code == 0
    assert [check for check in found.result["checks"] if check["name"] == "reference_jumps"] == []


def test_more_rows_than_the_cap_fail(bench: Bench) -> None:
    found = _compare(bench, _trees(bench, "candidate", how="product"), at_splits=5)

    assert found.code == 1
    assert "max_abs_diff" in found.failed


@pytest.mark.parametrize("at_splits", [0, 1])
@pytest.mark.parametrize(("mean", "scale"), [(_MEAN, 7.31), (50.11, _SCALE), (50.0, _SCALE), (_MEAN, 7.0)])
def test_a_scaler_that_was_rounded_fails(bench: Bench, mean: float, scale: float, at_splits: int) -> None:
    found = _compare(bench, _trees(bench, "candidate", how="subtract", mean=mean, scale=scale), at_splits=at_splits)

    assert found.code == 1


def test_a_wrong_leaf_is_not_excused_by_a_row_at_a_split(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = _trees(bench, "reference", how="subtract")
    monkeypatch.setitem(globals(), "_WEIGHTS", _WEIGHTS * np.where(np.arange(_TREES) == _TREES - 1, 3, 1))
    candidate = _trees(bench, "candidate", how="product")
    rows = _rows(1)
    # The fault is in one row alone: beyond the last split but one.
    last = np.float32(_MEAN) + np.float32(_SCALE) * _THRESHOLDS[-1]
    rows = np.where(rows > last, last - np.float32(0.01), rows)
    rows[7] = last + 1

    found = bench.compare(reference, candidate, "--samples", bench.npz("rows.npz", {"x": rows}))

    assert found.code == 1
    assert "max_abs_diff" in found.failed


def test_outputs_that_were_recorded_cannot_be_asked_again(bench: Bench) -> None:
    rows = _rows(1)
    samples = bench.npz("rows.npz", {"x": rows})
    import onnxruntime

    session = onnxruntime.InferenceSession(_trees(bench, "reference", how="subtract"))
    recorded = bench.npz("outputs.npz", {"y": session.run(["y"], {"x": rows})[0]})

    assert bench.compare(recorded, _trees(bench, "candidate", how="product"), "--samples", samples).code == 1
