"""A real Triton loads a release from SeaweedFS, where alias and rollback write its view, whenever it is told to load.

Its backend is the shadow's, so the view is replaced by its shadow where it is made. All else is the product's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.pipelines.repository.servers import BUCKET, seaweedfs
from tests.triton.conftest import GOLDEN
from tests.triton.test_triton_traffic import Traffic

from paritygate.artifact import Artifact
from paritygate.files import digest_of_files, read_json
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.stores import objects
from paritygate.pipelines.release.views.places import StorePlace
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.server_kind import ModelToServe
from paritygate.pipelines.serving.triton import server as kinds
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.roots import Address

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_REPOSITORY, _MODELS = Address(f"s3://{BUCKET}/team/releases"), Address(f"s3://{BUCKET}/team/models")


def _candidate(artifact: Artifact) -> ReleaseCandidate:
    artifact.save()
    evidence = VariantEvidence(
        verdict="pass", artifact=digest_of_files(artifact.files), kind="verified", device="cpu", runtime="none"
    )
    record = read_json(artifact.folder / "artifact.json")
    variant = VariantCandidate(name="onnx-fp32", folder=artifact.folder, record=record, evidence=evidence)
    source = "sha256:" + "0" * 64
    provenance = Provenance(source=source, samples=source, reference=source, tools={}, device={}, tolerances={})
    return ReleaseCandidate(
        model="answers", variants=(variant,), provenance=provenance, evidence={"variants": []}, alias=None
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: ModuleType) -> Any:  # noqa: ANN401 - a fixture
    """Run SeaweedFS with two releases, of which views are shadows."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    made = kinds.KIND.make

    def shadow(model: ModelToServe, place: Place) -> TritonView:
        found: TritonView = servers.shadow_of(made(model, place), None)
        return found

    monkeypatch.setattr(kinds, "KIND", replace(kinds.KIND, make=shadow))
    monkeypatch.setenv("PARITYGATE_RELEASES", str(tmp_path / "copies"))
    (tmp_path / "seaweedfs").mkdir()
    with seaweedfs(tmp_path / "seaweedfs") as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        for name, value in (("ACCESS_KEY_ID", "key-of-this-test"), ("SECRET_ACCESS_KEY", "secret-of-this-test")):
            monkeypatch.setenv(f"AWS_{name}", value)
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        objects.object_store.cache_clear()
        yield running
    objects.object_store.cache_clear()


def _call(*words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--repository", _REPOSITORY], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    assert done.return_value == 0, done.output
    return done.output


def test_promote_and_rollback_under_load_lose_no_request(
    *,
    tmp_path: Path,
    place: Path,
    servers: ModuleType,
    store: Any,  # noqa: ANN401 - a server of the tests
    artifact_of: Callable[[int], Artifact],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for version in (1, 2):
        assert promote(_REPOSITORY, _candidate(artifact_of(version))).version == version
    np.savez(tmp_path / "inputs.npz", x=GOLDEN)
    _call("alias", "answers", "prod", "1")
    printed = _call("triton", "answers", "--out", _MODELS, "--samples", str(tmp_path / "inputs.npz"))
    root = f"s3://{store.endpoint}/{BUCKET}/team/models"
    start = "".join(printed.split("start: ")[1].split("\n\n")[0].replace("\\\n", "").split("\n")[:2])
    assert f"--model-repository={root}" in start
    assert "--model-control-mode=explicit --load-model=answers" in " ".join(start.split())
    of_1 = StorePlace(_MODELS).digests("answers/1")

    arguments = ("--model-control-mode=explicit", "--load-model=answers")
    with servers.TritonServer(place, root, tmp_path, mode=arguments) as server:
        server.wait_until_ready("answers", 1)
        with Traffic(server) as traffic:
            traffic.wait_for(1)
            for words, version in ((("alias", "answers", "prod", "2"), 2), (("rollback", "answers"), 1)):
                _call(*words)
                assert server.post("/v2/repository/models/answers/load", {}) is not None
                traffic.wait_for(version)
        events = server.done()

    total = sum(traffic.outcomes.values())
    with capsys.disabled():
        said = f"{traffic.lost} of {total} requests lost at {traffic.rate:.0f} a second: {dict(traffic.outcomes)}"
        sys.stdout.write(f"\nSeaweedFS, explicit: {said}\n")
    assert traffic.lost == 0
    assert [event["version"] for event in events if event["event"] == "loaded"] == [1, 2, 1]
    assert StorePlace(_MODELS).digests("answers/1") == of_1
    assert not [name for name in os.listdir(tmp_path) if name.startswith("s3:")]  # noqa: PTH208 - names
