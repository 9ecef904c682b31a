"""The manifests of a release: what the pod runs, what is refused, and what lies in the file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.pipelines.serving.manifest_rules import NOT_MEASURED, lint

from paritygate.codec import to_data
from paritygate.errors import ChangedViewError, StorageError, UsageError
from paritygate.pipelines.benchmark.result import BenchmarkPoint, BenchmarkResult, VariantBenchmark
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.stores import objects as object_stores
from paritygate.pipelines.release.stores.disk import DiskStore
from paritygate.pipelines.serving.manifests import REPOSITORY, SERVERS, USER
from paritygate.roots import Address

TRITON = ("--image", "registry.example/triton:25.10-py3", "--init-image", "registry.example/paritygate:0.3.0")
CLAIM = ("--volume-claim", "releases")
MIB = 1024 * 1024


@pytest.fixture
def deploy(call: Callable[..., Result], tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that writes manifests, and returns their objects."""

    def run(*words: str, release: str = "adds@prod", target: str = "kubernetes") -> list[dict[str, Any]]:
        call("deploy", release, "--for", target, "--out", "manifests", *TRITON, *words)
        (path,) = (tmp_path / "manifests").glob(f"*.{target}.yaml")
        text = path.read_text()
        assert lint(text) == []
        assert "&id" not in text
        return list(yaml.safe_load_all(text))

    return run


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec = objects[0]["spec"]
    pod: dict[str, Any] = spec["predictor"] if "predictor" in spec else spec["template"]["spec"]
    return pod


def benchmark_of(digest: str | None) -> BenchmarkResult:
    """Return figures of a variant that took 300.5 MiB and 1.31 cores."""
    point = BenchmarkPoint(
        batch_size=8,
        concurrency=1,
        rounds=1,
        calls=50,
        rows_per_s=1000.0,
        cpu_cores=1.31,
        latency_ms=dict.fromkeys(("p50", "p95", "p99", "mean", "min", "max"), 1.0),
        round_medians_ms=(1.0,),
    )
    variant = VariantBenchmark(
        name="onnx-fp32",
        artifact=digest,
        runtime="onnxruntime",
        device="cpu",
        peak_memory_bytes=300 * MIB + MIB // 2,
        points=(point,),
    )
    return BenchmarkResult(batch_sizes=(8,), concurrency=(1,), samples_digest="digest", variants=(variant,))


@pytest.mark.parametrize("target", ["kubernetes", "kserve"])
def test_the_pod_verifies_this_version_writes_its_view_and_serves_it(
    make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]], target: str
) -> None:
    make_release()
    objects = deploy(*CLAIM, "--replicas", "3", target=target)
    pod = pod_of(objects)
    verify, view = pod["initContainers"]
    (server,) = pod["containers"]
    holder = objects[0] if target == "kserve" else objects[0]["spec"]["template"]
    notes = holder["metadata"]["annotations"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}

    assert notes["paritygate/version"] == "1"
    assert verify["command"] == [
        *("convert-and-validate", "verify", "adds", "1", "--manifest", notes["paritygate/manifest"]),
        *("--repository", REPOSITORY),
    ]
    assert view["command"][:4] == ["convert-and-validate", "triton", "adds", "1"]
    assert "prod" not in view["command"]
    assert server["args"] == ["tritonserver", "--model-repository=/models/view"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/v2/models/adds/versions/1/ready"
    assert volumes["repository"]["persistentVolumeClaim"] == {"claimName": "releases", "readOnly": True}
    assert all("repository" not in mount["name"] for mount in server["volumeMounts"])
    if target == "kserve":
        assert server["name"] == "kserve-container"
        assert [port["containerPort"] for port in server["ports"]] == [8000]
        assert (pod["minReplicas"], pod["maxReplicas"]) == (3, 3)
    else:
        assert objects[0]["spec"]["replicas"] == 3
        assert [port["targetPort"] for port in objects[1]["spec"]["ports"]] == ["http", "grpc", "metrics"]
        assert objects[1]["spec"]["selector"] == objects[0]["spec"]["template"]["metadata"]["labels"]


def outcome_of(words: list[str]) -> object:
    """Return the exit code of a call of the tool."""
    return CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False).return_value


