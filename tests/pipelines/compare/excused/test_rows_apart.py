"""A SavedModel that takes a ragged tensor in parts: its inputs are not of the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.pipelines.compare.independent_batch_dims import rows_apart
from paritygate.signature import Signature, TensorSpec, with_declared_dims

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench, Desk

_DECLARED = {
    "inputs": {
        "values": {"dtype": "int32", "shape": ["items"]},
        "row_splits": {"dtype": "int64", "shape": ["splits"]},
    },
    "outputs": {"sum": {"dtype": "float32", "shape": ["rows", 3]}},
}
_OWN = Signature(
    inputs=(
        TensorSpec(name="row_splits", dtype="int64", shape=("batch",)),
        TensorSpec(name="values", dtype="int32", shape=("batch", "values_dim1")),
        TensorSpec(name="scale", dtype="float32", shape=()),
    ),
    outputs=(TensorSpec(name="sum", dtype="float32", shape=("batch", 3)),),
)


def _save(folder: Path, name: str = "saved", *, lengths: tuple[int, ...] = (2, 0, 5)) -> str:
    """Save a model that sums rows of a table for each row of a ragged tensor, and samples of it."""
    tf = import_tensorflow()
    random = np.random.default_rng(0)
    module = tf.Module()
    module.table = tf.Variable(random.standard_normal((30, 3)).astype(np.float32))

    def sums(values: Any, row_splits: Any) -> Any:  # noqa: ANN401 - tensors
        parts = tf.gather(module.table, values)
        return {
            "sum": tf.math.segment_sum(parts, tf.searchsorted(row_splits, tf.range(tf.size(values, tf.int64)), "right"))
        }

    specs = [tf.TensorSpec((None,), tf.int32, name="values"), tf.TensorSpec((None,), tf.int64, name="row_splits")]
    module.sums = tf.function(sums, input_signature=specs)
    tf.saved_model.save(module, str(folder / name), signatures=module.sums.get_concrete_function())
    arrays: dict[str, Any] = {}
    for case in range(20):
        sizes = random.permutation([*lengths, 1 + case % 3])
        arrays[f"c{case}/values"] = random.integers(0, 30, sizes.sum()).astype(np.int32)
        arrays[f"c{case}/row_splits"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    np.savez(folder / "ragged.npz", **arrays)
    return name


def _dims(record: Path) -> dict[str, list[Any]]:
    """Return the shapes that a recording says, by tensor."""
    signature = json.loads(record.read_text())["signature"]
    return {spec["name"]: spec["shape"] for spec in (*signature["inputs"], *signature["outputs"])}


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "as the samples show it"])
def test_a_savedmodel_that_takes_a_ragged_tensor_in_parts_is_released(desk: Desk, *, is_declared: bool) -> None:
    model = {"name": "tiny", "source": _save(desk.folder), **(_DECLARED if is_declared else {})}
    spec = desk.spec(
        model=model,
        samples={"source": "ragged.npz"},
        targets=["savedmodel-fp32"],
        decisions={},
        min_rows=20,
    )
    called = desk.json("run", spec)
    assert called.code == 0, str(called)
    assert called.data["runs"][0]["variants"]["savedmodel-fp32"]["verdict"] == "pass"
    names = {"values": ["items"], "row_splits": ["splits"], "sum": ["rows", 3]}
    own = {"values": ["values_dim0"], "row_splits": ["row_splits_dim0"], "sum": ["sum_dim0", 3]}
    assert _dims(desk.run_folder / "reference" / "record.json") == (names if is_declared else own)


@pytest.mark.tensorflow
def test_a_savedmodel_that_takes_a_ragged_tensor_in_parts_is_compared(bench: Bench) -> None:
    first, second = _save(bench.folder), _save(bench.folder, "other")
    paths = str(bench.folder / first), str(bench.folder / second)
    outcome = bench.compare(*paths, "--samples", str(bench.folder / "ragged.npz"), "--min-rows", "20")
    assert outcome.code == 0, outcome.message


@pytest.mark.tensorflow
def test_inputs_that_differ_in_a_later_batch_alone_are_refused_with_where_names_are_said(desk: Desk) -> None:
    name = _save(desk.folder)
    arrays = {
        "a/values": np.int32([1, 2, 3]),
        "a/row_splits": np.int64([0, 1, 3]),
        "b/values": np.int32([1, 2, 3, 4]),
        "b/row_splits": np.int64([0, 1, 4]),
    }
    np.savez(desk.folder / "ragged.npz", **arrays)
    called = desk.call("record", name, "--samples", "ragged.npz", "--out", "out")
    assert called.code == 2, str(called)
    said = " ".join(called.err.split())
    assert "'row_splits' has 3 places of 'batch' and 'values' has 4" in said
    assert "give the dims other names: in the model, or, where it has none for them, in model.inputs of a spec" in said


@pytest.mark.tensorflow
def test_init_takes_the_parts_of_a_ragged_tensor(desk: Desk) -> None:
    name = _save(desk.folder)
    called = desk.call("init", name, "--samples", "ragged.npz", "--out", "guess.yaml")
    assert called.code == 0, str(called)
    assert "values_dim0: {min: " in (desk.folder / "guess.yaml").read_text()


def test_the_first_dims_of_inputs_are_called_apart_where_the_first_rows_show_it() -> None:
    inputs = {"row_splits": np.zeros(4, np.int64), "values": np.zeros((7, 2), np.int32), "scale": np.float32(1)}
    found = rows_apart(_OWN, lambda: [Batch(inputs={}, ids=[]), Batch(inputs=inputs, ids=["a"])])
    assert [spec.shape for spec in (*found.inputs, *found.outputs)] == [
        ("row_splits_dim0",),
        ("values_dim0", "values_dim1"),
        (),
        ("sum_dim0", 3),
    ]


@pytest.mark.parametrize(
    "batches", [[], [Batch(inputs={"values": np.zeros((7, 2)), "row_splits": np.zeros(7)}, ids=["a"])]]
)
def test_the_first_dims_of_inputs_are_one_where_the_first_rows_do_not_tell_them_apart(batches: list[Batch]) -> None:
    assert rows_apart(_OWN, lambda: batches) is _OWN


def test_what_a_model_leaves_open_is_called_as_is_declared_and_what_it_fixes_stays() -> None:
    declared = Signature(
        inputs=(
            TensorSpec(name="values", dtype="int32", shape=("items", None)),
            TensorSpec(name="scale", dtype="float32", shape=("batch",)),
        ),
        outputs=(TensorSpec(name="sum", dtype="float32", shape=("rows", "width")),),
    )
    found = with_declared_dims(_OWN, declared)
    assert [spec.shape for spec in (*found.inputs, *found.outputs)] == [
        ("batch",),
        ("items", "values_dim1"),
        (),
        ("rows", 3),
    ]
    assert with_declared_dims(_OWN, None) is _OWN
