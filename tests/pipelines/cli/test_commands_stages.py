"""export, record, validate and promote as commands of their own over one run folder: together they are `run`."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, finished: Desk) -> tuple[Desk, dict[str, Called]]:
    """Return a desk where the stages were called one by one, and what each said."""
    folder = tmp_path_factory.mktemp("staged")
    desk = finished.copy(folder)
    shutil.rmtree(folder / "artifacts")
    said = {"export": desk.json("export", "--verbose", "spec.yaml")}
    for stage in ("record", "validate", "promote"):
        said[stage] = desk.json(stage, "--run", str(desk.run_folder))
    return desk, said


def test_the_stages_one_by_one_pass(staged: tuple[Desk, dict[str, Called]]) -> None:
    _, said = staged

    assert {stage: called.code for stage, called in said.items()} == dict.fromkeys(said, 0), said


def _without_time(data: Any, run_id: str) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data without what two equal runs differ in."""
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if not key.endswith("seconds") and key != "detail"}
        return {key: _without_time(value, run_id) for key, value in kept.items()}
    if isinstance(data, list):
        return [_without_time(item, run_id) for item in data]
    return data.replace(run_id, "RUN") if isinstance(data, str) else data


def test_the_stages_one_by_one_find_what_run_finds(staged: tuple[Desk, dict[str, Called]], finished: Desk) -> None:
    desk, _ = staged

    assert _without_time(desk.evidence(), desk.run_folder.name) == _without_time(
        finished.evidence(), finished.run_folder.name
    )
    store = "artifacts/repository/store/tiny/1"
    names = {str(path.relative_to(desk.folder / store)) for path in (desk.folder / store).rglob("*")}
    assert names == {str(path.relative_to(finished.folder / store)) for path in (finished.folder / store).rglob("*")}


def test_each_stage_says_what_it_made(staged: tuple[Desk, dict[str, Called]]) -> None:
    desk, said = staged
    record = json.loads((desk.run_folder / "onnx-fp32/artifact.json").read_text(encoding="utf-8"))

    assert said["export"].data["run"] == str(desk.run_folder)
    assert said["export"].data["artifacts"]["onnx-fp32"]["digest"] == record["digest"]
    assert record["digest"][:19] in said["export"].out
    assert f"run: {desk.run_folder}\n" in said["export"].out
    assert said["record"].data["rows"] == 120
    assert f"recorded 120 rows in {desk.run_folder.relative_to(desk.folder)}/reference" in said["record"].out
    assert "reference_repeats: " in said["record"].out
    assert said["validate"].data["runs"][0]["variants"]["onnx-fp32"]["verdict"] == "pass"
    assert said["validate"].data["runs"][0]["release"] is None
    assert "next: convert-and-validate promote --run " in said["validate"].out
    assert said["promote"].data["variants"] == ["onnx-fp32"]
    assert "released tiny version 1, alias prod: onnx-fp32" in said["promote"].out
    assert "next: convert-and-validate show tiny prod\n" in said["promote"].out


@pytest.mark.parametrize("stage", ["record", "validate", "promote"])
def test_a_stage_of_a_folder_that_is_no_run_is_wrong_usage(desk: Desk, stage: str) -> None:
    called = desk.call(stage, "--run", "absent")

    assert called.code == 2
    assert called.err.startswith("error: absent is not a run folder\nhint: ")


@pytest.mark.parametrize("stage", ["validate", "promote"])
def test_a_stage_without_a_run_is_wrong_usage(desk: Desk, stage: str) -> None:
    called = desk.call(stage)

    assert called.code == 2
    assert f"error: {stage} needs --run DIR" in called.err


def test_without_a_run_gate_prints_the_same_command_on_the_latest_run(desk: Desk) -> None:
    words = ("gate", "--against", "prod", "--worse", "size_mb=2", "--worse", "mismatch_rate=1.5", "--quiet")

    called = desk.call(*words)

    assert called.code == 2
    printed = shlex.split(called.err.replace("\\\n", " "))
    command = printed[printed.index("convert-and-validate") + 1 :]
    assert sorted(command) == sorted([*words, "--run", "latest"])


