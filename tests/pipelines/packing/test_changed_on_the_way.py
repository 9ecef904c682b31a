"""A run with engines that was changed on its way between machines: refused, and by the name of what was changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.pipelines.conftest import Desk, make_desk

pytestmark = pytest.mark.rtx

_MODEL = {
    "name": "tiny",
    "source": "model.onnx",
    "rename": {"output_0": "logits"},
    "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
}
_GPU = ("--for", "cuda:sm89")
_CHUNK = "chunk-000000.safetensors"


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return another machine on which a run with two engines was restored; not to be changed, but copied."""
    (folder := tmp_path_factory.mktemp("changed") / "first").mkdir()
    desk = make_desk(folder)
    desk.spec(
        model=_MODEL,
        targets=["onnx-fp32", "tensorrt-rtx-fp32", "tensorrt-rtx-fp16"],
        promote={"accept": {"tensorrt-rtx-fp16": "emulated"}},
        probes=["values"],
    )
    for called in (desk.call("run", "spec.yaml", "--quiet", "--no-promote"), _pack(desk)):
        assert called.code == 0, str(called)
    there = Desk(folder=folder.parent / "second")
    there.folder.mkdir()
    shutil.move(desk.folder / "run.tar", there.folder)
    shutil.rmtree(desk.folder)
    assert there.call("unpack", "run.tar").code == 0
    return there


def _pack(desk: Desk):  # noqa: ANN202 - what the desk says
    return desk.call("pack", "--run", str(desk.run_folder), "--output", "run.tar")


def _digest_of_pack(desk: Desk) -> str:
    return str(json.loads((desk.run_folder / "unpacked/paritygate-pack.json").read_bytes())["digest"])


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


_FILES = {
    "onnx-fp32/model.onnx": "artifact onnx-fp32 in {run}/onnx-fp32 is corrupt: model.onnx was changed",
    "bases/onnx-fp16/model.onnx": ("artifact onnx-fp16 in {run}/bases/onnx-fp16 is corrupt: model.onnx was changed"),
    "tensorrt-rtx-fp16/model.plan": (
        "artifact tensorrt-rtx-fp16 in {run}/tensorrt-rtx-fp16 is corrupt: model.plan was changed"
    ),
    "tensorrt-rtx-fp16/engine.json": (
        "artifact tensorrt-rtx-fp16 in {run}/tensorrt-rtx-fp16 is corrupt: engine.json was changed"
    ),
    f"reference/{_CHUNK}": f"recorded outputs in {{run}}/reference are corrupt: {_CHUNK} was changed",
    f"reference/probes/values/{_CHUNK}": (
        f"recorded outputs in {{run}}/reference/probes/values are corrupt: {_CHUNK} was changed"
    ),
}


@pytest.mark.parametrize("name", _FILES)
def test_a_file_that_was_changed_is_not_packed_again(arrived: Desk, tmp_path: Path, name: str) -> None:
    desk = arrived.copy(tmp_path)
    (desk.folder / "run.tar").unlink()
    _change(desk.run_folder / name)

    called = _pack(desk)

    assert called.code == 5
    assert _FILES[name].format(run=desk.run_from_here) in called.err
    assert not (desk.folder / "run.tar").exists()


@pytest.mark.parametrize("name", [*_FILES, "spec.json", "evidence.json", "reference/record.json", "inputs/inputs.npz"])
def test_a_file_that_was_changed_in_the_pack_is_not_restored(arrived: Desk, tmp_path: Path, name: str) -> None:
    place = name if name.startswith("inputs/") else f"run/{name}"
    pack = (arrived.folder / "run.tar").read_bytes()
    content = (arrived.run_folder / name).read_bytes()
    if name == "spec.json":
        # What travels names no place of a machine.
        header = pack.index(b"run/spec.json\0")
        at = header + 512
    else:
        at = pack.index(content) + len(content) // 2
    changed = bytearray(pack)
    changed[at] ^= 1
    (tmp_path / "run.tar").write_bytes(changed)

    called = Desk(folder=tmp_path).call("unpack", "run.tar")

    assert called.code == 5
    assert f"run.tar is corrupt: {place} was changed" in called.err
    assert not (tmp_path / "artifacts/runs").exists()


@pytest.mark.parametrize("name", ["onnx-fp32/model.onnx", "bases/onnx-fp16/model.onnx"])
def test_no_engine_is_built_from_a_file_that_was_changed(arrived: Desk, tmp_path: Path, name: str) -> None:
    desk = arrived.copy(tmp_path)
    _change(desk.run_folder / name)

    called = desk.call("build", "--verbose", "--run", str(desk.run_folder), "--rebuild")

    assert called.code == 5
    assert _FILES[name].format(run=desk.run_folder) in called.err


@pytest.mark.parametrize("name", ["tensorrt-rtx-fp16/model.plan", "tensorrt-rtx-fp16/engine.json"])
def test_an_engine_that_was_changed_is_not_released(arrived: Desk, tmp_path: Path, name: str) -> None:
    desk = arrived.copy(tmp_path)
    _change(desk.run_folder / name)

    called = desk.call("promote", "--verbose", "--run", str(desk.run_folder), *_GPU, "--trust", _digest_of_pack(desk))

    assert called.code == 5
    assert _FILES[name].format(run=desk.run_folder) in called.err
    assert desk.releases == []


def test_a_record_forged_with_the_engine_is_not_what_the_evidence_is_about(arrived: Desk, tmp_path: Path) -> None:
    desk = arrived.copy(tmp_path)
    for name in ("model.plan", "engine.json", "artifact.json"):
        shutil.copy(desk.run_folder / "tensorrt-rtx-fp32" / name, desk.run_folder / "tensorrt-rtx-fp16" / name)

    called = desk.call("promote", "--verbose", "--run", str(desk.run_folder), *_GPU, "--trust", _digest_of_pack(desk))

    assert called.code == 5, str(called)
    assert called.err.startswith("error: "), called.err
    assert desk.releases == []


def test_a_validation_names_everything_that_was_changed(arrived: Desk, tmp_path: Path) -> None:
    desk = arrived.copy(tmp_path)
    names = ["onnx-fp32/model.onnx", "bases/onnx-fp16/model.onnx", "tensorrt-rtx-fp16/engine.json"]
    for name in names:
        _change(desk.run_folder / name)

    called = desk.call("validate", "--run", str(desk.run_folder), "--quiet")

    assert called.code == 5
    for name in (names[0], names[2]):
        assert _FILES[name].format(run=desk.run_from_here) in called.err


@pytest.mark.parametrize("name", [f"reference/{_CHUNK}", f"reference/probes/values/{_CHUNK}"])
def test_nothing_is_held_against_recorded_outputs_that_were_changed(arrived: Desk, tmp_path: Path, name: str) -> None:
    desk = arrived.copy(tmp_path)
    _change(desk.run_folder / name)

    called = desk.call("validate", "--run", str(desk.run_folder), "--quiet")

    assert called.code == 5
    assert f"onnx-fp32: {_FILES[name].format(run=desk.run_from_here)}" in called.err
    assert {entry["verdict"] for entry in desk.evidence()["emulated"]} == {"error"}
