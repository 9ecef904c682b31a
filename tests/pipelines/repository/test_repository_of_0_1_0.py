"""What 0.1.0 wrote: its repository can be used on; its run folders cannot, and that is said in one sentence.

`of_0_1_0/repository` holds three releases of the model `tiny`, each with other weights: two that passed, and the
source, released by fallback. `run` and `run.paritygate.tar` are one recorded run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paritygate.errors import RepositoryError
from paritygate.files import read_json
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.inspect import list_models, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import promote

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_WRITTEN = Path(__file__).with_name("of_0_1_0")
_REPOSITORY = "artifacts/repository"


@pytest.fixture
def old(desk: Desk) -> Desk:
    """Return a desk whose repository is the one of 0.1.0."""
    shutil.copytree(_WRITTEN / "repository", desk.folder / _REPOSITORY)
    return desk


def _log(desk: Desk) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((desk.folder / _REPOSITORY / "log/tiny").iterdir())]


def test_a_repository_of_0_1_0_is_listed(old: Desk) -> None:
    (model,) = old.json("list").data["models"]

    assert (model["versions"], model["collected"], model["aliases"]) == ([1, 2, 3], [], {"prod": 3})


def test_its_releases_are_shown(old: Desk) -> None:
    shown = old.json("show", "tiny")
    second = old.json("show", "tiny", "2")

    assert (shown.code, second.code) == (0, 0)
    assert "reason: fallback: source, because no converted variant passed" in shown.out
    assert [entry["name"] for entry in second.data["manifest"]["variants"]] == ["onnx-fp32", "onnx-fp16"]
    assert [(entry["kind"], entry["version"], entry["aliases"]) for entry in shown.data["history"]] == [
        ("released", version, {"prod": version}) for version in (1, 2, 3)
    ]
    assert {entry["schema"] for entry in shown.data["history"]} == {1}


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_its_releases_are_verified(old: Desk, version: str) -> None:
    called = old.call("verify", "tiny", version)

    assert called.code == 0, str(called)
    assert f"tiny version {version} is intact" in called.out


def test_it_is_promoted_onto(old: Desk) -> None:
    called = old.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    assert called.data["runs"][0]["release"]["version"] == 4
    assert old.json("list").data["models"][0]["aliases"] == {"prod": 4}
    assert [data["schema"] for data in _log(old)] == [1, 1, 1, 2]
    assert old.call("verify", "tiny", "prod").code == 0
    assert old.call("rollback", "tiny").code == 0
    assert old.json("list").data["models"][0]["aliases"] == {"prod": 3}


def test_it_is_rolled_back_again_and_again(old: Desk) -> None:
    moved = [old.json("rollback", "tiny").data["version"] for _ in range(2)]

    assert moved == [2, 1]
    assert old.call("rollback", "tiny").code == 2
    assert old.call("alias", "tiny", "canary", "3").code == 0
    assert [data["kind"] for data in _log(old)] == ["released"] * 3 + ["rolled_back"] * 2 + ["alias_moved"]
    assert old.json("list").data["models"][0]["aliases"] == {"prod": 1, "canary": 3}


def test_its_last_record_is_bound_by_the_next_one(old: Desk) -> None:
    assert old.call("rollback", "tiny").code == 0
    path = old.folder / _REPOSITORY / "log/tiny/000003.json"
    path.write_text(path.read_text(encoding="utf-8").replace("inconclusive", "fail"), encoding="utf-8")

    with pytest.raises(RepositoryError, match=r"000004\.json does not follow the record before it"):
        list_models(old.folder / _REPOSITORY)


def test_a_source_that_it_holds_is_not_released_again(
    old: Desk, make_candidate: Callable[..., ReleaseCandidate]
) -> None:
    repository = old.folder / _REPOSITORY
    released = repository / "store/tiny/3/source"
    record = read_json(released / "artifact.json")
    folder = shutil.copytree(released, old.folder / "source", ignore=shutil.ignore_patterns("artifact.json"))
    source = VariantCandidate(name="source", folder=folder, record=record, evidence=None, is_source=True)

    again = promote(repository, make_candidate(model="tiny", variants=(source,), reason="fallback: source"))

    assert (again.version, again.is_new, again.record) == (3, False, None)
    assert len(_log(old)) == 3


def test_what_it_released_without_saying_the_rules_is_released_anew(
    old: Desk, make_candidate: Callable[..., ReleaseCandidate]
) -> None:
    repository = old.folder / _REPOSITORY

    assert promote(repository, make_candidate(model="tiny")).version == 4
    assert verify_release(repository, "tiny", 4).is_intact
    assert read_records(repository, "tiny")[3].predecessor == read_records(repository, "tiny")[2].digest


@pytest.mark.parametrize("command", ["build", "record", "validate", "benchmark", "choose", "promote", "pack"])
def test_a_run_of_0_1_0_is_refused_in_one_sentence(desk: Desk, command: str) -> None:
    shutil.copytree(_WRITTEN / "run", desk.folder / "run")
    before = sorted((desk.folder / "run").rglob("*"))

    called = desk.call(command, "--run", "run")

    assert called.code == 2
    assert called.err == (
        "error: run holds a run of paritygate 0.1.0, which this version cannot continue\n"
        "hint: start a new run:\n"
        "  convert-and-validate run SPEC\n"
    )
    assert sorted((desk.folder / "run").rglob("*")) == before


def test_a_pack_of_a_run_of_0_1_0_is_refused_in_one_sentence(desk: Desk) -> None:
    shutil.copy(_WRITTEN / "run.paritygate.tar", desk.folder)

    called = desk.call("unpack", "run.paritygate.tar")

    assert called.code == 2
    assert called.err.endswith(
        "error: run.paritygate.tar holds a run of paritygate 0.1.0, which this version cannot continue\n"
        "hint: start a new run:\n"
        "  convert-and-validate run SPEC\n"
    )
    assert not (desk.folder / "artifacts").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": 99, "spec": {}}', "run holds a run of another version of paritygate (schema 99, supported: 2)"),
        ("[]", "spec.json is corrupt: list indices"),
        ("{}", "spec.json is corrupt: 'spec'"),
    ],
)
def test_a_run_of_a_later_version_and_one_that_is_damaged_are_told_apart(desk: Desk, text: str, words: str) -> None:
    shutil.copytree(_WRITTEN / "run", desk.folder / "run")
    (desk.folder / "run/spec.json").write_text(text, encoding="utf-8")

    called = desk.call("choose", "--run", "run")

    assert called.code == 2
    assert words in called.err