def test_a_run_folder_with_a_damaged_spec_is_an_input_error(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    (desk.run_folder / "spec.json").write_text("{")

    called = desk.call("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 2
    assert "spec.json is corrupt" in called.err


def test_a_run_that_was_not_recorded_is_not_validated(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    shutil.rmtree(desk.run_folder / "reference")

    called = desk.call("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 2
    assert "holds no recorded outputs" in called.err
    assert "convert-and-validate record" in called.err


def test_a_variant_that_was_not_exported_is_not_measured(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    shutil.rmtree(desk.run_folder / "onnx-fp32")

    called = desk.json("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 5
    (entry,) = desk.evidence()["variants"]
    assert (entry["verdict"], entry["evidence"], entry["reason"]) == ("error", "none", "not exported")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.onnx").open("ab").write(b"\0"), "model.onnx was changed"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"\0"), "weights.bin was added"),
    ],
)
def test_an_artifact_tampered_with_after_export_is_not_measured(
    finished: Desk, tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    desk = finished.copy(tmp_path)
    change(desk.run_folder / "onnx-fp32")

    called = desk.json("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 5
    assert f"is corrupt: {words}" in called.err
    (entry,) = desk.evidence()["variants"]
    assert (entry["verdict"], entry["evidence"], entry["artifact"]) == ("error", "none", None)


def test_a_damaged_record_of_an_artifact_is_an_input_error(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    (desk.run_folder / "onnx-fp32/artifact.json").write_text("{", encoding="utf-8")

    called = desk.call("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 2
    assert "artifact.json is corrupt" in called.err


def test_a_reference_tampered_with_is_not_judged_by(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    (chunk,) = (desk.run_folder / "reference").glob("*.safetensors")
    content = bytearray(chunk.read_bytes())
    content[-1] ^= 1
    chunk.write_bytes(content)

    called = desk.json("validate", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 5
    assert f"{chunk.name} was changed" in called.err


def test_a_reference_recorded_of_a_model_file_can_be_compared_by(desk: Desk) -> None:
    recorded = desk.json("record", "model.onnx", "--samples", "inputs.npz", "--out", "reference")
    desk.onnx("other.onnx")
    np.savez(desk.folder / "same.npz", x=np.load(desk.folder / "inputs.npz")["x"])

    compared = desk.json("compare", "reference", "other.onnx", "--samples", "same.npz", "--precision", "fp32")

    assert recorded.code == 0, str(recorded)
    assert recorded.data["rows"] == 120
    assert Path(recorded.data["folder"]).name == "reference"
    # The same bytes by another name: a file is not compared with itself.
    assert compared.code == 5, str(compared)
    # Nothing but the recording is left where the user works.
    assert not list(desk.folder.glob(".reference*"))


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "record takes either --run DIR or a MODEL"),
        (("model.onnx", "--run", "x"), 2, "record takes either --run DIR or a MODEL"),
        (("model.onnx",), 2, "record MODEL needs --samples and --out"),
        (("--run", "x", "--samples", "inputs.npz"), 2, "record --run takes no --samples"),
        (("--run", "x", "--seed", "0"), 2, "record --run takes no --seed"),
        (("absent.onnx", "--samples", "inputs.npz", "--out", "o"), 2, "absent.onnx does not exist"),
        (("model.onnx", "--samples", "absent.npz", "--out", "o"), 2, "absent.npz do not exist"),
        (("net:model", "--samples", "inputs.npz", "--out", "o"), 2, "module 'net' of 'net:model' was not found"),
        (
            ("model.onnx", "--samples", "inputs.npz", "--out", "."),
            2,
            "was not made by paritygate, so it is not overwritten",
        ),
    ],
)
def test_record_says_what_is_wrong_with_its_arguments(desk: Desk, args: tuple[str, ...], code: int, words: str) -> None:
    called = desk.call("record", *args)

    assert called.code == code, str(called)
    assert words in called.err
    assert "hint: " in called.err
    assert {path.name for path in desk.folder.iterdir()} >= {"model.onnx", "inputs.npz", "spec.yaml"}


@pytest.mark.parametrize("stage", ["export", "record", "validate", "promote"])
def test_json_of_a_stage_to_standard_output_has_nothing_beside_it(
    staged: tuple[Desk, dict[str, Called]], tmp_path: Path, stage: str
) -> None:
    desk = staged[0].copy(tmp_path)
    args = ["spec.yaml"] if stage == "export" else ["--run", str(desk.run_folder)]

    called = desk.call(stage, *args, "--json", "-")

    assert called.code == 0, str(called)
    assert json.loads(called.out)["schema_version"] == 1
    assert called.err
