"""Small release candidates made of real files, and a process that promotes them under adverse conditions."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.pipelines.repository import servers

from paritygate.artifact import Artifact, file_digests
from paritygate.files import digest_of_files, read_json
from paritygate.pipelines.release.repository import log
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.stores import objects
from paritygate.precision import Variant
from paritygate.roots import Address, Root
from paritygate.signature import Signature, TensorSpec

_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
)
SECRET = "secret-of-this-test"  # noqa: S105 - a value to look for


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a fresh folder, in memory where that can be: these tests make hundreds of releases, each fsynced."""
    memory = Path("/dev/shm")  # noqa: S108 - a fresh folder below it is used
    place = memory if os.access(memory, os.W_OK) else tmp_path_factory.mktemp("releases")
    with tempfile.TemporaryDirectory(dir=place, prefix="paritygate-test-") as folder:
        yield Path(folder)


@pytest.fixture
def make_variant(tmp_path: Path) -> Callable[..., VariantCandidate]:
    """Return a function that writes an artifact and returns it as a variant that passed.

    Without `rules` no two releases are known to be the same, so that each one makes a version.
    """

    def make(
        name: str = "onnx-fp32", files: Mapping[str, bytes] | None = None, *, rules: str | None = None
    ) -> VariantCandidate:
        folder = tmp_path / "run" / name
        for path, content in (files or {"model.onnx": b"graph", "weights/0.bin": b"\0" * 100}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        digests = file_digests(folder)
        artifact = Artifact(
            variant=Variant.parse(name), folder=folder, main="model.onnx", signature=_SIGNATURE, files=digests
        )
        artifact.save()
        evidence = VariantEvidence(
            verdict="pass",
            artifact=digest_of_files(digests),
            kind="verified",
            device="cpu",
            runtime="onnxruntime 1.18",
            rules=rules,
        )
        return VariantCandidate(name=name, folder=folder, record=read_json(folder / "artifact.json"), evidence=evidence)

    return make


@pytest.fixture
def make_candidate(tmp_path: Path, make_variant: Callable[..., VariantCandidate]) -> Callable[..., ReleaseCandidate]:
    """Return a function that makes a candidate that can be released, but for the fields given."""

    def make(**fields: Any) -> ReleaseCandidate:  # noqa: ANN401 - any field of the candidate
        report = tmp_path / "report.html"
        report.write_text("<p>parity</p>")
        provenance = Provenance(
            source=_digest("source"),
            samples=_digest("samples"),
            reference=_digest("reference"),
            tools={"onnx": "1.16.0"},
            device={"name": "cpu"},
            tolerances={"onnx-fp32": {"max_abs_diff": 1e-4}},
        )
        candidate = ReleaseCandidate(
            model="klue-sts",
            variants=() if "variants" in fields else (make_variant(),),
            provenance=provenance,
            evidence={"rows": 519},
            alias="prod",
            reports={"report.html": report.read_bytes},
        )
        return replace(candidate, **fields)

    return make


@pytest.fixture
def under(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs `adverse.py` with a candidate and returns what it found out.

    The conditions are set in a process of their own, because an audit hook cannot be taken back.
    """

    def run(condition: str, repository: Path, candidate: ReleaseCandidate) -> Any:  # noqa: ANN401 - JSON data
        pickled = tmp_path / "candidate.pickle"
        pickled.write_bytes(pickle.dumps(candidate))
        command = [
            sys.executable,
            str(Path(__file__).with_name("adverse.py")),
            condition,
            str(repository),
            str(pickled),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        sys.stdout.write(f"{condition}: {len(found)} outcomes\n")
        return found

    return run


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have every address be in one store in memory, and return its client."""
    client = pytest.importorskip("obstore.store", reason="obstore is not installed").MemoryStore()
    # Every such store has the same address, and counts its e-tags from 0.
    log._RECORDS.clear()
    monkeypatch.setattr(objects, "bucket_client", lambda _: client)
    objects.object_store.cache_clear()
    yield client
    objects.object_store.cache_clear()


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    # A second server in one process refuses every request.
    with servers.moto() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.azurite(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Address]]:
    """Return a function that has this process and its children use an S3 server, and returns an empty repository."""
    pytest.importorskip("obstore", reason="obstore is not installed")

    def use(endpoint: str) -> Address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-this-test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        objects.object_store.cache_clear()
        return Address(f"s3://{servers.BUCKET}/{uuid.uuid4().hex}/releases")

    yield use
    objects.object_store.cache_clear()


@pytest.fixture(
    params=[
        "disk",
        "memory",
        pytest.param("moto", marks=pytest.mark.thorough),
        pytest.param("seaweedfs", marks=pytest.mark.thorough),
        pytest.param("azurite", marks=pytest.mark.thorough),
    ]
)
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """Return an empty repository in each store."""
    monkeypatch.setenv("PARITYGATE_RELEASES", str(tmp_path / "copies"))
    if request.param == "disk":
        return tmp_path / "repository"
    if request.param == "memory":
        request.getfixturevalue("memory")
        return Address(f"s3://{servers.BUCKET}/releases")
    if request.param == "azurite":
        pytest.importorskip("obstore", reason="obstore is not installed")
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", request.getfixturevalue("azurite"))
        objects.object_store.cache_clear()
        return Address(f"az://{servers.BUCKET}/{uuid.uuid4().hex}/releases")
    made: Root = request.getfixturevalue("s3")(request.getfixturevalue(request.param))
    return made