def in_place(command: list[str], repository: Path, models: Path) -> list[str]:
    """Return the words of an init container with folders of this machine for those of the pod."""
    places = {REPOSITORY: str(repository), "/models": str(models)}
    words = command[1:]
    for place, here in places.items():
        words = [word.replace(place, here) if word.startswith(place) else word for word in words]
    return words


@pytest.mark.parametrize("server", SERVERS)
def test_the_init_containers_do_what_the_server_needs(
    tmp_path: Path,
    make_release: Callable[..., StoredRelease],
    deploy: Callable[..., list[dict[str, Any]]],
    server: str,
) -> None:
    make_release("onnx-fp32", "savedmodel-fp32", files={"savedmodel-fp32": ("saved_model.pb", "variables/0")})
    pod = pod_of(deploy(*CLAIM, "--server", server))
    repository, models = tmp_path / "repository", tmp_path / "volume"
    models.mkdir()
    verify, view = (in_place(each["command"], repository, models) for each in pod["initContainers"])

    assert outcome_of(verify) == 0
    assert outcome_of(view) == 0
    folder = models / "view/adds/1"
    released = repository / "store/adds/1" / ("onnx-fp32" if server == "triton" else "savedmodel-fp32")
    served = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert served
    assert all((released / name).read_bytes() == content for name, content in served.items())
    # The server writes nothing into the volume, and finds its files by these names.
    (container,) = pod["containers"]
    command = container.get("args") or container["command"]
    if server == "tensorflow-serving":
        assert command[:2] == ["tensorflow_model_server", "--model_config_file=/models/view/models.config"]
        assert not any("poll" in word for word in command)
        assert 'base_path: "/models/view/adds"' in (models / "view/models.config").read_text().replace(
            str(models), "/models"
        )


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_copy_that_the_user_of_the_pod_cannot_read_is_noted(
    tmp_path: Path, make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]], umask: int
) -> None:
    before = os.umask(umask)
    try:
        make_release()
    finally:
        os.umask(before)
    (tmp_path / "repository").chmod(0o755)

    pod = pod_of(deploy(*CLAIM))

    assert ("chmod -R a+rX" in (tmp_path / "manifests/adds.kubernetes.yaml").read_text()) is (umask == 0o077)
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"] == USER
    sizes = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume}
    assert sizes == {"models": "1026Mi", "tmp": "1026Mi"}


@pytest.mark.parametrize("plant", ["a changed file", "a forged log"])
def test_a_release_that_is_another_stops_at_the_first_init_container(
    tmp_path: Path,
    make_release: Callable[..., StoredRelease],
    deploy: Callable[..., list[dict[str, Any]]],
    plant: str,
) -> None:
    make_release()
    verify = pod_of(deploy(*CLAIM))["initContainers"][0]["command"]
    repository = tmp_path / "repository"
    if plant == "a changed file":
        model = repository / "store/adds/1/onnx-fp32/model.onnx"
        os.chmod(model, 0o644)  # noqa: PTH101 - of a released file
        model.write_bytes(model.read_bytes() + b"\0")
    else:
        # Another release under the same number, with a log of its own.
        shutil.rmtree(repository)
        make_release(added=2.0)
        assert outcome_of(["verify", "adds", "1", "--repository", str(repository)]) == 0

    assert outcome_of(in_place(verify, repository, tmp_path)) == 5


def test_a_repository_that_may_only_be_read_is_enough(
    tmp_path: Path,
    make_release: Callable[..., StoredRelease],
    deploy: Callable[..., list[dict[str, Any]]],
    call: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_release()
    call("triton", "adds", "--out", "elsewhere")
    view = pod_of(deploy(*CLAIM))["initContainers"][1]["command"]

    def refuse(*_: object) -> None:
        msg = "read-only"
        raise StorageError(msg)

    for name in ("remove", "replace", "create", "publish", "staging"):
        monkeypatch.setattr(DiskStore, name, refuse)
    (tmp_path / "volume").mkdir()
    words = in_place(view, tmp_path / "repository", tmp_path / "volume")

    assert outcome_of(words) == 0


def test_an_alias_that_moves_changes_no_manifest(
    tmp_path: Path, make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]]
) -> None:
    make_release()
    deploy(*CLAIM)
    path = tmp_path / "manifests/adds.kubernetes.yaml"
    before = path.read_bytes()
    make_release(added=2.0)

    assert path.read_bytes() == before
    assert pod_of(deploy(*CLAIM))["initContainers"][0]["command"][3] == "2"


