"""`compare --repair` makes the candidate anew of its FP32 reference, and judges it on rows that the search left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from tests.pipelines.repair.conftest import loud_desk, loud_model

from paritygate.convert.onnx.onnx_to_low_precision import rewrite_precision
from paritygate.precision import Precision

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_ROWS = 240


@pytest.fixture
def pair(tmp_path: Path) -> Desk:
    """Return a desk with a model in FP32, its FP16 form, which overflows."""
    desk = loud_desk(tmp_path)
    onnx.save(rewrite_precision(loud_model(), precision=Precision.FP16).model, tmp_path / "half.onnx")
    return desk


def _compare(desk: Desk, candidate: str, *options: str, reference: str = "model.onnx") -> Called:
    return desk.call(
        *("compare", reference, candidate, "--samples", "inputs.npz", "--precision", "fp16", "--probes", "none"),
        *("--repair", "out", *options),
    )


@pytest.mark.parametrize("is_named", [True, False])
def test_the_half_precision_form_of_a_file_is_repaired(is_named: bool, pair: Desk) -> None:  # noqa: FBT001
    if not is_named:
        model = onnx.load(pair.folder / "model.onnx")
        for node in model.graph.node:
            node.ClearField("name")
        onnx.save(model, pair.folder / "model.onnx")

    called = _compare(pair, "half.onnx")
    record = json.loads((pair.folder / "out/repair.json").read_text(encoding="utf-8"))

    assert called.code == 1, called
    assert record["outcome"] == "repaired"
    assert record["op_block_list"] == ["Mul", "Relu"]
    # No tool can be told names that the file does not have.
    assert set(record.get("nodes_to_exclude", ())) == ({"grow", "cut", "shrink"} if is_named else set())
    assert record["held_out"]["verdict"] == record["emulated"]["verdict"] == "pass"
    assert record["held_out"]["rows"] + record["searched"]["rows"] + record["checked"]["rows"] == _ROWS
    assert (pair.folder / "out/model.onnx").is_file()


def test_a_fault_that_is_none_of_precision_is_not_repaired(pair: Desk) -> None:
    tame = loud_model()
    for tensor in tame.graph.initializer:
        if tensor.name in {"large", "small"}:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32(1), tensor.name))
    onnx.save(tame, pair.folder / "tame.onnx")
    wrong = rewrite_precision(tame, precision=Precision.FP16).model
    next(node for node in wrong.graph.node if node.op_type == "Tanh").op_type = "Sigmoid"
    onnx.save(wrong, pair.folder / "wrong.onnx")

    called = _compare(pair, "wrong.onnx", reference="tame.onnx")

    assert called.code == 4, called
    assert "diagnose" in called.err
    assert not (pair.folder / "out").exists()


@pytest.mark.parametrize(("reference", "candidate"), [("model.onnx", "model.onnx"), ("half.onnx", "half.onnx")])
def test_other_pairs_are_refused_before_anything_runs(reference: str, candidate: str, pair: Desk) -> None:
    called = _compare(pair, candidate, reference=reference)

    assert called.code == 2, called
    assert not (pair.folder / "out").exists()


def test_too_few_rows_are_refused(pair: Desk) -> None:
    np.savez(pair.folder / "inputs.npz", x=np.load(pair.folder / "inputs.npz")["x"][:20])

    called = _compare(pair, "half.onnx")

    assert called.code == 2, called
    assert "--samples" in called.err
    assert not (pair.folder / "out").exists()
