"""gc: a release that nobody names is recorded as collected and then deleted, whatever interrupts it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paritygate.errors import UsageError
from paritygate.files import MARKER
from paritygate.pipelines.release.repository import collection
from paritygate.pipelines.release.repository.aliases import Note, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.collection import collect
from paritygate.pipelines.release.repository.inspect import list_models, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.repository.rolled_back import RolledBackError
from paritygate.roots import Root

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"
_NOTE = Note(reason="disk space", who="kim", host="box")


@pytest.fixture
def repository(tmp_path: Path, make_candidate: Make) -> Path:
    """Return a repository with five versions: canary is at 1, prod at 5."""
    root = tmp_path / "repository"
    for _ in range(5):
        promote(root, make_candidate())
    point_alias(root, _MODEL, "canary", 1)
    return root


def _stored(repository: Path) -> list[str]:
    return sorted(path.name for path in (repository / "store" / _MODEL).iterdir())


def test_what_neither_an_alias_nor_the_last_records_name_is_deleted(repository: Path) -> None:
    # The last two records are the release of 5 and the move of canary to 1.
    found = collect(repository, _MODEL, keep=2, note=_NOTE)

    assert [release.version for release in found.collected] == [2, 3, 4]
    assert [release.record for release in found.collected] == [7, 8, 9]
    assert all(release.size_bytes > 100 for release in found.collected)
    assert found.kept == (1, 5)
    assert _stored(repository) == ["1", "5"]
    (model,) = list_models(repository)
    assert (model.versions, model.collected, model.aliases) == ((1, 5), (2, 3, 4), {"canary": 1, "prod": 5})
    record = read_records(repository, _MODEL)[6]
    assert (str(record.kind), record.version, record.reason) == ("collected", 2, "disk space")
    assert all(verify_release(repository, _MODEL, version).is_intact for version in (1, 5))
    assert not list((repository / "staging").iterdir())


def test_what_an_alias_was_rolled_back_from_is_kept_until_a_later_version_replaces_it(
    repository: Path, make_candidate: Make, make_variant: Callable[..., VariantCandidate]
) -> None:
    roll_back(repository, _MODEL)
    point_alias(repository, _MODEL, "canary", 1)
    assert collect(repository, _MODEL, keep=1, note=_NOTE).kept == (1, 4, 5)

    promote(repository, make_candidate(variants=(make_variant("onnx-fp16"),)))
    assert collect(repository, _MODEL, keep=1, note=_NOTE).kept == (1, 6)


def test_what_an_alias_was_rolled_back_from_is_kept_also_where_the_rollback_went_to_a_later_version(
    root: Root, make_candidate: Make, make_variant: Callable[..., VariantCandidate]
) -> None:
    rules = f"sha256:{'1' * 64}"
    bad, good = (make_candidate(variants=(make_variant(name, rules=rules),)) for name in ("onnx-fp16", "onnx-fp32"))
    assert [promote(root, candidate).version for candidate in (bad, good, bad)] == [1, 2, 1]
    roll_back(root, _MODEL)
    # Many records later, without a new release, it is still remembered.
    for version in (1, 2, 2):
        point_alias(root, _MODEL, "canary", version)

    assert collect(root, _MODEL, keep=1, note=_NOTE).kept == (1, 2)
    with pytest.raises(RolledBackError):
        promote(root, bad)
    promote(root, make_candidate(variants=(make_variant("onnx-int8"),)))
    assert collect(root, _MODEL, keep=1, note=_NOTE).collected[0].version == 1


def test_a_second_collection_counts_no_collections_and_deletes_nothing(repository: Path) -> None:
    collect(repository, _MODEL, keep=3, note=_NOTE)
    again = collect(repository, _MODEL, keep=3, note=_NOTE)

    assert (again.collected, again.leftovers, again.kept) == ((), (), (1, 4, 5))


def test_a_dry_run_changes_nothing(repository: Path) -> None:
    before = len(read_records(repository, _MODEL))

    found = collect(repository, _MODEL, keep=1, note=_NOTE, is_dry_run=True)

    assert [release.version for release in found.collected] == [2, 3, 4]
    assert found.kept == (1, 5)
    assert _stored(repository) == ["1", "2", "3", "4", "5"]
    assert len(read_records(repository, _MODEL)) == before


@pytest.mark.parametrize(
    "move", [lambda root: point_alias(root, _MODEL, "prod", 4), lambda root: roll_back(root, _MODEL, to=4)]
)
def test_no_alias_moves_to_what_was_collected(repository: Path, move: Callable[[Path], object]) -> None:
    collect(repository, _MODEL, keep=1, note=_NOTE)

    with pytest.raises(UsageError, match="its files were collected on"):
        move(repository)


def test_a_number_that_was_collected_is_not_used_again(repository: Path, make_candidate: Make) -> None:
    point_alias(repository, _MODEL, "prod", 1)
    for _ in range(2):
        point_alias(repository, _MODEL, "canary", 4)
        point_alias(repository, _MODEL, "canary", 1)

    found = collect(repository, _MODEL, keep=1, note=_NOTE)

    assert [release.version for release in found.collected] == [2, 3, 4, 5]
    assert promote(repository, make_candidate()).version == 6


def test_what_somebody_points_an_alias_to_meanwhile_stays(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = collection.append_record

    def append_after_a_move(root: Path, model: str, *rest: Any) -> int | None:  # noqa: ANN401 - handed on
        if not any("late" in record.aliases for record in read_records(root, model)):
            point_alias(root, model, "late", 2)
        return append(root, model, *rest)

    monkeypatch.setattr(collection, "append_record", append_after_a_move)

    found = collect(repository, _MODEL, keep=1, note=_NOTE)

    assert [release.version for release in found.collected] == [3, 4]
    assert verify_release(repository, _MODEL, "late").version == 2


@pytest.mark.parametrize("has_upload", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_collection_that_was_killed_is_completed_by_the_next_one(
    *,
    has_upload: bool,
    tmp_path: Path,
    make_candidate: Make,
    under: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collection, "_GRACE_S", -1.0)
    repository = tmp_path / "repository"
    for _ in range(3):
        promote(repository, make_candidate())
    shutil.rmtree(repository / "staging")
    if has_upload:
        # A killed promotion stored it.
        shutil.copytree(repository / "store" / _MODEL / "3", repository / "store" / _MODEL / "4")

    found = under("killed-gc", repository, make_candidate())

    assert [item["outcome"] for item in found[:-1]] == [-9] * (len(found) - 1)
    states = []
    for item in found:
        copy = Path(item["repository"])
        (model,) = list_models(copy)
        assert 3 in model.versions
        assert all(verify_release(copy, _MODEL, version).is_intact for version in model.versions)
        states.append(len(model.versions))
        collect(copy, _MODEL, keep=1, note=_NOTE)
        assert _stored(copy) == ["3"]
        assert not list((copy / "staging").glob(f"*/{MARKER}"))
    assert states == sorted(states, reverse=True)
    assert {*states} == {1, 2, 3}