@pytest.fixture
def stored(
    tmp_path: Path, make_release: Callable[..., StoredRelease], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Address]:
    """Return a repository in an object store, with a release."""
    client = pytest.importorskip("obstore.store", reason="obstore is not installed").MemoryStore()
    monkeypatch.setattr(object_stores, "bucket_client", lambda _: client)
    monkeypatch.setenv("PARITYGATE_RELEASES", str(tmp_path / "copies"))
    monkeypatch.chdir(tmp_path)
    object_stores.object_store.cache_clear()
    root = Address("s3://models/releases")
    make_release(root=root)
    yield root
    object_stores.object_store.cache_clear()


def test_a_store_is_named_by_its_address_and_its_credentials_by_their_secret(tmp_path: Path, stored: Address) -> None:
    words = ["deploy", "adds@prod", "--for", "kubernetes", "--out", "manifests", *TRITON, "--repository", stored]
    CliRunner().invoke(cli, [*words, "--secret", "models-read"], standalone_mode=False)
    pod = pod_of(list(yaml.safe_load_all((tmp_path / "manifests/adds.kubernetes.yaml").read_text())))

    for container in pod["initContainers"]:
        assert container["command"][-2:] == ["--repository", stored]
        assert container["envFrom"] == [{"secretRef": {"name": "models-read"}}]
    assert "envFrom" not in pod["containers"][0]
    assert lint((tmp_path / "manifests/adds.kubernetes.yaml").read_text()) == []
    assert [volume["name"] for volume in pod["volumes"]] == ["models", "tmp"]
    with pytest.raises(UsageError, match="--volume-claim is for a repository in a folder"):
        CliRunner().invoke(cli, [*words, *CLAIM], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize("claim", ["y", "1e3", "0o17", "1-2-3", "null"])
def test_words_that_other_readers_take_for_numbers_or_booleans_are_quoted(
    tmp_path: Path, make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]], claim: str
) -> None:
    make_release()
    deploy("--volume-claim", claim, "--name", "n")
    text = (tmp_path / "manifests/n.kubernetes.yaml").read_text()

    assert f'claimName: "{claim}"\n' in text
    assert 'name: "n"\n' in text


def test_a_digest_of_another_form_is_wrong_usage(make_release: Callable[..., StoredRelease]) -> None:
    make_release()
    with pytest.raises(UsageError, match="--manifest is 'sha256:0000'"):
        CliRunner().invoke(
            cli, ["verify", "adds", "1", "--manifest", "sha256:0000"], standalone_mode=False, catch_exceptions=False
        )


def test_resources_are_those_that_the_release_measured(
    tmp_path: Path, make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]]
) -> None:
    first = make_release()
    digest = json.loads((first.folder / "manifest.json").read_text())["variants"][0]["digest"]
    assert not pod_of(deploy(*CLAIM))["containers"][0]["resources"]
    assert NOT_MEASURED in (tmp_path / "manifests/adds.kubernetes.yaml").read_text()

    def written(result: BenchmarkResult) -> Mapping[str, Callable[[], bytes]]:
        return {"benchmark.json": lambda: json.dumps(to_data(result)).encode()}

    shutil.rmtree(tmp_path / "repository")
    make_release(reports=written(benchmark_of(digest)))
    (server,) = pod_of(deploy(*CLAIM))["containers"]
    assert server["resources"] == {"requests": {"cpu": "1400m", "memory": "301Mi"}, "limits": {"memory": "602Mi"}}

    shutil.rmtree(tmp_path / "repository")
    make_release(reports=written(benchmark_of("sha256:of-another-file")))
    assert not pod_of(deploy(*CLAIM))["containers"][0]["resources"]


