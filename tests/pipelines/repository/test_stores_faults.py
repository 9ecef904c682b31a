"""Faults of stores and of processes that use them: the repository is as it was, or holds the release complete."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paritygate.pipelines.release.repository import collection
from paritygate.pipelines.release.repository.aliases import Note
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.inspect import list_models, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.repository.state import state_of
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.roots import Address, Root

# Waiting has a limit that only a missing event reaches, however busy the machine is.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"


@pytest.fixture
def under(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs `adverse_stores.py` with a candidate and returns what it prints."""

    def run(condition: str, root: Root, candidate: ReleaseCandidate) -> Any:  # noqa: ANN401 - JSON data
        pickled = tmp_path / "candidate.pickle"
        pickled.write_bytes(pickle.dumps(candidate))
        script = Path(__file__).with_name("adverse_stores.py")
        command = [sys.executable, str(script), condition, str(root), str(pickled)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(("kind", "times"), [("disk", 100), ("seaweedfs", 100)])
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

    sys.stdout.write(
        f"{kind}: {16 * times} promotions by 16 processes in {found['seconds']:.0f} s, "
        f"{found['cpu_seconds']:.0f} s of CPU without the server\n"
    )
    assert found["codes"] == [0] * 16
    numbers = [int(name.partition(".")[0]) for name in store_of(root).names(f"log/{_MODEL}")]
    assert numbers == list(range(1, 16 * times + 1))
    records = read_records(root, _MODEL)
    assert sorted(record.version or 0 for record in records) == list(range(1, 16 * times + 1))
    (model,) = list_models(root)
    assert model.aliases == {"prod": records[-1].version}
    assert verify_release(root, _MODEL, "prod").is_intact
    assert not [name for name in store_of(root).names("staging") if kind == "disk"]


def _collect(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_GRACE_S", -1.0)
    collection.collect(root, _MODEL, keep=1, note=Note())


def _state(root: Root) -> tuple[dict[str, int], tuple[int, ...], tuple[int, ...]]:
    """Return aliases, releases and collected versions of a repository, in which all that is named is intact."""
    state = state_of(read_records(root, _MODEL))
    assert all(verify_release(root, _MODEL, version).is_intact for version in state.releases)
    assert {*state.aliases.values()} <= {*state.releases}
    return dict(state.aliases), tuple(sorted(state.releases)), tuple(sorted(state.collected))


@pytest.mark.parametrize(
    ("act", "before", "after"),
    [
        ("promote", ({"prod": 1}, (1,), ()), ({"prod": 2}, (1, 2), ())),
        ("rollback", ({"prod": 2}, (1, 2), ()), ({"prod": 1}, (1, 2), ())),
        ("alias", ({"prod": 2}, (1, 2), ()), ({"before": 2, "prod": 1}, (1, 2), ())),
        ("gc", ({"prod": 3}, (1, 2, 3), ()), ({"prod": 3}, (3,), (1, 2, 4))),
    ],
)
def test_a_client_that_is_killed_at_any_call_leaves_the_old_or_the_new_state(
    act: str,
    before: Any,  # noqa: ANN401 - what `_state` returns
    after: Any,  # noqa: ANN401 - what `_state` returns
    *,
    seaweedfs: str,
    s3: Callable[[str], Address],
    make_candidate: Make,
    make_variant: Callable[..., VariantCandidate],
    under: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = s3(seaweedfs)

    found = under(f"killed-{act}", root, make_candidate())["found"]

    *kills, whole = found
    assert [item["code"] for item in found] == [-9] * len(kills) + [0]
    calls = [call for call in whole["calls"] if call.startswith("before")]
    sys.stdout.write(f"{act}: {len(calls)} calls of the store from {len({*calls})} places, {len(kills)} kills\n")
    assert _state(Address(whole["root"])) == after
    seen = []
    for item in kills:
        place = Address(item["root"])
        seen.append(_state(place))
        if act == "gc":
            # Each is recorded by itself, the upload without a record last.
            assert seen[-1][2] in {(), (1,), (1, 2), (1, 2, 4)}
            _collect(place, monkeypatch)
            assert _state(place) == after
            assert [store_of(place).size_bytes(f"store/{_MODEL}/{version}") for version in after[2]] == [0, 0, 0]
        else:
            assert seen[-1] in (before, after)
        # Other files than those that were rolled back from.
        released = promote(place, make_candidate(variants=(make_variant("onnx-fp16"),)))
        assert released.version > max((*seen[-1][1], *seen[-1][2]))
        assert verify_release(place, _MODEL, "prod").version == released.version
    assert before in seen
    assert after in seen
