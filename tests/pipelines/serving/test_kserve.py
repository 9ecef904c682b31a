"""What is written for KServe: a repository of models by version, and the InferenceService that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
import yaml

from paritygate.errors import UsageError
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.serving.protobuf import data_of
from paritygate.pipelines.serving.triton.messages import parse_text

if TYPE_CHECKING:
    from click.testing import Result

_TEXT = {"type": "string"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:  # noqa: ANN401 - parts of a schema
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


# As much as is written of an InferenceService, and nothing else is allowed. Source of names and types: the schema of
# version v1beta1 in config/crd/full/serving.kserve.io_inferenceservices.yaml of kserve/kserve, commit aaac4e2; of the
# values that are allowed: its pkg/constants, config/runtimes/kserve-tritonserver.yaml and
# pkg/controller/v1beta1/inferenceservice/utils (storageUri), and the tags of Triton's containers.
SCHEMA = _object(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "serving.kserve.io/v1beta1"},
    kind={"const": "InferenceService"},
    metadata=_object(["name"], name={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 53}),
    spec=_object(
        ["predictor"],
        predictor=_object(
            ["model"],
            model=_object(
                ["modelFormat", "storageUri"],
                modelFormat=_object(
                    ["name"], name={"enum": ["tensorrt", "tensorflow", "onnx", "pytorch", "triton"]}, version=_TEXT
                ),
                runtime={"const": "kserve-tritonserver"},
                runtimeVersion={"type": "string", "pattern": "^[0-9]{2}\\.[0-9]{2}-py3$"},
                protocolVersion={"enum": ["v2", "grpc-v2"]},
                storageUri={"type": "string", "pattern": "^(gs|s3|pvc|hdfs|webhdfs|https)://"},
                resources=_object(
                    [], limits={"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, _TEXT]}}
                ),
            ),
        ),
    ),
)
_ASKED = ("--storage-uri", "pvc://models/of-the-team", "--server", "25.10")


def manifest(tmp_path: Path, name: str = "adds") -> dict[str, Any]:
    """Return the service that was written, after the schema was held against it."""
    found: dict[str, Any] = yaml.safe_load((tmp_path / "models" / name / "inferenceservice.yaml").read_text())
    jsonschema.validate(found, SCHEMA)
    return found


def test_a_folder_with_something_else_in_it_is_left_alone(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    (tmp_path / "models/adds/1").mkdir(parents=True)
    (tmp_path / "models/adds/notes.txt").write_text("mine")

    with pytest.raises(UsageError, match=r"the folder adds exists and this command did not write notes\.txt in it"):
        call("kserve", "adds", "--out", "models", *_ASKED)
    assert sorted(path.name for path in (tmp_path / "models/adds").iterdir()) == ["1", "notes.txt"]


def test_the_service_names_the_folder_of_the_version(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 4), dtype=np.float32))

    call("kserve", "adds", "--out", "models", *_ASKED, "--samples", "inputs.npz")

    model = manifest(tmp_path)["spec"]["predictor"]["model"]
    assert model == {
        "modelFormat": {"name": "triton"},
        "runtime": "kserve-tritonserver",
        "runtimeVersion": "25.10-py3",
        "protocolVersion": "v2",
        "storageUri": "pvc://models/of-the-team/adds/1",
    }
    # What lies below the folder is what KServe copies to where its Triton looks for models.
    folder = tmp_path / "models/adds/1"
    assert [path.name for path in folder.iterdir()] == ["adds"]
    config = data_of(parse_text((folder / "adds/config.pbtxt").read_text()))
    assert (config["name"], config["backend"]) == ("adds", "onnxruntime")
    assert len(config["model_warmup"]) == 2
    released = tmp_path / "repository/store/adds/1/onnx-fp32/model.onnx"
    assert (folder / "adds/1/model.onnx").read_bytes() == released.read_bytes()


def test_it_follows_its_alias_to_a_place_of_its_own(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    make_release(added=2.0)
    call("kserve", "adds", "--out", "models", *_ASKED)
    assert manifest(tmp_path)["spec"]["predictor"]["model"]["storageUri"].endswith("/adds/2")

    assert "view models/adds now shows version 1" in call("rollback", "adds").output

    assert manifest(tmp_path)["spec"]["predictor"]["model"]["storageUri"].endswith("/adds/1")
    # A service goes on reading its version until it is replaced.
    assert (tmp_path / "models/adds/2/adds/2/model.onnx").is_file()
    assert "there already, nothing was written" in " ".join(
        call("kserve", "adds", "--out", "models", *_ASKED).output.split()
    )


def test_a_release_for_a_gpu_asks_for_one(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(device="cuda")

    call("kserve", "adds", "--out", "models", *_ASKED)

    assert manifest(tmp_path)["spec"]["predictor"]["model"]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


def test_the_command_says_what_to_copy_and_how_to_start_and_to_judge_it(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()

    printed = call("kserve", "adds", "--out", "models", *_ASKED, "--json", "view.json").output

    lines = " ".join(printed.replace("\\\n", "").split())
    assert "adds version 1 (prod): onnx-fp32 for Triton's backend onnxruntime: written: models/adds" in lines
    assert "copy: models/adds/1 to pvc://models/of-the-team/adds/1" in lines
    assert "start: kubectl apply -f models/adds/inferenceservice.yaml" in lines
    assert "http://HOST/v2/models/adds --samples inputs.npz" in lines
    assert max(map(len, printed.splitlines())) <= 80
    assert json.loads((tmp_path / "view.json").read_text())["manifest"] == manifest(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--name", "Adds"), "the service name is 'Adds'"),
        (("--name", "adds_2"), "the service name is 'adds_2'"),
        (("--name", "a" * 54), "the service name"),
        (("--storage-uri", "/models"), "cannot read a folder of models from '/models'"),
        (("--storage-uri", "oci://registry/models"), "cannot read a folder of models from 'oci://registry/models'"),
        (("--storage-uri", "https://host/models"), "cannot read a folder of models from 'https://host/models'"),
        (("--storage-uri", "pvc://models"), "names the volume claim 'models' without a path"),
        (("--storage-uri", "pvc://"), "'pvc://' names no volume claim ''"),
        (("--storage-uri", "pvc:///models"), "'pvc:///models' names no volume claim ''"),
        (("--storage-uri", "pvc://My_Claim/models"), "names no volume claim 'My_Claim'"),
        (("--storage-uri", f"pvc://{'a' * 254}/models"), "names no volume claim 'aaa"),
        (("--storage-uri", "s3://"), "cannot read a folder of models from 's3://'"),
        (("--server", "latest"), "latest"),
    ],
)
def test_what_kserve_does_not_take_is_refused(
    tmp_path: Path,
    call: Callable[..., Result],
    make_release: Callable[..., StoredRelease],
    words: tuple[str],
    message: str,
) -> None:
    make_release()

    with pytest.raises(UsageError, match=message):
        call("kserve", "adds", "--out", "models", *_ASKED, *words)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("place", "read"),
    [
        ("pvc://team-claim/", "pvc://team-claim/adds/1"),
        ("pvc://team.claim/a/b/", "pvc://team.claim/a/b/adds/1"),
        ("s3://bucket", "s3://bucket/adds/1"),
    ],
)
def test_a_version_has_a_folder_in_the_place_that_is_given(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease], place: str, read: str
) -> None:
    make_release()

    call("kserve", "adds", "--out", "models", *_ASKED, "--storage-uri", place)

    assert manifest(tmp_path)["spec"]["predictor"]["model"]["storageUri"] == read


def test_a_claim_alone_is_told_how_it_is_written(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()

    with pytest.raises(UsageError) as caught:
        call("kserve", "adds", "--out", "models", *_ASKED, "--storage-uri", "pvc://models")

    assert "allowed: pvc://CLAIM/PATH" in str(caught.value)
    assert caught.value.hint == (
        "give pvc://models/PATH, pvc://models/ for the whole volume, or pvc://CLAIM/models if models is the path"
    )


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (_ASKED[:2], "kserve needs --server", "give for example --server 25.10"),
        (_ASKED[2:], "kserve needs --storage-uri", "give for example --storage-uri pvc://CLAIM/PATH"),
        ((), "kserve needs --storage-uri and --server", "--storage-uri pvc://CLAIM/PATH --server 25.10"),
    ],
)
def test_what_is_missing_is_named_with_an_example(
    call: Callable[..., Result],
    make_release: Callable[..., StoredRelease],
    words: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    make_release()

    with pytest.raises(UsageError) as caught:
        call("kserve", "adds", "--out", "models", *words)

    assert str(caught.value) == message
    assert caught.value.hint.endswith(hint)


def test_a_folder_of_azure_is_one(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()

    call("kserve", "adds", "--out", "models", *_ASKED, "--storage-uri", "https://team.blob.core.windows.net/models/")

    found = manifest(tmp_path)["spec"]["predictor"]["model"]["storageUri"]
    assert found == "https://team.blob.core.windows.net/models/adds/1"


def test_an_onnx_file_that_is_too_new_for_the_server_is_refused(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(ir_version=11)

    with pytest.raises(UsageError, match="onnx version"):
        call("kserve", "adds", "--out", "models", *_ASKED, "--server", "24.04")


def test_a_service_that_is_not_ours_is_left_alone(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    path = tmp_path / "models/adds/inferenceservice.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("kind: InferenceService\n")

    with pytest.raises(UsageError, match=r"adds/inferenceservice\.yaml exists and this command did not write it"):
        call("kserve", "adds", "--out", "models", *_ASKED)
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("wrong", ["runtimeversion", "storageURI", "protocol"])
def test_the_schema_takes_no_field_that_kserve_does_not_have(wrong: str) -> None:
    model = {"modelFormat": {"name": "triton"}, "storageUri": "s3://models", wrong: "x"}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "a"},
        "spec": {"predictor": {"model": model}},
    }

    with pytest.raises(jsonschema.ValidationError, match=wrong):
        jsonschema.validate(service, SCHEMA)
