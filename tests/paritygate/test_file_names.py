"""Names that were read from a file: each is followed to a file below its folder, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paritygate.artifact import ARTIFACT_FILE, Artifact, file_digests
from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.file_names import check_names, path_below
from paritygate.precision import Variant
from paritygate.signature import Signature, TensorSpec

_HOSTILE = [
    ("/etc/passwd", "is an absolute path"),
    ("../up", "leaves its folder"),
    ("code/../../up", "leaves its folder"),
    ("", "is not a plain path"),
    (".", "is not a plain path"),
    ("a//b", "is not a plain path"),
    ("..\\up", "holds a character that not every machine allows in a name"),
    ("a\0b", "holds a character that not every machine allows in a name"),
    ("a" * 256, "is too long"),
]
_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
)


@pytest.mark.parametrize(("name", "reason"), [*_HOSTILE, (3, "is not text"), (None, "is not text")])
def test_a_name_that_leads_elsewhere_is_refused_with_the_reason(name: object, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"^the name .* {reason}$") as caught:
        check_names(["model.onnx", name])

    assert f"the name {name!r} " in str(caught.value)


def test_names_of_files_below_a_folder_are_allowed() -> None:
    check_names(["model.onnx", "assets/vocabulary.txt", "..data/한국어.txt", "a b", "Model.onnx"])


@pytest.mark.parametrize(("name", "reason"), _HOSTILE)
def test_a_path_that_leads_elsewhere_is_not_followed(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ArtifactIntegrityError) as caught:
        path_below(tmp_path, name)

    assert str(caught.value) == f"a file below {tmp_path} is wanted, and the name {name!r} {reason}"
    assert caught.value.hint.endswith("convert-and-validate run SPEC")


def test_a_path_through_a_link_is_followed_only_within_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "spec"
    (folder / "data").mkdir(parents=True)
    (folder / "within").symlink_to("data")
    (folder / "out").symlink_to(tmp_path)

    assert path_below(folder, "within/file") == folder / "within/file"
    with pytest.raises(ArtifactIntegrityError, match=f"'out/file' is a link to a place outside {folder}"):
        path_below(folder, "out/file")


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs/model.onnx").write_bytes(b"another graph")
    return _saved(tmp_path / "onnx-fp32", "onnx-fp32", "model.onnx", "model.onnx", "weights/0.bin")


def _saved(folder: Path, variant: str, main: str, *names: str) -> Artifact:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    made = Artifact(
        variant=Variant.parse(variant), folder=folder, main=main, signature=_SIGNATURE, files=file_digests(folder)
    )
    made.save()
    return made


def _forge(artifact: Artifact, change: Mapping[str, Any]) -> Path:
    path = artifact.folder / ARTIFACT_FILE
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    return path


@pytest.mark.parametrize("main", ["../inputs/model.onnx", ".", "", "weights", "./model.onnx", "artifact.json", None, 1])
def test_what_is_opened_is_one_of_the_files_of_the_artifact(artifact: Artifact, main: object) -> None:
    path = _forge(artifact, {"main": main})

    with pytest.raises(InputFileError) as caught:
        Artifact.load(artifact.folder)

    said = f"main is {main!r}, which is not one of its files (allowed: model.onnx, weights/0.bin)"
    assert str(caught.value) == f"{path} is corrupt: {said}"
    assert caught.value.exit_code == 2
    assert caught.value.hint == "make it again with: convert-and-validate export"


def test_an_absolute_path_is_opened_no_more_than_a_relative_one(artifact: Artifact) -> None:
    _forge(artifact, {"main": str(artifact.folder.parent / "inputs/model.onnx")})

    with pytest.raises(InputFileError, match="is not one of its files"):
        Artifact.load(artifact.folder)


def test_of_a_format_that_is_a_folder_the_folder_is_opened(tmp_path: Path) -> None:
    saved = _saved(tmp_path / "saved", "savedmodel-fp32", ".", "saved_model.pb")

    assert Artifact.load(saved.folder).path == saved.folder
    assert (
        Artifact.load(_saved(tmp_path / "fixed", "savedmodel-fp32@batch=1", ".", "saved_model.pb").folder).main == "."
    )


@pytest.mark.parametrize(("name", "reason"), [*_HOSTILE, ("a/../b", "leaves its folder")])
def test_a_record_that_names_a_file_elsewhere_is_damaged(artifact: Artifact, name: str, reason: str) -> None:
    path = _forge(artifact, {"files": {**artifact.files, name: "sha256:" + 64 * "0"}})

    with pytest.raises(InputFileError) as caught:
        Artifact.read_record(artifact.folder)

    assert str(caught.value) == f"{path} is corrupt: the name {name!r} {reason}"


@pytest.mark.parametrize("variant", ["../up-fp32", "/up-fp32", "a/b-fp32", "a\\b-fp32", "..-fp32", "a\0b-fp32"])
def test_a_record_of_a_variant_that_is_no_name_of_a_folder_is_damaged(artifact: Artifact, variant: str) -> None:
    _forge(artifact, {"variant": variant})

    with pytest.raises(InputFileError, match=r"is corrupt: UsageError: target .* is not of the form FORMAT-PRECISION"):
        Artifact.read_record(artifact.folder)


def test_a_file_behind_a_link_out_of_the_folder_is_not_what_was_recorded(artifact: Artifact) -> None:
    (artifact.folder / "model.onnx").unlink()
    (artifact.folder / "model.onnx").symlink_to(artifact.folder.parent / "inputs/model.onnx")

    with pytest.raises(OSError, match="is a link to a place outside"):
        replace(artifact).verify()
