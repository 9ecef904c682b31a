"""What is written where TensorFlow Serving looks for models: versions, the list of models, batching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.tensorflow_serving import SavedModelView, make_saved_model_view
from paritygate.signature import Dim, Signature, TensorSpec

if TYPE_CHECKING:
    from click.testing import Result

FILES = ("saved_model.pb", "variables/variables.index")


@pytest.fixture
def view_of(make_artifact: Callable[..., Artifact]) -> Callable[..., SavedModelView]:
    def make(version: int = 1, name: str = "adds", base_path: str = "/models") -> SavedModelView:
        artifact = make_artifact("savedmodel-fp32", files=FILES)
        return make_saved_model_view(artifact, name=name, version=version, base_path=base_path)

    return make


def test_a_version_is_a_folder_and_the_list_names_it_alone(
    tmp_path: Path, view_of: Callable[..., SavedModelView]
) -> None:
    place = Place(tmp_path / "models")
    view_of(1).write(place)

    written = view_of(2).write(place)

    root = tmp_path / "models"
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    assert names == sorted(
        ["models.config", "batching-adds.config", *(f"adds/{v}/{name}" for v in (1, 2) for name in FILES)]
    )
    text = (root / "models.config").read_text()
    assert 'name: "adds"' in text
    assert 'base_path: "/models/adds"' in text
    assert text.count("versions:") == 1
    assert "versions: 2" in text
    assert written.is_changed


def test_the_largest_batch_is_the_one_declared(tmp_path: Path, view_of: Callable[..., SavedModelView]) -> None:
    view_of().write(Place(tmp_path / "models"))

    text = (tmp_path / "models/batching-adds.config").read_text()
    assert "max_batch_size {\n  value: 16\n}\nbatch_timeout_micros {\n  value: 100\n}\n" in text


_BATCH = {"batch": Dim(min=1, opt=8, max=16)}


def _signature(*shapes: tuple[int | str | None, ...] | None, dims: Mapping[str, Dim] = _BATCH) -> Signature:
    names = ("tokens", "meta")[: len(shapes)]
    return Signature(
        inputs=tuple(
            TensorSpec(name=name, dtype="int32", shape=shape) for name, shape in zip(names, shapes, strict=True)
        ),
        outputs=(TensorSpec(name="tags", dtype="float32", shape=("batch", 5)),),
        dims=dims,
    )


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        (_signature(("batch", "length"), ("batch", 6)), "tokens: int32[batch, length] may differ in length"),
        (_signature(("batch", None)), "tokens: int32[batch, ?] may differ in length"),
        (_signature(("batch", 6), (4, 6)), "not every input and output has the same symbolic first dim"),
        (_signature(None), "not every input and output has the same symbolic first dim"),
        (_signature(("batch", 6), dims={}), "declare model.dims.batch in the spec"),
    ],
)
def test_what_cannot_be_batched_has_no_batching_file_and_a_note(
    tmp_path: Path, make_artifact: Callable[..., Artifact], signature: Signature, why: str
) -> None:
    artifact = make_artifact("savedmodel-fp32", signature, FILES)
    view = make_saved_model_view(artifact, name="tagger", version=1, base_path="/models")
    view.write(Place(tmp_path / "models"))

    assert not (tmp_path / "models/batching-tagger.config").exists()
    assert len(view.notes) == 1
    assert view.notes[0].startswith("requests are not batched: ")
    assert why in view.notes[0]
    assert view.to_json()["is_batched"] is False


def test_an_open_dim_of_an_output_hinders_no_batching(make_artifact: Callable[..., Artifact]) -> None:
    outputs = (TensorSpec(name="tags", dtype="float32", shape=("batch", "found")),)
    artifact = make_artifact("savedmodel-fp32", replace(_signature(("batch", 6)), outputs=outputs), FILES)

    view = make_saved_model_view(artifact, name="tagger", version=1, base_path="/models")

    assert view.batching is not None
    assert view.notes == ()


def test_other_models_stay_in_the_list(tmp_path: Path, view_of: Callable[..., SavedModelView]) -> None:
    place = Place(tmp_path / "models")
    view_of(1, "first").write(place)

    written = view_of(3, "second").write(place)

    assert written.models == ["first", "second"]
    text = (tmp_path / "models/models.config").read_text()
    assert [line.strip() for line in text.splitlines() if "versions" in line] == ["versions: 1", "versions: 3"]


def test_the_same_again_writes_nothing(tmp_path: Path, view_of: Callable[..., SavedModelView]) -> None:
    place = Place(tmp_path / "models")
    view_of().write(place)

    assert not view_of().write(place).is_changed


@pytest.mark.parametrize(
    ("content", "words"),
    [("model_config_list {}", "this command did not write it"), ("# Written by paritygate.\nlist {}", "1:|2:1")],
)
def test_a_list_that_is_not_ours_is_left_alone(
    tmp_path: Path, view_of: Callable[..., SavedModelView], content: str, words: str
) -> None:
    (tmp_path / "models").mkdir()
    path = tmp_path / "models/models.config"
    path.write_text(content)

    with pytest.raises(UsageError, match=rf"models\.config exists and is not changed: .*({words})"):
        view_of().write(Place(tmp_path / "models"))
    assert path.read_text() == content


def test_what_is_not_what_was_released_is_not_served(tmp_path: Path, view_of: Callable[..., SavedModelView]) -> None:
    view = view_of()
    (tmp_path / "run/savedmodel-fp32/saved_model.pb").write_bytes(b"other")

    with pytest.raises(ArtifactIntegrityError, match=r"saved_model\.pb of version 1 is corrupt"):
        view.write(Place(tmp_path / "models"))
    assert not (tmp_path / "models").exists()


def test_another_content_of_a_version_is_refused(tmp_path: Path, view_of: Callable[..., SavedModelView]) -> None:
    place = Place(tmp_path / "models")
    view_of().write(place)
    (tmp_path / "models/adds/1/saved_model.pb").write_bytes(b"other")

    with pytest.raises(UsageError, match="adds/1 exists and differs from the released version 1"):
        view_of().write(place)


def test_a_path_that_no_server_finds_is_refused(view_of: Callable[..., SavedModelView]) -> None:
    with pytest.raises(UsageError, match="the base path 'models' is not absolute"):
        view_of(base_path="models")


@pytest.fixture
def call(call: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that writes a view of the release."""
    return lambda *words: call("tfserving", "adds", *words, "--out", "models")


