"""A run that ends in anything but 0 changes nothing in the repository; by hand, a reason is needed and recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from paritygate.errors import StorageError
from paritygate.pipelines import run_spec as run
from paritygate.pipelines.report.write import write_reports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Desk

    from paritygate.pipelines.run.workspace import RunFolder

_BOTH = ["onnx-fp32", "onnx-fp16"]
# No FP16 file stays within this.
_TIGHT = {"onnx-fp16": {"max_abs_diff": 1e-12}}
# Of the one model, FP16 alone fails.
_FP16_FAILS: dict[str, Any] = {"targets": _BOTH, "tolerance": _TIGHT}


def _repository(desk: Desk) -> dict[str, bytes]:
    """Return every file of the repository by its name, with its bytes."""
    root = desk.folder / "artifacts/repository"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _manifest(desk: Desk, version: int) -> dict[str, Any]:
    path = desk.folder / f"artifacts/repository/store/tiny/{version}/manifest.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _newest_run(desk: Desk) -> Path:
    return desk.runs[-1]


def test_the_alias_stays_where_something_required_failed(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    before = _repository(desk)
    desk.spec(**_FP16_FAILS)

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 1, str(called)
    assert _repository(desk) == before
    (done,) = called.data["runs"]
    assert done["release"] is None
    assert done["not_released"] == (
        "required and not passed: onnx-fp16 (fail); so nothing is released, and alias prod is neither set nor moved"
    )
    assert done["would_release"] == "onnx-fp32"
    assert "would have released: onnx-fp32" in called.out
    assert f"convert-and-validate promote --run {_newest_run(desk)} --despite REASON" in called.out


@pytest.mark.parametrize(
    ("parts", "rows", "code"),
    [
        ({}, 99, 3),
        ({"decisions": {"logits": {"threshold": 3, "axis": 9}}}, 120, 2),
        ({"targets": ["onnx-fp32", "tensorrt-fp16"], "required": ["onnx-fp32", "tensorrt-fp16"]}, 120, 5),
    ],
)
def test_no_code_but_0_changes_the_repository(desk: Desk, parts: dict[str, Any], rows: int, code: int) -> None:
    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    before = _repository(desk)
    desk.samples(rows)
    desk.spec(**parts)

    called = desk.call("run", "spec.yaml", "--verbose")

    assert called.code == code, str(called)
    assert _repository(desk) == before


def test_a_result_that_cannot_be_written_is_found_out_before_anything_is_released(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "--verbose", "--json", "inputs.npz/result.json")

    assert called.code == 2, str(called)
    assert "inputs.npz/result.json" in called.err
    assert desk.runs == []
    assert desk.releases == []


def test_a_report_that_cannot_be_written_after_the_release_does_not_undo_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(found: RunFolder, *, release: object = None) -> tuple[Path, ...]:
        if release is not None:
            msg = "the disk is full"
            raise StorageError(msg)
        return write_reports(found)

    monkeypatch.setattr(run, "write_reports", write)

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert desk.releases == ["tiny/1"]
    assert len(called.data["runs"][0]["left_out"]) == 1


def test_of_two_specs_only_the_one_that_passed_is_released(desk: Desk) -> None:
    desk.spec("fails.yaml", **_FP16_FAILS)
    other = {"name": "other", "source": "model.onnx", "rename": {"output_0": "logits"}}
    desk.spec("passes.yaml", model=other)

    called = desk.json("run", "fails.yaml", "passes.yaml", "--verbose")

    assert called.code == 1, str(called)
    assert [run["release"] is not None for run in called.data["runs"]] == [False, True]
    assert desk.releases == ["other/1"]


def test_a_failed_run_is_promoted_by_hand_for_a_reason_alone(desk: Desk) -> None:
    desk.spec(**_FP16_FAILS)
    assert desk.call("run", "spec.yaml", "--verbose").code == 1
    folder = str(_newest_run(desk))

    refused = desk.call("promote", "--verbose", "--run", folder)
    given = desk.json("promote", "--verbose", "--run", folder, "--despite", "FP16 is not served yet")

    assert refused.code == 5, str(refused)
    assert "required and not passed: onnx-fp16 (fail)" in refused.err
    assert f"hint: see why in {folder}/report.html; to release it all the same: convert-and-validate" in refused.err
    assert "--despite REASON" in refused.err
    copied = desk.call("promote", "--verbose", "--run", folder, "--despite", "reason")
    assert copied.code == 2
    assert "--despite reason gives no reason, only the placeholder" in copied.err
    elsewhere = desk.call("promote", "--run", folder, "--verbose", "--repository", "releases")
    assert f"convert-and-validate promote --run {folder} --repository releases --despite REASON" in elsewhere.err
    assert given.code == 0, str(given)
    assert given.data["variants"] == ["onnx-fp32"]
    assert desk.releases == ["tiny/1"]
    assert _manifest(desk, 1)["despite"] == "FP16 is not served yet"
    shown = desk.call("show", "tiny", "prod", "--verbose")
    assert "released despite: FP16 is not served yet" in shown.out


def test_what_failed_is_never_released_whatever_the_reason(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance=_TIGHT, promote={"fallback": "none"})
    assert desk.call("run", "spec.yaml", "--verbose").code == 1

    called = desk.call("promote", "--verbose", "--run", str(_newest_run(desk)), "--despite", "it is urgent")

    assert called.code == 5, str(called)
    assert "nothing to release: no converted variant passed for cpu (onnx-fp16: fail)" in called.err
    assert desk.releases == []


def test_a_reason_where_everything_passed_is_wrong_usage(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "--verbose", "--no-promote").code == 0

    called = desk.call("promote", "--verbose", "--run", str(_newest_run(desk)), "--despite", "no reason")

    assert called.code == 2, str(called)
    assert "--despite has no effect" in called.err
    assert desk.releases == []


def test_a_run_that_requires_nothing_ends_in_0_and_serves_the_source_at_first(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance=_TIGHT, required=[])

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    (done,) = called.data["runs"]
    assert done["required"] == []
    assert done["variants"]["onnx-fp16"]["verdict"] == "fail"
    assert done["release"]["variants"] == ["source"]
    assert done["release"]["reason"] == (
        "fallback: source, because no converted variant passed for cpu (onnx-fp16: fail)"
    )


def test_a_release_says_what_did_not_pass_beside_it(desk: Desk) -> None:
    desk.spec(**_FP16_FAILS, required=[])

    called = desk.call("run", "spec.yaml", "--verbose")
    shown = desk.call("show", "tiny", "prod", "--verbose")

    assert called.code == 0, str(called)
    assert "released tiny version 1, alias prod: onnx-fp32" in called.out
    for said in (called.out, shown.out):
        assert "did not pass in the same run: onnx-fp16 (fail)" in said


def test_the_source_replaces_a_release_only_where_the_spec_says_replace(desk: Desk) -> None:
    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    before = _repository(desk)
    desk.spec(targets=["onnx-fp16"], tolerance=_TIGHT, required=[])

    kept = desk.json("run", "spec.yaml", "--verbose")

    assert kept.code == 0, str(kept)
    assert _repository(desk) == before
    assert "alias prod is at version 1, which the source does not replace" in kept.out

    desk.spec(targets=["onnx-fp16"], tolerance=_TIGHT, required=[], promote={"fallback": "replace"})
    replaced = desk.json("run", "spec.yaml", "--verbose")

    assert replaced.code == 0, str(replaced)
    assert replaced.data["runs"][0]["release"]["variants"] == ["source"]
    assert desk.releases == ["tiny/1", "tiny/2"]


@pytest.mark.parametrize("fallback", ["source", "replace"])
def test_the_source_takes_no_place_of_what_was_not_measured(desk: Desk, fallback: str) -> None:
    desk.samples(99)
    desk.spec(required=[], promote={"fallback": fallback})

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert called.data["runs"][0]["variants"]["onnx-fp32"]["verdict"] == "inconclusive"
    assert desk.releases == []
    assert "The source cannot replace variants that were not measured" in called.out


def test_a_declared_fallback_without_effect_is_said(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance=_TIGHT, promote={"fallback": "source"})

    declared = desk.call("run", "spec.yaml", "--verbose")
    desk.spec(targets=["onnx-fp16"], tolerance=_TIGHT)
    default = desk.call("run", "spec.yaml", "--verbose")

    words = "note: promote.fallback: source has no effect where something required did not pass"
    assert declared.code == default.code == 1
    assert words in declared.out
    assert "required: []" in declared.out
    assert words not in default.out
    assert desk.releases == []


def test_what_cannot_run_here_is_no_error_and_no_obstacle(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-bf16", "tensorrt-fp16"])

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    (done,) = called.data["runs"]
    built = done["variants"]["onnx-bf16"]
    assert (built["verdict"], built["error"]) == ("not run here", None)
    assert built["not_run_here"].startswith("ONNX Runtime's CPU provider has no BF16 operators")
    assert done["failures"]["tensorrt-fp16"]["verdict"] == "not run here"
    assert "error" not in called.out + called.err
    assert "not run here: onnx-bf16: ONNX Runtime's CPU provider has no BF16 operators" in called.out
    entries = {entry["variant"]: entry["verdict"] for entry in desk.evidence()["variants"]}
    assert entries == {"onnx-fp32": "pass", "onnx-bf16": "not run here", "tensorrt-fp16": "not run here"}
    assert desk.releases == ["tiny/1"]
    page = (desk.run_folder / "report.html").read_text(encoding="utf-8")
    assert 'class="badge not-run-here"' in page


def test_what_cannot_run_here_is_an_obstacle_where_it_is_required(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-bf16"], required=["onnx-fp32", "onnx-bf16"])

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 5, str(called)
    assert "required and not passed: onnx-bf16 (not run here)" in called.out
    assert desk.releases == []
