"""Faults of stores and of processes that use them: the repository is as it was, or holds the release complete."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.repository import servers

from paritygate.pipelines.release.repository import (
    ReleaseCandidate,
    list_models,
    promote,
    read_records,
    verify_release,
)
from paritygate.pipelines.release.stores import objects
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.roots import Address, Root

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Address]:
    """Return a function that has this process and its children use an S3 server, and returns an empty repository."""
    pytest.importorskip("obstore", reason="obstore is not installed")

    def use(endpoint: str) -> Address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-this-test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-this-test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        objects.object_store.cache_clear()
        return Address(f"s3://{servers.BUCKET}/{uuid.uuid4().hex}")

    return use


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as (endpoint, _):
        yield endpoint


@pytest.fixture
def under(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs `adverse_stores.py` with a candidate and returns what it prints."""

    def run(condition: str, root: Root, candidate: ReleaseCandidate) -> Any:  # noqa: ANN401 - JSON data
        pickled = tmp_path / "candidate.pickle"
        pickled.write_bytes(pickle.dumps(candidate))
        script = Path(__file__).with_name("adverse_stores.py")
        command = [sys.executable, str(script), condition, str(root), str(pickled)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(("kind", "times"), [("disk", 100), ("seaweedfs", 10)])
def test_16_processes_that_promote_at_the_same_time_lose_nothing(
    kind: str,
    *,
    times: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    make_candidate: Make,
    under: Callable[..., Any],
) -> None:
    root: Root = tmp_path / "repository"
    if kind == "seaweedfs":
        root = request.getfixturevalue("s3")(request.getfixturevalue("seaweedfs"))

    found = under(f"race-{times}", root, make_candidate())

    assert found["codes"] == [0] * 16
    numbers = [int(name.partition(".")[0]) for name in store_of(root).names(f"log/{_MODEL}")]
    assert numbers == list(range(1, 16 * times + 1))
    records = read_records(root, _MODEL)
    assert sorted(record.version or 0 for record in records) == list(range(1, 16 * times + 1))
    (model,) = list_models(root)
    assert model.aliases == {"prod": records[-1].version}
    assert verify_release(root, _MODEL, "prod").is_intact
    assert not [name for name in store_of(root).names("staging") if kind == "disk"]


def test_a_client_that_is_killed_at_any_call_leaves_the_old_or_the_new_state(
    seaweedfs: str, s3: Callable[[str], Address], make_candidate: Make, under: Callable[..., Any]
) -> None:
    root = s3(seaweedfs)

    found = under("killed", root, make_candidate())["found"]

    assert [item["code"] for item in found] == [-9] * (len(found) - 1) + [0]
    calls = [call for call in found[-1]["calls"] if call.startswith("before")]
    sys.stdout.write(f"{len(calls)} calls of the store, killed before and after each: {len(found) - 1} kills\n")
    states = []
    for item in found:
        place = Address(item["root"])
        (model,) = list_models(place)
        assert model.versions in {(1,), (1, 2)}
        assert all(verify_release(place, _MODEL, version).is_intact for version in model.versions)
        assert model.aliases == {"prod": model.versions[-1]}
        states.append(model.versions[-1])
        released = promote(place, make_candidate())
        assert released.version > model.versions[-1]
        assert verify_release(place, _MODEL, "prod").version == released.version
    assert states == sorted(states)
    assert {*states} == {1, 2}
