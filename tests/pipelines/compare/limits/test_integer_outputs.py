"""An integer output that has a limit of its own, in `compare`: options, the result and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import paritygate as pg
from paritygate.pipelines.report.not_covered import not_covered
from paritygate.pipelines.report.tables.variants import difference_table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Bench

_ROWS = 40


def _image() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(1, 255, size=(_ROWS, 6), dtype=np.uint8)


def _near() -> NDArray[np.uint8]:
    near = _image()
    near[3, 2] += 1
    near[9, 0] -= 1
    return near


@pytest.mark.parametrize(
    ("tolerances", "code"),
    [((), 1), (("max_abs_diff=9", "mean_abs_diff=9"), 1), (("image:max_abs_diff=1",), 0)],
)
def test_only_a_limit_by_its_name_lets_an_integer_differ(bench: Bench, tolerances: tuple[str, ...], code: int) -> None:
    options = [part for text in tolerances for part in ("--tolerance", text)]
    found = bench.given({"image": _image()}, {"image": _near()}, *options)

    output = found.result["outputs"]["image"]
    assert found.code == code
    assert output["max_abs_diff"] == 1
    assert output["mismatches"] == (2 if code else None)
    assert output["limits"]["max_abs_diff"]["highest"] == (0 if code else 1)
    assert found.result["looser_than_default"] == ([] if code else ["image:max_abs_diff"])
    assert {check["name"] for check in found.result["checks"] if check["output"]} >= (
        {"exact"} if code else {"max_abs_diff", "mean_abs_diff", "bias"}
    )


def test_the_report_has_the_limits_of_a_quantity_and_counts_no_mismatch(tmp_path: Path) -> None:
    for name, array in (("x", np.zeros((_ROWS, 1), np.float32)), ("a", _image()), ("b", _near())):
        np.savez(tmp_path / f"{name}.npz", **{"x" if name == "x" else "image": array})
    sides, samples = (tmp_path / "a.npz", tmp_path / "b.npz"), tmp_path / "x.npz"
    result = pg.compare(*map(str, sides), samples=samples, tolerance={"image:max_abs_diff": 1})
    exact = pg.compare(*map(str, sides), samples=samples)

    assert (result.verdict, result.mismatches, exact.verdict, exact.mismatches) == ("pass", None, "fail", 2)
    assert result.outputs["image"].drawing is not None
    assert [len(difference_table(each.outputs["image"]).rows) for each in (result, exact)] == [2, 1]
    assert [any("image" in words for words in not_covered(each)) for each in (result, exact)] == [True, False]


def _rounding_model(path: Path, add: float, mode: str) -> str:
    """Write a model that scales, rounds and casts an image to uint8, as preprocessing and super-resolution do."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["moved"]),
        helper.make_node(mode, ["moved"], ["whole"]),
        helper.make_node("Clip", ["whole", "low", "high"], ["inside"]),
        helper.make_node("Cast", ["inside"], ["image"], to=TensorProto.UINT8),
    ]
    constants = {"scale": 60, "shift": 128 + add, "low": 0, "high": 255}
    graph = helper.make_graph(
        nodes,
        "rounding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", 8])],
        [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.mark.parametrize(
    ("add", "mode", "fails"),
    [(0.004, "Round", set()), (0, "Floor", {"mean_abs_diff"}), (2, "Round", {"max_abs_diff", "mean_abs_diff"})],
)
def test_a_model_that_rounds_to_uint8_is_judged_with_its_probes(
    tmp_path: Path, add: float, mode: str, fails: set[str]
) -> None:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32))
    reference = _rounding_model(tmp_path / "reference.onnx", 0, "Round")
    candidate = _rounding_model(tmp_path / "candidate.onnx", add, mode)

    result = pg.compare(
        reference,
        candidate,
        samples=tmp_path / "x.npz",
        tolerance={"image:max_abs_diff": 1},
        probes=["batches", "flat"],
    )

    assert result.outputs["image"].max_abs_diff is not None
    assert result.outputs["image"].max_abs_diff > 0
    failed = {check.name for check in result.checks if check.status == "fail"}
    assert fails <= failed
    assert (result.verdict == "pass") is not bool(fails)


@pytest.mark.parametrize("output", ["flag", "label"])
def test_a_bool_and_a_declared_label_take_no_limit(bench: Bench, output: str) -> None:
    scores = np.random.default_rng(0).standard_normal((_ROWS, 4)).astype(np.float32)
    sides = {"scores": scores, "label": scores.argmax(axis=1), "flag": scores[:, 0] > 0}
    found = bench.given(
        sides, sides, "--tolerance", f"{output}:max_abs_diff=1", "--argmax-of", "label=scores", "--min-rows", "1"
    )
    assert found.code == 2
