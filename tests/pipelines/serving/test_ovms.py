"""What is written where OpenVINO Model Server looks for models: versions, and the list of models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from paritygate.errors import ArtifactIntegrityError, ChangedViewError, UsageError
from paritygate.files import digest_of_file
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.views.publish import PublishedView, publish_view
from paritygate.pipelines.release.views.request import ViewRequest

# What the server's own schema asks of a model in the list: these keys of these types, and no others.
SCHEMA = {
    "type": "object",
    "required": ["model_config_list"],
    "additionalProperties": False,
    "properties": {
        "pipeline_config_list": {"type": "array"},
        "model_config_list": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["config"],
                "properties": {
                    "config": {
                        "type": "object",
                        "required": ["name", "base_path"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "base_path": {"type": "string"},
                            "model_version_policy": {"type": "object"},
                            "plugin_config": {"type": "object"},
                            "nireq": {"type": "integer", "minimum": 0},
                        },
                    }
                },
            },
        },
    },
}
_HINT = "INFERENCE_PRECISION_HINT"
_FILES = ("model.xml", "model.bin", "model.config.json")


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., PublishedView]:
    def write(*, overwrite: bool = False, **asked: object) -> PublishedView:
        request = ViewRequest(command="ovms", model="adds", which="prod", root=tmp_path / "models", name="adds")
        return publish_view(tmp_path / "repository", replace(request, **asked), overwrite=overwrite)

    return write


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Return a function that returns the list of models, which the server's schema takes."""

    def read() -> dict[str, Any]:
        content: dict[str, Any] = json.loads((tmp_path / "models/config.json").read_text())
        jsonschema.validate(content, SCHEMA)
        return content

    return read


def test_a_version_is_a_folder_of_released_files_and_the_list_names_it_alone(
    tmp_path: Path,
    make_release: Callable[..., StoredRelease],
    publish: Callable[..., PublishedView],
    listed: Callable[[], dict[str, Any]],
) -> None:
    make_release()
    publish(base_path="/models")
    make_release(added=2.0)

    published = publish(base_path="/models")

    assert listed() == {
        "model_config_list": [
            {
                "config": {
                    "name": "adds",
                    "base_path": "/models/adds",
                    "model_version_policy": {"specific": {"versions": [2]}},
                    "plugin_config": {_HINT: "f32"},
                }
            }
        ]
    }
    root = tmp_path / "models"
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    assert files == ["adds/1/model.onnx", "adds/2/model.onnx", "config.json"]
    assert {"model.onnx": digest_of_file(root / "adds/2/model.onnx")} == published.to_json()["files"]
    assert (published.written.is_changed, publish(base_path="/models").written.is_changed) == (True, False)


