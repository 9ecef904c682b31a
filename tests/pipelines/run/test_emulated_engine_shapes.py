"""What stands for an engine where no engine runs takes the shapes alone that the engine was built for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_ENGINE = "tensorrt-rtx-fp32"
_PROMOTE = {"accept": {_ENGINE: "emulated"}, "prefer": [_ENGINE]}


def _run(desk: Desk, *sizes: int) -> dict[str, object]:
    """Run the spec with an engine for batches of 1 to 64, over batches of these sizes, and return its emulated row."""
    model = {"name": "tiny", "source": "model.onnx", "rename": {"output_0": "logits"}}
    dims = {"batch": {"min": 1, "opt": 8, "max": 64}}
    desk.spec(model={**model, "dims": dims}, targets=["onnx-fp32", _ENGINE], promote=_PROMOTE)
    random = np.random.default_rng(0)
    batches = {f"{size}/x": random.standard_normal((size, 4)).astype(np.float32) for size in sizes}
    np.savez(desk.folder / "inputs.npz", **batches)
    called = desk.call("run", "spec.yaml", "--quiet", "--no-promote")
    assert called.code == 0, str(called)
    (row,) = desk.evidence()["emulated"]
    return dict(row)


@pytest.mark.rtx
def test_an_engine_that_would_refuse_a_batch_of_the_samples_is_not_released(desk: Desk) -> None:
    row = _run(desk, 60, 100)

    promoted = desk.call("promote", "--run", str(desk.run_folder), "--for", "cuda:sm89")

    assert row["verdict"] == "fail"
    words = "input 'x' has shape [100, 4], and the engine was built for shapes from [1, 4] to [64, 4]"
    assert words in json.dumps(row)
    assert promoted.code == 2
    assert desk.releases == []


@pytest.mark.rtx
def test_an_engine_that_takes_every_batch_of_the_samples_may_be(desk: Desk) -> None:
    row = _run(desk, 60, 61)

    promoted = desk.call("promote", "--run", str(desk.run_folder), "--for", "cuda:sm89")

    assert row["verdict"] == "pass"
    assert promoted.code == 0, str(promoted)
    assert desk.releases == ["tiny/1"]
