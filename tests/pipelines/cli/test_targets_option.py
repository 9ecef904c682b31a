"""`--target`: only some of a spec's targets are made, and a part of them is not released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from paritygate.errors import UsageError
from paritygate.pipelines.run.workspace import open_run
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.target_choice import with_targets

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

    from paritygate.pipelines.spec.schema import ResolvedSpec

_STATIC = {"name": "onnx-fp32", "static": {"batch": 4}}


def _resolved(**parts: object) -> ResolvedSpec:
    data: dict[str, Any] = {
        "model": {"name": "tiny", "source": "model.onnx"},
        "samples": {"source": "inputs.npz"},
        "targets": ["onnx-fp32", "onnx-fp16", "onnx-bf16", _STATIC],
        **parts,
    }
    return parse_spec(yaml.safe_dump(data), folder=Path("/spec"), origin="spec.yaml")


def test_only_the_targets_named_are_made_and_validated(desk: Desk) -> None:
    desk.spec(
        targets=["onnx-fp32", "onnx-fp16", "onnx-bf16"],
        required=["onnx-fp32", "onnx-fp16"],
        tolerance={"onnx-bf16": {"max_abs_diff": 1}},
        promote={"accept": {"onnx-bf16": "emulated"}, "prefer": ["onnx-bf16", "onnx-fp16"]},
    )

    called = desk.json("run", "--verbose", "spec.yaml", "--target", "onnx-fp16")

    assert called.code == 5, str(called)
    (run,) = called.data["runs"]
    assert list(run["variants"]) == run["required"] == ["onnx-fp16"]
    assert run["variants"]["onnx-fp16"]["verdict"] == "pass"
    assert run["targets_left_out"] == ["onnx-fp32"]
    assert run["release"] is None
    assert run["exit_code"] == 5
    spec = json.loads((desk.run_folder / "spec.json").read_text(encoding="utf-8"))["spec"]
    assert spec["targets"] == spec["required"] == spec["promote"]["prefer"] == ["onnx-fp16"]
    assert spec["tolerance"] == spec["promote"]["accept"] == {}
    # What it is made from is made on the way.
    assert not (desk.run_folder / "onnx-fp32").exists()
    assert (desk.run_folder / "bases/onnx-fp32/artifact.json").is_file()
    assert desk.call("validate", "--verbose", "--run", str(desk.run_folder)).code == 0
    assert [entry["variant"] for entry in desk.evidence()["variants"]] == ["onnx-fp16"]
    # A later release of the part needs a reason, as after a failure.
    promote = ("promote", "--run", str(desk.run_folder))
    assert desk.call(*promote).code == 5
    released = desk.json(*promote, "--despite", "the others are served as they are")
    assert released.code == 0, str(released)


@pytest.mark.parametrize(
    ("required", "options", "code", "left_out"),
    [
        (None, (), 5, ["onnx-fp32"]),
        (None, ("--no-promote",), 0, ["onnx-fp32"]),
        (["onnx-fp16"], (), 5, ["onnx-fp32"]),
        ([], (), 5, ["onnx-fp32"]),
        (["onnx-bf16"], (), 5, ["onnx-bf16", "onnx-fp32"]),
    ],
)
def test_a_part_is_not_released(
    desk: Desk, required: list[str] | None, options: tuple[str, ...], code: int, left_out: list[str]
) -> None:
    listed = {} if required is None else {"required": required}
    # BF16 needs a GPU, so a spec without a list does not require it here.
    desk.spec(targets=["onnx-fp32", "onnx-fp16", "onnx-bf16"], probes="none", **listed)

    called = desk.json("run", "spec.yaml", "--target", "onnx-fp16", *options)

    (run,) = called.data["runs"]
    assert (called.code, run["targets_left_out"]) == (code, left_out)
    assert run["release"] is None


def test_a_part_that_fails_does_not_put_the_source_over_a_release(desk: Desk) -> None:
    parts: dict[str, Any] = {"targets": ["onnx-fp32", "onnx-fp16"], "required": [], "probes": "none"}
    desk.spec(**parts, promote={"fallback": "replace"})
    assert desk.json("run", "spec.yaml").data["runs"][0]["release"]["version"] == 1
    desk.spec(**parts, promote={"fallback": "replace"}, tolerance={"onnx-fp16": {"max_abs_diff": 1e-30}})

    called = desk.json("run", "spec.yaml", "--target", "onnx-fp16")

    (run,) = called.data["runs"]
    assert run["variants"]["onnx-fp16"]["verdict"] == "fail"
    assert run["release"] is None
    assert desk.json("show", "tiny", "prod").data["version"] == 1


def test_several_targets_are_exported_in_the_order_of_the_spec(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-fp16", "onnx-bf16"])

    called = desk.json("export", "--verbose", "spec.yaml", "--target", "onnx-bf16", "--target", "onnx-fp32")

    assert called.code == 0, str(called)
    assert list(called.data["artifacts"]) == ["onnx-fp32", "onnx-bf16"]
    assert open_run(desk.run_folder).resolved.target_names == ("onnx-fp32", "onnx-bf16")


@pytest.mark.parametrize("command", ["export", "run"])
def test_a_name_that_is_no_target_is_wrong_usage(desk: Desk, command: str) -> None:
    called = desk.call(command, "spec.yaml", "--target", "onnx-fp32", "--target", "onnx-fp16")

    assert called.code == 2
    assert "error: --target 'onnx-fp16' is not a target of spec spec.yaml (targets: onnx-fp32)\n" in called.err
    near = desk.call("run", "--verbose", "spec.yaml", "--target", "onnx-pf32")
    assert "hint: did you mean onnx-fp32?" in near.err
    assert "add this target to the spec's targets" in called.err
    assert desk.runs == []


def test_without_names_the_spec_stays_as_it_is() -> None:
    resolved = _resolved(required=["onnx-fp32"])

    assert with_targets(resolved, ()) is resolved


def test_where_no_required_target_is_named_none_is_declared() -> None:
    chosen = with_targets(_resolved(required=["onnx-fp32"]), ["onnx-fp16"])

    assert chosen.spec.required is None


def test_a_preference_for_others_than_those_named_is_none() -> None:
    chosen = with_targets(_resolved(promote={"prefer": ["onnx-fp32"]}), ["onnx-fp16"])

    assert chosen.spec.promote.prefer is None


def test_a_target_with_fixed_dims_is_named_by_its_whole_name() -> None:
    resolved = _resolved()
    name = resolved.target_names[-1]

    chosen = with_targets(resolved, [name])

    assert name != "onnx-fp32"
    assert chosen.target_names == (name,)
    assert chosen.spec.targets == resolved.spec.targets[-1:]


@pytest.mark.parametrize(
    ("name", "is_meant", "is_added"),
    [("onnx-f16", True, False), ("onnx-bf16", False, True), ("onnx-int9", False, False)],
)
def test_a_target_that_only_the_spec_lacks_is_no_typo(name: str, *, is_meant: bool, is_added: bool) -> None:
    with pytest.raises(UsageError) as caught:
        with_targets(_resolved(targets=["onnx-fp32", "onnx-fp16"]), [name])

    assert ("onnx-fp16" in caught.value.hint) is is_meant
    assert ("add this target" in caught.value.hint) is is_added