def test_an_openvino_variant_is_preferred_with_the_precision_it_was_verified_in(
    make_release: Callable[..., StoredRelease],
    publish: Callable[..., PublishedView],
    listed: Callable[[], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = json.dumps({"CPU": {_HINT: "bf16", "NUM_STREAMS": 2}}).encode()
    write = Path.write_bytes
    monkeypatch.setattr(
        Path, "write_bytes", lambda self, data: write(self, content if self.name == "model.config.json" else data)
    )
    make_release("onnx-fp32", "openvino-bf16", files={"openvino-bf16": _FILES})

    published = publish()

    assert (published.variant, published.to_json()["notes"]) == ("openvino-bf16", [])
    (model,) = listed()["model_config_list"]
    assert model["config"]["plugin_config"] == {_HINT: "bf16", "NUM_STREAMS": 2}
    assert len(publish(variant="onnx-fp32", name="other").to_json()["notes"]) == 1


def test_what_others_wrote_into_the_list_stays(
    tmp_path: Path,
    make_release: Callable[..., StoredRelease],
    publish: Callable[..., PublishedView],
    listed: Callable[[], dict[str, Any]],
) -> None:
    other = {"config": {"name": "other", "base_path": "s3://team/other"}}
    own = {
        "name": "adds",
        "base_path": "/models/adds",
        "nireq": 4,
        "plugin_config": {"NUM_STREAMS": "2", _HINT: "bf16", "EXECUTION_MODE_HINT": "PERFORMANCE"},
    }
    (tmp_path / "models").mkdir()
    before = {"model_config_list": [other, {"config": own}], "pipeline_config_list": []}
    (tmp_path / "models/config.json").write_text(json.dumps(before))
    make_release()

    published = publish(base_path="/models")

    content = listed()
    assert (content["model_config_list"][0], content["pipeline_config_list"]) == (other, [])
    config = content["model_config_list"][1]["config"]
    # What decides the answers is as the release was verified.
    assert (config["nireq"], config["plugin_config"]) == (4, {"NUM_STREAMS": "2", _HINT: "f32"})
    assert published.written.models == ["adds", "other"]


@pytest.mark.parametrize(
    "content",
    [
        '{"model_config_list": ',
        '["model_config_list"]',
        '{"model_config_list": [1]}',
        '{"model_config_list": [{"config": {"name": "adds"}}]}',
        '{"model_config_list": [{"config": {"name": 1, "base_path": "/a"}}]}',
        '{"model_config_list": [{"config": {"name": "adds", "base_path": "/a", "plugin_config": "{}"}}]}',
    ],
)
def test_a_list_that_cannot_be_read_is_left_alone(
    tmp_path: Path, make_release: Callable[..., StoredRelease], publish: Callable[..., PublishedView], content: str
) -> None:
    make_release()
    (tmp_path / "models").mkdir()
    (tmp_path / "models/config.json").write_text(content)

    with pytest.raises(UsageError):
        publish(base_path="/models")

    assert [path.name for path in (tmp_path / "models").iterdir()] == ["config.json"]
    assert (tmp_path / "models/config.json").read_text() == content


def test_another_base_path_is_written_only_over_the_first(
    make_release: Callable[..., StoredRelease],
    publish: Callable[..., PublishedView],
    listed: Callable[[], dict[str, Any]],
) -> None:
    make_release()
    publish(base_path="/models")

    with pytest.raises(ChangedViewError) as caught:
        publish(base_path="/elsewhere")

    assert caught.value.hint == "give --base-path /models"
    publish(overwrite=True, base_path="/elsewhere")
    assert listed()["model_config_list"][0]["config"]["base_path"] == "/elsewhere/adds"
    with pytest.raises(UsageError):
        publish(name="other", base_path="models")


def test_another_content_of_a_version_is_refused(
    tmp_path: Path, make_release: Callable[..., StoredRelease], publish: Callable[..., PublishedView]
) -> None:
    make_release()
    publish()
    (tmp_path / "models/adds/1/model.onnx").write_bytes(b"other")

    with pytest.raises(UsageError):
        publish()


def test_a_changed_file_of_the_release_is_not_served(
    tmp_path: Path, make_release: Callable[..., StoredRelease], publish: Callable[..., PublishedView]
) -> None:
    make_release()
    (tmp_path / "repository/store/adds/1/onnx-fp32/model.onnx").chmod(0o600)
    (tmp_path / "repository/store/adds/1/onnx-fp32/model.onnx").write_bytes(b"other")

    with pytest.raises(ArtifactIntegrityError):
        publish()

    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("variant", "files"), [("tflite-fp32", ("model.tflite",)), ("onnx-fp32", ("a.onnx", "b.onnx"))]
)
def test_a_variant_that_the_server_does_not_find_is_refused(
    make_release: Callable[..., StoredRelease],
    publish: Callable[..., PublishedView],
    variant: str,
    files: tuple[str, ...],
) -> None:
    make_release(variant, files={variant: files})

    with pytest.raises(UsageError):
        publish(variant=variant)


@pytest.mark.openvino
def test_openvino_opens_what_is_served_and_takes_the_properties(
    make_release: Callable[..., StoredRelease],
    publish: Callable[..., PublishedView],
    listed: Callable[[], dict[str, Any]],
) -> None:
    import openvino

    make_release()
    publish()
    config = listed()["model_config_list"][0]["config"]

    compiled = openvino.Core().compile_model(
        str(Path(config["base_path"]) / "1/model.onnx"), "CPU", config["plugin_config"]
    )

    assert np.array_equal(compiled(np.zeros((1, 4), np.float32))[0], np.ones((1, 4), np.float32))
    assert compiled.get_property(_HINT).get_type_name() == "f32"


def test_a_rollback_writes_the_list_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_release: Callable[..., StoredRelease],
    listed: Callable[[], dict[str, Any]],
) -> None:
    monkeypatch.chdir(tmp_path)
    make_release()
    make_release(added=2.0)
    for words in (["ovms", "adds", "--out", "models"], ["rollback", "adds"]):
        ran = CliRunner().invoke(cli, [*words, "--repository", "repository"], standalone_mode=False)
        assert ran.return_value == 0

    assert listed()["model_config_list"][0]["config"]["model_version_policy"] == {"specific": {"versions": [1]}}
    # A file that was lost is found.
    (tmp_path / "models/adds/1/model.onnx").unlink()
    words = ["views", "--json", "views.json", "--repository", "repository"]
    assert CliRunner().invoke(cli, words, standalone_mode=False).return_value == 5
    (view,) = json.loads((tmp_path / "views.json").read_text())["views"]
    assert (view["shown"], view["is_behind"], view["changed_files"]) == (1, False, ["model.onnx"])
