"""What is written where a server looks for models, in which order, and what is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError, StorageError, UsageError
from paritygate.pipelines.serving.place import Content, Place
from paritygate.pipelines.serving.triton.config import ServedModel
from paritygate.pipelines.serving.triton.view import TritonView, make_view
from paritygate.pipelines.serving.written import Head

ROW = {"x": np.arange(4, dtype=np.float32).reshape(1, 4)}


class Witness(Place):
    """A place that remembers what was done, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.done: list[str] = []

    def add_folder(self, folder: str, files: Mapping[str, Content]) -> None:
        super().add_folder(folder, files)
        self.done.append(folder)

    def replace(self, name: str, content: bytes) -> None:
        super().replace(name, content)
        self.done.append(name)


@pytest.fixture
def view_of(make_artifact: Callable[..., Artifact]) -> Callable[..., TritonView]:
    def make(version: int = 1, *, added: float = 1.0, row: Mapping[str, np.ndarray] | None = None) -> TritonView:
        model = ServedModel(artifact=make_artifact(added=added), name="adds", version=version, devices=("cpu",))
        return make_view(model, warmup=row, head=Head(said=f"adds version {version}"))

    return make


def test_a_new_model_appears_whole(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    place = Witness(tmp_path / "models")

    view_of(row=ROW).write(place)

    folder = tmp_path / "models/adds"
    assert place.done == ["adds"]
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    (warmup,) = (name for name in names if name.startswith("warmup/"))
    assert names == ["1/model.onnx", "config.pbtxt", warmup]
    assert (folder / warmup).read_bytes() == ROW["x"].tobytes()
    assert f'input_data_file: "{warmup.removeprefix("warmup/")}"' in (folder / "config.pbtxt").read_text()


def test_a_new_version_is_there_before_the_configuration_names_it(
    tmp_path: Path, view_of: Callable[..., TritonView]
) -> None:
    place = Witness(tmp_path / "models")
    view_of(1).write(place)

    written = view_of(2, added=2, row=ROW).write(place)

    *warmup, version, config = place.done[1:]
    assert (len(warmup), version, config) == (1, "adds/2", "adds/config.pbtxt")
    assert written.added == [warmup[0].removeprefix("adds/"), "2"]
    assert sorted(path.name for path in (tmp_path / "models/adds").iterdir()) == ["1", "2", "config.pbtxt", "warmup"]


def test_going_back_replaces_the_configuration_alone(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    place = Witness(tmp_path / "models")
    view_of(1).write(place)
    view_of(2, added=2).write(place)

    view_of(1).write(place)

    assert place.done[-1] == "adds/config.pbtxt"
    assert place.done.count("adds/1") == 0
    assert "versions: 1" in (tmp_path / "models/adds/config.pbtxt").read_text()


def test_the_same_again_writes_nothing(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    place = Witness(tmp_path / "models")
    view_of(row=ROW).write(place)

    written = view_of(row=ROW).write(place)

    assert (len(place.done), written.is_changed) == (1, False)


def test_another_variant_under_the_same_version_is_refused(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    place = Place(tmp_path / "models")
    view_of(1).write(place)

    with pytest.raises(UsageError, match="adds/1 exists and is not onnx-fp32 of version 1"):
        view_of(1, added=2).write(place)


@pytest.mark.parametrize(
    ("name", "words"), [("config.pbtxt", "was not written by this command"), ("1/model.onnx", "has no configuration")]
)
def test_a_folder_of_somebody_else_is_left_alone(
    tmp_path: Path, view_of: Callable[..., TritonView], name: str, words: str
) -> None:
    theirs = tmp_path / "models/adds" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")

    with pytest.raises(UsageError, match=words):
        view_of().write(Place(tmp_path / "models"))
    assert theirs.read_text() == "theirs"


def test_a_file_that_is_not_what_was_released_is_not_served(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    view = view_of()
    (tmp_path / "run/onnx-fp32/model.onnx").write_bytes(b"other")

    with pytest.raises(ArtifactIntegrityError, match="is corrupt"):
        view.write(Place(tmp_path / "models"))
    assert not (tmp_path / "models/adds").exists()


def test_whoever_polls_never_sees_half_of_a_change(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    place, root, wrong, done = Place(tmp_path / "models"), tmp_path / "models", [], threading.Event()
    view_of(1).write(place)

    def poll() -> None:
        while not done.is_set():
            names = [path.name for path in root.iterdir()]
            text = (root / "adds/config.pbtxt").read_text()
            version = text.split("versions: ")[1].split("\n")[0]
            if names != ["adds"] or (root / f"adds/{version}/model.onnx").stat().st_size == 0:
                wrong.append((names, text))

    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        for turn in range(20):
            view_of(1 + turn % 2, added=1 + turn % 2).write(place)
    finally:
        done.set()
        watcher.join()
    assert wrong == []


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    (tmp_path / "models").write_text("a file")

    with pytest.raises(StorageError, match="could not be written"):
        view_of().write(Place(tmp_path / "models"))


def test_nothing_is_left_beside_the_place(tmp_path: Path, view_of: Callable[..., TritonView]) -> None:
    before = set(tmp_path.iterdir())

    view_of().write(Place(tmp_path / "models"))

    assert set(tmp_path.iterdir()) - before == {tmp_path / "run", tmp_path / "models"}