def test_a_release_for_a_gpu_requests_one(
    make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]]
) -> None:
    make_release(device="cuda:sm90")

    assert pod_of(deploy(*CLAIM))["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        ((*CLAIM, "--name", "KLUE_STS.v2"), "KLUE_STS.v2", "--name klue-sts-v2"),
        ((*CLAIM, "--name", "3d net"), "3d net", "--name m-3d-net"),
        ((*CLAIM, "--name", "../evil"), "../evil", "--name evil"),
        ((*CLAIM, "--name", "a" * 64), "at most 63 long", f"--name {'a' * 63}"),
        ((), "a cluster cannot read the folder repository", "--volume-claim NAME"),
        ((*CLAIM, "--secret", "models-read"), "--secret is for a repository in an object store", "leave it out"),
        (("--volume-claim", "a/b"), "--volume-claim is 'a/b'", "kubectl get pvc,secret"),
        ((*CLAIM, "--image", "triton:latest"), "--image is 'triton:latest'", "version that you tested"),
        ((*CLAIM, "--image", "triton:latest@sha256:" + "0" * 64), "--image is", "version that you tested"),
        ((*CLAIM, "--image", "Team/triton x:1"), "--image is", "version that you tested"),
        ((*CLAIM, "--init-image", "paritygate"), "--init-image is 'paritygate'", "version that you tested"),
    ],
)
def test_what_no_cluster_can_use_is_refused(
    tmp_path: Path,
    make_release: Callable[..., StoredRelease],
    deploy: Callable[..., list[dict[str, Any]]],
    *,
    words: tuple[str, ...],
    problem: str,
    hint: str,
) -> None:
    make_release()
    with pytest.raises(UsageError) as caught:
        deploy(*words)

    assert problem in str(caught.value)
    assert hint in caught.value.hint
    assert not (tmp_path / "manifests").exists()


def test_a_file_that_the_servers_release_does_not_open_is_refused(
    tmp_path: Path, make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]]
) -> None:
    make_release(ir_version=10)
    with pytest.raises(UsageError, match="onnx version"):
        deploy(*CLAIM, "--image", "registry.example/triton:24.04-py3")

    assert not (tmp_path / "manifests").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--repository", "s3://key:hush-hush@models/releases"),
        ("--repository", "repository", *CLAIM, "--image", "user:hush-hush@registry.example/triton:1"),
    ],
)
def test_a_credential_is_refused_and_not_repeated(
    tmp_path: Path, make_release: Callable[..., StoredRelease], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    make_release()
    monkeypatch.chdir(tmp_path)
    called = CliRunner().invoke(cli, ["deploy", "adds@prod", "--for", "kserve", "--out", "out", *TRITON, *words])

    assert called.exit_code != 0
    assert "hush-hush" not in f"{called.output}{called.exception}"
    assert not (tmp_path / "out").exists()


def test_a_file_that_was_edited_or_is_somebody_elses_stays(
    tmp_path: Path, make_release: Callable[..., StoredRelease], deploy: Callable[..., list[dict[str, Any]]]
) -> None:
    make_release()
    deploy(*CLAIM)
    path = tmp_path / "manifests/adds.kubernetes.yaml"
    edited = path.read_text().replace("replicas: 1", "replicas: 9")
    path.write_text(edited)
    with pytest.raises(ChangedViewError):
        deploy(*CLAIM)
    assert path.read_text() == edited
    path.write_text("mine: 1\n")
    with pytest.raises(UsageError, match="this command did not write it"):
        deploy(*CLAIM)

    assert path.read_text() == "mine: 1\n"


def test_the_json_names_release_file_and_objects(
    tmp_path: Path, make_release: Callable[..., StoredRelease], call: Callable[..., Result]
) -> None:
    make_release("onnx-fp32", "onnx-fp16")
    words = ("deploy", "adds@prod/onnx-fp16", "--for", "kserve", "--out", "manifests", *TRITON, *CLAIM)
    data = json.loads(call(*words, "--json", "-").stdout)

    pod = data["pod"]
    assert (pod["model"], pod["version"], pod["variant"], data["aliases"]) == ("adds", 1, "onnx-fp16", ["prod"])
    assert [each["kind"] for each in data["objects"]] == ["InferenceService"]
    assert (tmp_path / data["file"]).is_file()
    assert data["is_changed"]
    assert not json.loads(call(*words, "--json", "-").stdout)["is_changed"]
