"""A run makes onnx-mixed like any other target, and `repair` mends a failed variant of a finished run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from tests.pipelines.lost_column import losing_a_column
from tests.pipelines.repair.conftest import loud_desk

from paritygate.files import make_marked_folder
from paritygate.formats import why_no_bf16
from paritygate.models.onnx.weights import ELEMENT_TYPES
from paritygate.pipelines.calibration.rows import CalibratedRows
from paritygate.precision import Precision

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_MIXED = {"name": "onnx-mixed", "lower": "fp16"}
_OVERFLOWING = {"grow", "cut", "shrink"}


def _low_nodes(path: Path) -> set[str]:
    """Return the nodes that read or make FP16 in a file."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    low = {value.name for value in model.graph.value_info if value.type.tensor_type.elem_type == 10}
    low |= {tensor.name for tensor in model.graph.initializer if tensor.data_type == ELEMENT_TYPES[Precision.FP16]}
    return {node.name for node in model.graph.node if low & {*node.input, *node.output} and node.op_type != "Cast"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, Called]:
    """Return a run of a spec with all variants, which releases the mixed one."""
    desk = loud_desk(
        tmp_path_factory.mktemp("mixed"),
        targets=["onnx-fp32", "onnx-fp16", _MIXED],
        required=["onnx-mixed"],
        promote={"prefer": ["onnx-mixed"], "accept": {"onnx-mixed": "emulated"}},
    )
    return desk, desk.json("run", "spec.yaml", "--quiet")


def _run(called: Called) -> dict[str, Any]:
    return dict(called.data["runs"][0])


def test_a_mixed_target_passes_where_fp16_overflows_and_is_released(mixed: tuple[Desk, Called]) -> None:
    desk, called = mixed
    run = _run(called)

    assert called.code == 0, called
    assert run["emulated"]["onnx-fp16"]["verdict"] == "fail"
    assert run["emulated"]["onnx-mixed"]["verdict"] == "pass"
    assert run["variants"]["onnx-mixed"]["verdict"] == "pass"
    assert list(run["release"]["variants"]) == ["onnx-mixed"]
    # The operators that it keeps are on the screen too.
    assert any("Mul grow" in note for note in run["variants"]["onnx-mixed"]["notes"])
    (entry,) = desk.json("show", "tiny").data["manifest"]["variants"]
    assert {item["name"] for item in entry["kept_in_fp32"]} == _OVERFLOWING
    assert "onnx-mixed keeps 3 operators in fp32: " in desk.call("show", "tiny").out


def test_the_record_names_the_nodes_that_overflow_and_the_file_has_them_in_fp32(mixed: tuple[Desk, Called]) -> None:
    desk, _ = mixed
    folder = desk.run_folder / "onnx-mixed"
    record = json.loads((folder / "repair.json").read_text(encoding="utf-8"))

    assert {item["name"] for item in record["kept"]} == _OVERFLOWING
    assert {item["reason"] for item in record["kept"]} == {"overflow"}
    assert min(item["largest"] for item in record["kept"]) > 65504
    assert set(record["nodes_to_exclude"]) == _OVERFLOWING
    assert record["op_block_list"] == ["Mul", "Relu"]
    assert record["multiply_adds_low"] == 1
    assert record["runs"] <= 20
    assert _low_nodes(folder / "model.onnx") == {"first product", "second product", "squash", "third product"}