def test_the_command_says_how_to_start_and_to_judge_the_server(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release("onnx-fp32", "savedmodel-fp32")

    printed = call("--base-path", "/models").output

    assert printed.splitlines()[0] == "adds version 1 (prod): savedmodel-fp32: written: models/adds"
    for words in (
        "--model_config_file=/models/models.config",
        "http://127.0.0.1:8501/v1/models/adds",
        "--model_config_file_poll_wait_seconds=60",
    ):
        assert words in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_the_command_starts_no_batching_for_inputs_of_variable_length(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release("savedmodel-fp32", signature=_signature(("batch", "length"), ("batch", 6)))

    printed = " ".join(call("--base-path", "/models").output.split())

    assert "note: requests are not batched: tokens: int32[batch, length] may differ in length" in printed
    assert "batching-adds.config" not in printed
    assert "--enable_batching" not in printed
    assert not (tmp_path / "models/batching-adds.config").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "holds nothing that TensorFlow Serving serves: onnx-fp32"),
        (("--variant", "onnx-fp32"), "TensorFlow Serving does not serve onnx-fp32"),
    ],
)
def test_what_is_no_savedmodel_is_refused(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease], words: tuple[str, ...], message: str
) -> None:
    make_release()

    with pytest.raises(UsageError, match=message):
        call(*words)


_ADD = "add savedmodel-fp32 to targets of its spec, and release it: convert-and-validate run SPEC"


@pytest.mark.parametrize(
    ("source", "words", "hint"),
    [
        (None, "", _ADD),
        (
            {"text": "adds.keras", "kind": "keras"},
            "; its source adds.keras can become savedmodel",
            _ADD,
        ),
        (
            {"text": "adds:load", "kind": "torch"},
            "; its source adds:load, a model of kind 'torch', can become none of these",
            "serve it by Triton: convert-and-validate triton adds 1 --out DIR --repository repository",
        ),
    ],
)
def test_a_release_without_a_savedmodel_is_told_how_to_come_to_one(
    call: Callable[..., Result],
    make_release: Callable[..., StoredRelease],
    source: dict[str, str] | None,
    words: str,
    hint: str,
) -> None:
    make_release("onnx-fp32", "onnx-fp16", source=source)

    with pytest.raises(UsageError) as caught:
        call()

    assert str(caught.value) == (
        "version 1 of 'adds' holds nothing that TensorFlow Serving serves: onnx-fp32, onnx-fp16 (allowed: savedmodel)"
        + words
    )
    assert caught.value.hint == hint


def test_what_a_release_lacks_is_said_before_what_its_folder_holds(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    (tmp_path / "models/adds").mkdir(parents=True)
    (tmp_path / "models/adds/config.pbtxt").write_text("backend: 'python'")

    with pytest.raises(UsageError, match="holds nothing that TensorFlow Serving serves"):
        call()


def test_a_release_that_no_server_reads_names_no_command(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release("pt2-fp32", source={"text": "adds:load", "kind": "torch"})

    with pytest.raises(UsageError, match="can become none of these") as caught:
        call()

    assert caught.value.hint == "release the same model from a source that can become one of them"
