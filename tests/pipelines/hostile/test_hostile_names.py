"""Names in the files of a run that somebody else made: none is followed out of the run or of the spec's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.files import digest_of_file, digest_of_json
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.release.promote import _copy_source
from paritygate.validate.probes.recording import ProbesRecording
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_NAMES = [
    ("/up.py", "is an absolute path"),
    ("../up.py", "leaves its folder"),
    ("lib/../../up.py", "leaves its folder"),
    ("..\\up.py", "holds a character that not every machine allows in a name"),
    ("up\0.py", "holds a character that not every machine allows in a name"),
]
_NOTHING = "sha256:" + 64 * "0"


@pytest.fixture
def run(finished: Desk, tmp_path: Path) -> Desk:
    """Return a desk on which a run has passed, to be tampered with."""
    return finished.copy(tmp_path)


def _forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a record, and its digest where it has one."""
    data = json.loads(path.read_text(encoding="utf-8"))
    digest = data.pop("digest", None) if path.name in {"record.json", "probes.json"} else None
    change(data)
    if digest is not None:
        data["digest"] = digest_of_json(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_what_would_be_measured_elsewhere_is_neither_judged_nor_released(run: Desk) -> None:
    path = run.run_folder / "onnx-fp32/artifact.json"
    _forge(path, lambda data: data.update(main="../../../../../model.onnx"))
    assert (path.parent / "../../../../../model.onnx").resolve() == run.folder / "model.onnx"

    for command in ("validate", "promote", "pack"):
        called = run.call(command, "--run", str(run.run_folder))

        assert called.code != 0, str(called)
        assert f"{path.relative_to(run.folder)} is corrupt: main is '../../../../../model.onnx'" in called.err, str(
            called
        )
    assert len(run.releases) == 1


@pytest.mark.parametrize(("name", "reason"), _NAMES)
def test_evidence_that_names_a_file_elsewhere_releases_nothing(run: Desk, name: str, reason: str) -> None:
    path = run.run_folder / "evidence.json"
    _forge(path, lambda data: data["reference"]["model"].update(files={name: _NOTHING}))

    called = run.call("promote", "--verbose", "--run", str(run.run_folder))

    assert called.code == 2, str(called)
    assert f"error: {path} is corrupt: the name {name!r} {reason}\nhint: " in called.err
    assert len(run.releases) == 1


@pytest.mark.parametrize("kind", ["variants", "emulated"])
def test_evidence_of_what_is_no_target_releases_nothing(run: Desk, kind: str) -> None:
    path = run.run_folder / "evidence.json"

    def forge(data: dict[str, Any]) -> None:
        data[kind].append({**data["variants"][0], "variant": "../onnx-fp32"})

    _forge(path, forge)

    called = run.call("promote", "--verbose", "--run", str(run.run_folder))

    assert called.code == 2, str(called)
    assert "is corrupt: '../onnx-fp32' is not a target of the run (targets: onnx-fp32)" in called.err
    assert len(run.releases) == 1


@pytest.mark.parametrize("name", [name for name, _ in _NAMES])
def test_a_source_is_copied_from_below_its_folder_only(tmp_path: Path, name: str) -> None:
    source, place = _source_beside(tmp_path)

    with pytest.raises(ArtifactIntegrityError, match=f"a file below {source.folder} is wanted"):
        _copy_source(source, place, {"files": {name: digest_of_file(tmp_path / "up.py")}, "digest": None})

    assert list(place.rglob("*")) == []


def test_a_source_is_not_copied_from_behind_a_link(tmp_path: Path) -> None:
    source, place = _source_beside(tmp_path)
    (source.folder / "lib").symlink_to(tmp_path)

    with pytest.raises(ArtifactIntegrityError, match=r"'lib/up\.py' is a link to a place outside"):
        _copy_source(source, place, {"files": {"lib/up.py": digest_of_file(tmp_path / "up.py")}, "digest": None})

    assert list(place.rglob("*")) == []


def _source_beside(folder: Path) -> tuple[ModelRef, Path]:
    (folder / "up.py").write_text("SECRET = 1\n", encoding="utf-8")
    place = folder / "place"
    for path in (folder / "spec", place):
        path.mkdir()
    return ModelRef(text="net:make", folder=folder / "spec", kind=SourceKind.CALLABLE), place


@pytest.mark.parametrize("change", [{"chunks": {"../up.safetensors": _NOTHING}}, {"model": {"files": {"/up.py": ""}}}])
def test_a_recording_that_names_files_elsewhere_is_damaged(run: Desk, change: dict[str, Any]) -> None:
    path = run.run_folder / "reference/record.json"
    _forge(path, lambda data: data.update(change))

    with pytest.raises(InputFileError) as caught:
        Recording.load(path.parent)

    assert str(caught.value).startswith(f"{path} is corrupt: the name ")


def test_recorded_probes_that_name_files_elsewhere_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    ProbesRecording(folder=tmp_path, probes=(), roles={}, profiles={}).save()
    probe = {name: [] for name in ("batches", "dropped")} | {
        name: {} for name in ("profiles", "chunks", "dropped_counts")
    }
    _forge(path, lambda data: data["probes"].append(probe | {"name": "../up", "seconds": 0.0}))

    with pytest.raises(InputFileError, match=r"probes\.json is corrupt: the name '\.\./up' leaves its folder"):
        ProbesRecording.load(tmp_path)


@pytest.mark.parametrize("name", ["../secret.txt", "sub/../../secret.txt", "link/secret.txt", "/etc/hostname"])
def test_a_file_outside_of_the_specs_folder_is_not_packed(finished: Desk, tmp_path: Path, name: str) -> None:
    (tmp_path / "desk").mkdir()
    desk = finished.copy(tmp_path / "desk")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (desk.folder / "link").symlink_to(tmp_path)
    _forge(desk.run_folder / "spec.json", lambda data: data["spec"]["model"].update(files=[name]))

    called = desk.call("pack", "--run", str(desk.run_folder), "--output", "run.tar")

    assert called.code == 5, str(called)
    assert called.err.startswith("error: ")
    assert str(desk.folder) in called.err
    assert not (desk.folder / "run.tar").exists()


def test_files_of_the_spec_are_packed_whatever_way_they_are_written(run: Desk) -> None:
    (run.folder / "data").mkdir()
    for name in ("a.txt", "b.txt", "data/c.txt"):
        (run.folder / name).touch()
    names = ["./a.txt", str(run.folder / "b.txt"), "data/../data/c.txt"]
    _forge(run.run_folder / "spec.json", lambda data: data["spec"]["model"].update(files=names))

    called = run.json("pack", "--run", str(run.run_folder), "--output", "run.tar")

    assert called.code == 0, str(called)
    assert {"inputs/a.txt", "inputs/b.txt", "inputs/data/c.txt"} <= set(called.data["inputs"])