def test_no_row_that_was_searched_by_is_compared(mixed: tuple[Desk, Called]) -> None:
    desk, called = mixed
    rows = CalibratedRows.load(desk.run_folder / "onnx-mixed/calibration-rows.json")
    record = json.loads((desk.run_folder / "onnx-mixed/repair.json").read_text(encoding="utf-8"))
    compared = _run(called)["variants"]["onnx-mixed"]["rows"]

    assert record["searched"]["rows"] + record["checked"]["rows"] == len(rows.digests)
    assert record["searched"]["digest"] != record["checked"]["digest"]
    assert compared + len(rows.digests) == 240


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run whose FP16 variant overflows, and whose INT8 variant passes."""
    desk = loud_desk(
        tmp_path_factory.mktemp("finished"),
        targets=["onnx-fp16", "onnx-int8"],
        required=["onnx-fp16"],
        decisions={},
        tolerance={"onnx-int8": {"max_abs_diff": 9, "mean_abs_diff": 9, "max_row_rel_diff": 9}},
    )
    desk.call("run", "spec.yaml", "--quiet", "--no-promote")
    return desk


def test_repair_mends_a_variant_of_a_finished_run(finished: Desk) -> None:
    desk = finished

    called = desk.json("repair", "--run", str(desk.run_folder), "--variant", "onnx-fp16", "--quiet")

    assert called.code == 0, called
    assert set(called.data["nodes_to_exclude"]) == _OVERFLOWING
    assert called.data["held_out"]["verdict"] == called.data["emulated"]["verdict"] == "pass"
    assert called.data["outcome"] == "repaired"
    record = json.loads((desk.run_folder / "repaired/onnx-fp16/repair.json").read_text(encoding="utf-8"))
    assert record["outcome"] == "repaired"
    assert Path(called.data["file"]).is_file()
    assert not (desk.run_folder / "onnx-mixed").exists()


def test_a_folder_of_the_user_stays_as_it_is(finished: Desk) -> None:
    arguments = ("repair", "--run", str(finished.run_folder), "--variant", "onnx-fp16", "--quiet")
    place = finished.run_folder / "repaired/onnx-fp16"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("mine", encoding="utf-8")

    called = finished.call(*arguments)

    assert called.code != 0, called
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
    shutil.rmtree(place)


def test_nothing_is_repaired_that_does_not_fail(finished: Desk) -> None:
    called = finished.call("repair", "--run", str(finished.run_folder), "--variant", "onnx-int8", "--quiet")

    assert called.code == 2, called
    assert "variants that fail: onnx-fp16" in called.err


def test_a_variant_that_is_not_there_is_wrong_usage(finished: Desk) -> None:
    called = finished.call("repair", "--run", str(finished.run_folder), "--variant", "onnx-fp-16")

    assert called.code == 2, called
    assert "did you mean 'onnx-fp16'?" in called.err


def test_too_few_runs_are_called_unrepaired_and_leave_no_earlier_record(finished: Desk) -> None:
    options = ["--variant", "onnx-fp16", "--max-runs", "2", "--quiet"]
    place = finished.run_folder / "repaired/onnx-fp16"
    make_marked_folder(place)
    (place / "repair.json").write_text("{}", encoding="utf-8")

    called = finished.json("repair", "--run", str(finished.run_folder), *options)

    assert not place.exists()
    assert (called.code, called.data) == (4, {}), called
    assert "--max-runs" in called.err.partition("hint")[2]


def test_fp32_everywhere_is_no_repair(desk: Desk) -> None:
    limit = {"max_abs_diff": 1e-9, "mean_abs_diff": 1e-9, "max_row_rel_diff": 1e-9}
    desk.spec(targets=["onnx-fp32", _MIXED], tolerance={"onnx-mixed": limit})

    run = _run(desk.json("run", "spec.yaml", "--quiet", "--no-promote"))

    assert run["failures"]["onnx-mixed"]["verdict"] == "error"
    assert run["failures"]["onnx-mixed"]["exit_code"] == 4


@pytest.fixture
def _wrong_fp32() -> Iterator[None]:
    """Plant a fault that is there in FP32 too."""
    with losing_a_column():
        yield


@pytest.mark.usefixtures("_wrong_fp32")
def test_a_variant_that_fails_in_fp32_is_never_repaired(desk: Desk) -> None:
    desk.call("run", "spec.yaml", "--quiet", "--no-promote")

    called = desk.call("repair", "--run", str(desk.run_folder), "--variant", "onnx-fp16")

    assert called.code == 4, called
    assert "diagnose" in called.err


@pytest.mark.usefixtures("_wrong_fp32")
def test_a_mixed_target_fails_with_its_fp32_base(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", _MIXED], required=["onnx-mixed"])

    run = _run(desk.json("run", "spec.yaml", "--quiet"))
    result = run["variants"]["onnx-mixed"]

    # What it was made of before is sound, so nothing else fails.
    assert {check["name"] for check in result["checks"] if check["status"] == "fail"} == {"fp32_base"}
    assert (result["verdict"], run["release"]) == ("fail", None)


def test_bf16_is_refused_with_the_reason(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", {"name": "onnx-mixed", "lower": "bf16"}])

    called = desk.call("plan", "spec.yaml")

    assert called.code == 2, called
    assert why_no_bf16() in " ".join(called.err.split())
