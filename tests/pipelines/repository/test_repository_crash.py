"""Kills, full disks, races and leftovers: the repository is as it was, or holds the release complete."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.small_disk import small_disk_at

from paritygate.errors import StorageError
from paritygate.files import MARKER
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.stores import staging as stages
from paritygate.pipelines.release.stores.disk import DiskStore

Make = Callable[..., ReleaseCandidate]
Under = Callable[..., Any]


def _assert_old_or_new(repository: Path) -> int:
    """Assert that version 1 is there and perhaps version 2, both intact; return the alias's version."""
    (model,) = list_models(repository)
    assert model.versions in {(1,), (1, 2)}
    for version in model.versions:
        assert verify_release(repository, "klue-sts", version).is_intact
    assert model.aliases == {"prod": model.versions[-1]}
    return model.versions[-1]


def _staged(repository: Path) -> list[Path]:
    return [marker.parent for marker in (repository / "staging").glob(f"*/{MARKER}")]


@pytest.fixture
def repository(tmp_path: Path, make_candidate: Make) -> Path:
    """Return a repository that holds version 1."""
    root = tmp_path / "repository"
    promote(root, make_candidate())
    return root


def test_a_kill_at_any_point_leaves_the_old_or_the_new_state_and_the_next_release_works(
    repository: Path, make_candidate: Make, under: Under
) -> None:
    found = under("killed", repository, make_candidate())

    assert len(found) > 20
    assert [item["outcome"] for item in found[:-1]] == [-9] * (len(found) - 1)
    states, orphans = [], 0
    for item in found:
        copy = Path(item["repository"])
        states.append(_assert_old_or_new(copy))
        is_taken = (copy / "store/klue-sts/2").is_dir()
        orphans += is_taken and states[-1] == 1
        released = promote(copy, make_candidate())
        assert released.version == (3 if is_taken else 2), "a number that a dead process took is not used again"
        assert show(copy, "klue-sts", "prod").version == released.version
        assert verify_release(copy, "klue-sts", "prod").is_intact
        assert not _staged(copy)
    assert sorted(states) == states
    assert {*states} == {1, 2}
    assert orphans


@pytest.mark.thorough
def test_an_interrupt_at_any_point_leaves_the_old_or_the_new_state(
    repository: Path, make_candidate: Make, under: Under
) -> None:
    found = under("interrupted", repository, make_candidate())

    for item in found[:-1]:
        copy = Path(item["repository"])
        assert item["said"].startswith("KeyboardInterrupt"), item["said"]
        state = _assert_old_or_new(copy)
        assert len(list((copy / "store/klue-sts").iterdir())) == state
        assert promote(copy, make_candidate()).version == state + 1
        assert not _staged(copy)
    assert _assert_old_or_new(Path(found[-1]["repository"])) == 2


