"""Of an entry that is corrupt, nothing is restored, and nothing is written elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paritygate.files import digest_of_bytes, digest_of_json
from paritygate.pipelines.cache.memory import DigestCache
from paritygate.pipelines.cache.states import Dependencies
from paritygate.pipelines.cache.store import Entry, Store

_PLACE = "@run@/made"
_NAMES = ("../out", "/tmp/out", "a/../../out", "", "..", "a\0b")  # noqa: S108 - nothing is written there


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one entry, of one file."""
    made = tmp_path / "run/made"
    made.mkdir(parents=True)
    (made / "a").write_text("1")
    store = Store(tmp_path / "cache", most_bytes=10_000)
    entry = Entry(
        folder=Path(), job="it", made_at="", made_in="first", read=Dependencies(), value={"a": [1, 2.5]}, made=()
    )
    store.save("key", entry, {_PLACE: made})
    return store


def _forge(store: Store, change: Any, *, is_digest_kept: bool = False) -> None:  # noqa: ANN401 - a function
    (path,) = store.folder.glob("key/*/entry.json")
    digest, _, text = path.read_text().partition("\n")
    data = json.loads(text)
    change(data)
    path.chmod(0o644)
    text = json.dumps(data)
    path.write_text(f"{digest if is_digest_kept else digest_of_bytes(text.encode())}\n{text}")


def _restore(store: Store, target: Path) -> None:
    for entry in store.entries("key"):
        store.restore(entry, {_PLACE: target}, DigestCache(store.folder / "digests.json"))


def test_what_was_kept_is_restored(store: Store, tmp_path: Path) -> None:
    (entry,) = store.entries("key")
    assert entry.value == {"a": [1, 2.5]}
    _restore(store, tmp_path / "again")
    assert (tmp_path / "again/a").read_text() == "1"


@pytest.mark.parametrize("field", ["value", "read", "made", "made_in", "job", "not_run_here", "key", "schema"])
def test_an_entry_that_is_edited_is_none(store: Store, field: str) -> None:
    _forge(store, lambda data: data.update({field: {"edited": 1}}), is_digest_kept=True)

    assert list(store.entries("key")) == []


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("kind", ["files", "folders"])
def test_a_name_that_leads_elsewhere_is_none(store: Store, tmp_path: Path, name: str, kind: str) -> None:
    made = {name: digest_of_json(1)} if kind == "files" else [name]
    _forge(store, lambda data: data["made"][0].update({kind: made}))

    assert list(store.entries("key")) == []
    assert not (tmp_path / "out").exists()


def test_an_entry_of_another_question_is_none(store: Store) -> None:
    (store.folder / "key").rename(store.folder / "other")

    assert list(store.entries("other")) == []


def test_a_file_that_is_a_link_is_not_restored(store: Store, tmp_path: Path) -> None:
    (kept,) = store.folder.glob("key/*/0/a")
    (tmp_path / "same").write_text("1")
    kept.unlink()
    kept.symlink_to(tmp_path / "same")

    with pytest.raises(OSError, match="corrupt"):
        _restore(store, tmp_path / "again")


def test_nothing_is_written_through_a_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "again").mkdir()
    (tmp_path / "again/below").symlink_to(tmp_path / "elsewhere")
    _forge(store, lambda data: data["made"][0].update(files={"below/a": data["made"][0]["files"]["a"]}))
    (kept,) = store.folder.glob("key/*/0")
    (kept / "below").mkdir()
    (kept / "a").rename(kept / "below/a")

    with pytest.raises(OSError, match="leads elsewhere"):
        _restore(store, tmp_path / "again")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_json_of_any_depth_is_no_error(store: Store) -> None:
    (path,) = store.folder.glob("key/*/entry.json")
    path.chmod(0o644)
    text = "[" * 100_000
    path.write_text(f"{digest_of_bytes(text.encode())}\n{text}")

    assert list(store.entries("key")) == []
