"""FP16 and BF16 in a run: the file as it runs here, and the row that says how it would where the precision is real."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_HELD = {"model": {"name": "tiny", "source": "model.onnx"}, "targets": ["onnx-fp16"], "decisions": {}}


def _scaled_model(desk: Desk, scale: float) -> None:
    """Write `output_0 = ((x @ weight) * scale) / scale`: in FP16 it overflows for a large scale."""
    import onnx

    desk.onnx(output="product")
    model = onnx.load(str(desk.folder / "model.onnx"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([scale]), "scale"))
    model.graph.node.extend(
        [
            onnx.helper.make_node("Mul", ["product", "scale"], ["large"]),
            onnx.helper.make_node("Div", ["large", "scale"], ["output_0"]),
        ]
    )
    model.graph.output[0].name = "output_0"
    onnx.save(model, str(desk.folder / "model.onnx"))


def _evidence_shown(line: str) -> str:
    """Return the cell before the verdict in a row of the parity table."""
    return re.split(r" {2,}", line)[10]


def _run(desk: Desk, **parts: object) -> Called:
    desk.samples()
    desk.spec(**{**_HELD, **parts})
    return desk.json("run", "--verbose", "spec.yaml")


def _emulated(called: Called) -> dict[str, object]:
    found: dict[str, object] = called.data["runs"][0]["emulated"]["onnx-fp16"]
    return found


def test_an_fp16_file_has_a_verified_row_and_an_emulated_one(desk: Desk) -> None:
    desk.onnx()

    called = _run(desk)

    assert called.code == 0
    verified = called.data["runs"][0]["variants"]["onnx-fp16"]
    emulated = _emulated(called)
    assert (verified["verdict"], verified["candidate"]["device"]) == ("pass", "cpu")
    assert (emulated["verdict"], emulated["candidate"]["device"]) == ("pass", "emulated:fp16")
    assert verified["candidate"]["precision_found"] == "fp16"
    # Rounding every value differs more than rounding the weights alone, and FP16 is not FP32.
    assert emulated["outputs"]["output_0"]["max_abs_diff"] >= verified["outputs"]["output_0"]["max_abs_diff"] > 0
    assert "rewritten to fp16: 1 node, " in called.out


def test_an_overflow_that_the_cpu_hides_is_no_pass_and_fails_where_fp16_is_real(desk: Desk) -> None:
    _scaled_model(desk, 6e4)

    called = _run(desk)

    emulated = _emulated(called)
    assert emulated["verdict"] == "fail"
    assert "NaN or infinite where the reference is finite" in str(emulated["checks"])
    assert (called.code, called.data["runs"][0]["variants"]["onnx-fp16"]["verdict"]) == (3, "inconclusive")
    assert "onnx-fp16, emulated: fail: finite[output_0]" in called.out


@pytest.mark.parametrize(("scale", "is_said"), [(1.0, False), (6e4, True)])
def test_a_release_says_that_its_file_fails_where_fp16_is_real(desk: Desk, scale: float, *, is_said: bool) -> None:
    _scaled_model(desk, scale)

    called = _run(desk, promote={"for": ["cpu"]})
    shown = desk.call("show", "tiny", "prod", "--verbose")

    assert called.data["runs"][0]["release"]["variants"] == ["onnx-fp16"]
    words = "onnx-fp16 passed as it ran, but does not on emulated:fp16: fail: finite[output_0]: "
    for said in (called.out, shown.out):
        assert (words in said) == is_said, said


@pytest.mark.parametrize(("scale", "released"), [(1.0, ["onnx-fp16"]), (6e4, None)])
def test_only_an_emulated_pass_is_accepted_for_an_absent_device(
    desk: Desk, scale: float, released: list[str] | None
) -> None:
    _scaled_model(desk, scale)

    called = _run(desk, promote={"for": ["cuda:sm80"], "accept": {"onnx-fp16": "emulated"}})

    release = called.data["runs"][0]["release"]
    assert (None if release is None else release["variants"]) == released
    if release is not None:
        assert "accepted on emulated evidence by the spec: onnx-fp16" in release["reason"]


def test_without_accept_an_absent_device_gets_the_source(desk: Desk) -> None:
    desk.onnx()

    called = _run(desk, promote={"for": ["cuda:sm80"]})

    assert called.data["runs"][0]["release"]["variants"] == ["source"]


def test_the_report_shows_both_rows(desk: Desk) -> None:
    _scaled_model(desk, 6e4)

    called = _run(desk)

    (page,) = (path for path in called.data["runs"][0]["reports"] if path.endswith(".md"))
    rows = [line for line in (desk.folder / page).read_text(encoding="utf-8").splitlines() if "emulated:fp16" in line]
    assert any("fail" in row for row in rows)


def test_compare_emulates_a_candidate_when_asked(desk: Desk) -> None:
    _scaled_model(desk, 6e4)
    desk.onnx("plain.onnx")
    desk.samples()
    sides = ("compare", "plain.onnx", "model.onnx", "--samples", "inputs.npz", "--precision", "fp16")

    assert desk.json(*sides).code == 0
    called = desk.json(*sides, "--emulate", "--verbose")

    assert called.code == 1
    assert "emulated:fp16" in called.out


def test_bf16_that_no_cpu_runs_is_built_and_emulated(desk: Desk) -> None:
    # Of FP16's overflow BF16 knows nothing: it has the range of FP32.
    _scaled_model(desk, 6e4)

    called = _run(desk, targets=["onnx-fp32", "onnx-bf16"])

    (run,) = called.data["runs"]
    assert (called.code, run["required"]) == (0, ["onnx-fp32"])
    assert run["variants"]["onnx-bf16"]["verdict"] == "not run here"
    assert "has no BF16 operators" in run["variants"]["onnx-bf16"]["not_run_here"]
    assert run["emulated"]["onnx-bf16"]["verdict"] == "pass"
    assert run["release"]["variants"] == ["onnx-fp32"]
    evidence = json.loads((Path(run["run"]) / "evidence.json").read_text(encoding="utf-8"))
    built = next(entry for entry in evidence["variants"] if entry["variant"] == "onnx-bf16")
    assert built["evidence"] == "built"
    assert built["artifact"].startswith("sha256:")
    assert [_evidence_shown(line) for line in called.out.splitlines() if line.startswith("onnx-bf16  ")] == [
        "built",
        "emulated",
    ]


def test_bf16_whose_file_was_changed_is_no_evidence_of_anything(desk: Desk) -> None:
    desk.onnx()
    _run(desk, targets=["onnx-fp32", "onnx-bf16"])
    with (desk.run_folder / "onnx-bf16/model.onnx").open("ab") as file:
        file.write(b"one byte more")

    called = desk.json("validate", "--verbose", "--run", str(desk.run_folder))

    assert "onnx-bf16: " in called.err
    assert "model.onnx was changed" in called.err
    evidence = json.loads((desk.run_folder / "evidence.json").read_text(encoding="utf-8"))
    entries = [entry for entry in (*evidence["variants"], *evidence["emulated"]) if entry["variant"] == "onnx-bf16"]
    assert [(entry["evidence"], entry["artifact"]) for entry in entries] == [("none", None)] * 2


def test_bf16_that_is_required_where_nothing_runs_it_is_not_measured(desk: Desk) -> None:
    desk.onnx()

    assert _run(desk, targets=["onnx-fp32", "onnx-bf16"], required=["onnx-bf16"]).code == 5


def test_bf16_is_released_for_an_absent_device_on_emulated_evidence_alone_if_the_spec_accepts_that(desk: Desk) -> None:
    desk.onnx()
    promote = {"for": ["cuda:sm80"], "accept": {"onnx-bf16": "emulated"}}

    called = _run(desk, targets=["onnx-bf16"], required=[], promote=promote)

    release = called.data["runs"][0]["release"]
    assert release["variants"] == ["onnx-bf16"]
    assert "accepted on emulated evidence" in release["reason"]


@pytest.mark.parametrize("prefer", ["smallest", ["onnx-bf16", "onnx-fp32"]])
def test_bf16_is_not_released_for_the_cpu_that_does_not_run_it(desk: Desk, prefer: object) -> None:
    desk.onnx()
    promote = {"accept": {"onnx-bf16": "emulated"}, "prefer": prefer}

    called = _run(desk, targets=["onnx-fp32", "onnx-bf16"], promote=promote)

    assert called.data["runs"][0]["release"]["variants"] == ["onnx-fp32"]
    chosen = desk.json("choose", "--run", str(desk.run_folder)).data
    assert [item["hindrance"] for item in chosen["candidates"]] == ["", "does not run on cpu"]
