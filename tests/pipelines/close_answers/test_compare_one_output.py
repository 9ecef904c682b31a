"""`compare --match` with all numbers of a detection in one output, by real models in both layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench

pytestmark = pytest.mark.usefixtures("asks_probes")

_COUNT, _FEATURES = 20, 4
_MATCH = "det:output=output0,boxes=0:4,scores=4,classes=5"


def _detector(bench: Bench, name: str, *, is_transposed: bool, order: NDArray[np.int64], fault: str = "") -> str:
    """Write a detector without NMS: its numbers are linear in the features, and its detections in a given order."""
    random = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), axis=-1).reshape(-1, 2) * 20
    base = np.concatenate(
        [grid, grid + 12, random.uniform(0.3, 0.9, (_COUNT, 1)), random.integers(0, 3, (_COUNT, 1))], axis=1
    )
    weight = random.normal(0, 1, (_FEATURES, _COUNT, 6)) * [0.3, 0.3, 0.3, 0.3, 0.01, 0]
    if fault == "moved":
        base[7, :4] += 5
    elif fault == "class":
        base[7, 5] += 1
    elif fault == "score":
        base[7, 4] /= 2
    elif fault == "doubled":
        base[7], weight[:, 7] = base[8], weight[:, 8]
    weight, base = weight[:, order], base[order]
    nodes = [
        helper.make_node("MatMul", ["features", "weight"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["list"]),
        helper.make_node("Add", ["list", "base"], ["detections"]),
        helper.make_node("Transpose", ["detections"], ["output0"], perm=[0, 2, 1])
        if is_transposed
        else helper.make_node("Identity", ["detections"], ["output0"]),
    ]
    return bench.model(
        name,
        nodes,
        inputs={"features": ("float", ["batch", _FEATURES])},
        outputs={"output0": ("float", ["batch", *((6, _COUNT) if is_transposed else (_COUNT, 6))])},
        weights={
            "weight": weight.reshape(_FEATURES, -1).astype(np.float32),
            "base": base.astype(np.float32),
            "shape": np.array([-1, _COUNT, 6]),
        },
    )


@pytest.mark.parametrize("is_transposed", [False, True])
def test_one_output_in_another_order_passes_and_its_faults_fail(bench: Bench, is_transposed: bool) -> None:  # noqa: FBT001 - a parameter
    order = np.random.default_rng(3).permutation(_COUNT)
    reference = _detector(bench, "ref.onnx", is_transposed=is_transposed, order=np.arange(_COUNT))
    samples = np.random.default_rng(1).normal(0, 1, (40, _FEATURES)).astype(np.float32)
    inputs = bench.npz("inputs.npz", {"features": samples})

    def verdict(fault: str) -> str:
        candidate = _detector(bench, f"{fault}.onnx", is_transposed=is_transposed, order=order, fault=fault)
        outcome = bench.compare(reference, candidate, "--samples", inputs, "--match", _MATCH)
        return str(outcome.result["verdict"])

    assert verdict("") == "pass"
    assert {fault: verdict(fault) for fault in ("moved", "class", "score", "doubled")} == dict.fromkeys(
        ("moved", "class", "score", "doubled"), "fail"
    )
