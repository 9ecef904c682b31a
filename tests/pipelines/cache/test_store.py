"""What is kept of a job is restored as the job made it, and what differs is called as a user knows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paritygate.files import MARKER, make_marked_folder
from paritygate.pipelines.cache.memory import DigestCache
from paritygate.pipelines.cache.states import RUN, Dependencies, NotKept, first_difference, read_now, union_outside_run
from paritygate.pipelines.cache.store import Entry, Store
from paritygate.pipelines.process.file_access.accesses import FileAccesses
from paritygate.pipelines.process.file_access.states import NAMES_OF_MODULES, names_in

_PLACE = "@run@/savedmodel-fp32"


def _entry(read: Dependencies) -> Entry:
    return Entry(
        folder=Path(), job="it", made_at="2026-01-01 00:00 UTC", made_in="first", read=read, value=None, made=()
    )


def _made(run: Path) -> Path:
    """Make what an export of Keras makes: a folder without anything in it among the others."""
    folder = run / "savedmodel-fp32"
    make_marked_folder(folder)
    (folder / "variables").mkdir()
    (folder / "variables" / "variables.index").write_bytes(b"weights")
    (folder / "assets").mkdir()
    (folder / "extra" / "below").mkdir(parents=True)
    return folder


def test_folders_that_other_runs_remove_meanwhile_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = Store(tmp_path, most_bytes=10_000), "0" * 32
    store.save(key, _entry(Dependencies()), {}, asked={"threads": 1})
    going = [tmp_path / ".partial-1-00000000", tmp_path / ("1" * 32), tmp_path / key / "20990101T000000000000-0000.1"]
    for folder in going:
        folder.mkdir()

    def vanishing(name: str) -> Callable[[Any], Any]:
        real = getattr(os, name)

        def look(path: Any = ".") -> Any:  # noqa: ANN401 - as the function of os
            if isinstance(path, str | Path) and Path(path) in going:
                going.remove(Path(path))
                Path(path).rmdir()
            return real(path)

        return look

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, vanishing(name))

    assert store.last_asked("it", but_in="second") == {"threads": 1}


def test_folders_with_nothing_in_them_are_restored(tmp_path: Path) -> None:
    first = _made(tmp_path / "first")
    read = Dependencies(folders={_PLACE: names_in(str(first)), f"{_PLACE}/assets": names_in(str(first / "assets"))})
    store, memory = Store(tmp_path / "cache", most_bytes=10_000), DigestCache(tmp_path / "digests.json")
    store.save("key", _entry(read), {_PLACE: first})
    (found,) = store.entries("key")

    second = tmp_path / "second" / "savedmodel-fp32"
    make_marked_folder(second)
    store.restore(found, {_PLACE: second}, memory)

    paths = {str(path.relative_to(second)) for path in second.rglob("*")} - {MARKER}
    assert paths == {"assets", "extra", "extra/below", "variables", "variables/variables.index"}
    assert first_difference(found.read, second.parent, memory, {}) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "assets").rmdir(), "another name was added to savedmodel-fp32 in the run folder"),
        (lambda folder: (folder / "new").touch(), "savedmodel-fp32/new in the run folder is there now"),
        (
            lambda folder: (folder / "variables" / "variables.index").write_bytes(b"other"),
            "savedmodel-fp32/variables/variables.index in the run folder changed",
        ),
        (lambda folder: (folder.parent / "other").touch(), "other in the run folder is there now"),
    ],
)
def test_what_differs_in_the_run_is_called_by_its_place_there(tmp_path: Path, change: object, said: str) -> None:
    run = tmp_path / "paritygate-plan-abc" / "run"
    folder = _made(run)
    memory = DigestCache(tmp_path / "digests.json")
    index = folder / "variables" / "variables.index"
    read = Dependencies(
        files={f"{_PLACE}/variables/variables.index": memory.digest(str(index), index.stat())},
        folders={_PLACE: names_in(str(folder)), RUN: names_in(str(run))},
    )
    assert first_difference(read, run, memory, {}) == ""
    assert callable(change)
    change(folder)
    found = first_difference(read, run, memory, {})
    assert found.startswith(said)
    assert str(tmp_path) not in found


@pytest.mark.parametrize(
    ("before", "after", "is_shown"),
    [
        ("missing", "file", True),
        ("missing", "lost link", True),
        ("lost link", "link", False),
        ("file", "link", True),
        ("folder", "link", True),
    ],
)
@pytest.mark.parametrize("name", ["module.py", "package", "data.txt", "__pycache__"])
def test_what_is_missing_or_a_link_shows_in_the_names_of_modules_or_is_kept(
    tmp_path: Path, name: str, before: str, after: str, *, is_shown: bool
) -> None:
    folder, elsewhere = tmp_path / "package", tmp_path / "elsewhere"
    path = folder / name
    folder.mkdir()

    def make(kind: str) -> None:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            path.rmdir()
        makers: dict[str, Callable[[], Any]] = {
            "missing": list,
            "file": path.touch,
            "folder": path.mkdir,
            "lost link": lambda: path.symlink_to(elsewhere),
            "link": lambda: (elsewhere.touch(), path.symlink_to(elsewhere)),
        }
        makers[kind]()

    make(before)
    is_missing = not path.exists()
    memory, run, named = DigestCache(tmp_path / "digests.json"), tmp_path / "run", str(path)
    accesses = FileAccesses(
        modules_in={str(folder): names_in(str(folder), NAMES_OF_MODULES)},
        absent={named} if is_missing else set(),
        links={} if is_missing else {named: None},
    )
    read = read_now(accesses, run, memory)
    assert first_difference(read, run, memory, {}) == ""
    is_of_module = name in {"module.py", "package"}
    assert bool(read.absent or read.links) != (is_of_module and is_shown)

    make(after)

    # A link that leads nowhere is as good as nothing where only that is asked.
    assert bool(first_difference(read, run, memory, {})) or (after == "lost link" and not is_of_module)


def test_what_changes_between_two_jobs_of_a_run_is_no_input_of_both() -> None:
    first, second = (Dependencies(files={"/a": digest, f"{RUN}/b": digest}) for digest in ("1", "2"))

    assert union_outside_run([first, first]).files == {"/a": "1"}
    with pytest.raises(NotKept, match="/a"):
        union_outside_run([first, second])