@pytest.mark.parametrize("condition", ["full", "unsynced"])
@pytest.mark.thorough
def test_a_disk_that_is_full_from_any_point_on_is_one_clear_error_and_leaves_nothing_half_done(
    repository: Path, make_candidate: Make, under: Under, condition: str
) -> None:
    found = under(condition, repository, make_candidate())

    assert len(found) > 10
    for item in found[:-1]:
        copy = Path(item["repository"])
        assert item["outcome"] == 1, item["said"]
        assert item["said"].startswith("StorageError: the disk is full: "), item["said"]
        state = _assert_old_or_new(copy)
        stored = {path.name for path in (copy / "store/klue-sts").iterdir()}
        assert stored == ({"1"} if state == 1 else {"1", "2"}), "what was not released takes no space"
        assert not _staged(copy)
        assert promote(copy, make_candidate()).version == state + 1
    assert _assert_old_or_new(Path(found[-1]["repository"])) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the mount point of a filesystem of 256 KiB."""
    with small_disk_at(tmp_path / "disk", "256k") as folder:
        yield folder


def test_a_release_that_does_not_fit_the_disk_leaves_the_repository_as_it_was(
    small_disk: Path, make_candidate: Make, make_variant: Callable[..., Any]
) -> None:
    repository = small_disk / "repository"
    promote(repository, make_candidate())
    big = make_candidate(variants=(make_variant("onnx-fp16", {"model.onnx": os.urandom(1 << 20)}),))

    with pytest.raises(StorageError, match=r"the disk is full: .* could not be written") as caught:
        promote(repository, big)

    assert caught.value.hint
    assert _assert_old_or_new(repository) == 1
    assert not list((repository / "staging").iterdir())
    assert shutil.disk_usage(small_disk).free > 150_000


def test_processes_that_promote_at_the_same_time_each_get_a_version_and_a_record(
    tmp_path: Path, make_candidate: Make, under: Under
) -> None:
    repository = tmp_path / "repository"

    found = under("race", repository, make_candidate())

    assert [item["outcome"] for item in found] == [0] * 8
    (model,) = list_models(repository)
    assert model.versions == tuple(range(1, 25))
    history = show(repository, "klue-sts").history
    assert sorted(record.version for record in history) == list(range(1, 25))
    assert model.aliases == {"prod": history[-1].version}
    names = sorted(path.name for path in (repository / "log/klue-sts").iterdir())
    assert names == [f"{number:06d}.json" for number in range(1, 25)]
    assert sorted(int(path.name) for path in (repository / "store/klue-sts").iterdir()) == list(range(1, 25))
    assert all(verify_release(repository, "klue-sts", version).is_intact for version in model.versions)
    assert not list((repository / "staging").iterdir())


def _stage(repository: Path, name: str, *, host: str | None = None, age_s: float = 0.0) -> Path:
    folder = repository / "staging" / name
    (folder / "release").mkdir(parents=True)
    (folder / "release" / "half.bin").write_bytes(b"half")
    marker = folder / MARKER
    marker.write_text(json.dumps({"pid": 1, "host": host or platform.node()}))
    os.utime(marker, (time.time() - age_s,) * 2)
    return folder


def test_a_release_in_progress_is_not_taken_for_a_leftover(repository: Path, make_candidate: Make) -> None:
    folder = _stage(repository, "0123")

    with (folder / MARKER).open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        promote(repository, make_candidate())
        assert (folder / "release" / "half.bin").exists()

    promote(repository, make_candidate())
    assert not folder.exists()


def test_a_leftover_of_another_host_is_deleted_after_a_day(repository: Path, make_candidate: Make) -> None:
    recent = _stage(repository, "recent", host="another-host", age_s=23 * 3600.0)
    old = _stage(repository, "old", host="another-host", age_s=25 * 3600.0)

    promote(repository, make_candidate())

    assert recent.exists()
    assert not old.exists()


def test_a_leftover_whose_marker_was_cut_off_is_deleted_after_a_day(repository: Path, make_candidate: Make) -> None:
    for name, age_s in (("new", 0.0), ("old", 25 * 3600.0)):
        marker = _stage(repository, name) / MARKER
        marker.write_bytes(b"")
        os.utime(marker, (time.time() - age_s,) * 2)

    promote(repository, make_candidate())

    assert [folder.name for folder in _staged(repository)] == ["new"]


def test_a_release_whose_staging_folder_was_taken_for_a_leftover_fails_as_a_whole(
    repository: Path, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A maker on another host that needs more than a day: its folder is deleted just before it publishes.
    def publish_after_cleaning(store: DiskStore, staging: Path, name: str) -> bool:
        stages._remove_abandoned(staging)
        return publish(store, staging, name)

    publish = DiskStore.publish
    monkeypatch.setattr(DiskStore, "publish", publish_after_cleaning)

    with pytest.raises(StorageError, match=r"release was deleted before it could be published as .*klue-sts/2"):
        promote(repository, make_candidate())

    assert _assert_old_or_new(repository) == 1
    assert not list((repository / "staging").iterdir())


def test_a_folder_without_marker_is_never_deleted(repository: Path, make_candidate: Make) -> None:
    folder = repository / "staging" / "notes"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")

    promote(repository, make_candidate())

    assert (folder / "mine.txt").read_text() == "keep"


def test_a_repository_that_may_not_be_written_is_one_clear_error(make_candidate: Make, under: Under) -> None:
    # Not below pytest's own folder, which other users cannot read.
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name) / "repository"
        candidate = make_candidate()
        promote(repository, candidate)
        copied = [
            replace(variant, folder=Path(shutil.copytree(variant.folder, Path(name) / variant.name)))
            for variant in candidate.variants
        ]
        for path in (Path(name), repository, *repository.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            (found,) = under("unprivileged", repository, replace(candidate, variants=copied, reports={}))
        finally:
            for path in (Path(name), *(path for path in Path(name).rglob("*") if path.is_dir())):
                path.chmod(0o755)

        assert found["outcome"] == 1
        assert found["said"].startswith("StorageError: ")
        assert "could not be written: Permission denied [check the permissions" in found["said"]
        assert _assert_old_or_new(repository) == 1


def test_a_repository_below_a_file_is_one_clear_error(tmp_path: Path, make_candidate: Make) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match=r"file/repository.* could not be written: Not a directory"):
        promote(tmp_path / "file" / "repository", make_candidate())
