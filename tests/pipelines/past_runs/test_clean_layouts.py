"""`clean` in folders of every layout: it removes old runs and what the cache wrote, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import make_desk

from paritygate.files import MARKER
from paritygate.pipelines.cache.folder import CACHE_MARKER, make_cache_folder

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_KEY = "0123456789abcdef" * 2
_ENTRY = "20260101T000000000000-ab12.5"
_OWN = re.compile(
    rf"({re.escape(MARKER)}|{re.escape(CACHE_MARKER)}|digests\.json)$|[0-9a-f]{{32}}/\d{{8}}T\d{{12}}-[0-9a-f]{{4}}\.\d+/"
)
_SEEN: Counter[str] = Counter()


@pytest.fixture(scope="module")
def _released_once(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run that was released, and a later one that was exported."""
    desk = make_desk(tmp_path_factory.mktemp("released"))
    desk.spec(probes="none")
    assert desk.call("run", "spec.yaml").code == 0
    assert desk.call("export", "spec.yaml").code == 0
    return desk


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A copy of the desk, and the paths that the layouts are made of."""

    desk: Desk
    patch: pytest.MonkeyPatch

    @property
    def here(self) -> Path:
        """The folder of the desk."""
        return self.desk.folder

    @property
    def runs(self) -> Path:
        """The folder of the model's runs."""
        return self.here / "artifacts/runs/tiny"

    @property
    def repository(self) -> Path:
        """The repository."""
        return self.here / "artifacts/repository"

    @property
    def released(self) -> Path:
        """The run that was released."""
        return next(path.parent for path in self.runs.glob("*/evidence.json"))

    @property
    def exported(self) -> Path:
        """The run of which nothing was released."""
        return next(path.parent for path in self.runs.glob("*/spec.json") if path.parent != self.released)

    def cache(self, folder: Path) -> Path:
        """Make a cache of a folder, with an entry, and have commands use it."""
        folder.mkdir(parents=True, exist_ok=True)
        make_cache_folder(folder)
        entry = folder / _KEY / _ENTRY
        entry.mkdir(parents=True)
        (entry / "entry.json").write_text("{}", encoding="utf-8")
        (folder / "digests.json").write_text("{}", encoding="utf-8")
        (folder / ".partial-1-0123abcd").mkdir()
        return self.use(folder)

    def use(self, folder: Path) -> Path:
        """Have commands take a folder for the cache."""
        self.patch.setenv("PARITYGATE_CACHE", str(folder))
        return folder


@pytest.fixture
def place(_released_once: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return a place that may be changed."""
    return Place(desk=_released_once.copy(tmp_path / "desk"), patch=monkeypatch)


def _files(folder: Path) -> dict[str, bytes | str]:
    """Return every file and link below a folder, links not followed, and what each holds."""
    found: dict[str, bytes | str] = {}
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink():
                found[str(path)] = str(path.readlink())
            elif path.is_file():
                found[str(path)] = path.read_bytes()
    return found


# Of the model: what is asked for, and what is done to the folders before.

Layout = Callable[[Place], "list[str] | None"]


def _nothing(_: Place) -> None: ...


def _linked_model(place: Place) -> None:
    (place.runs.parent / "alias").symlink_to(place.runs, target_is_directory=True)


def _linked_model_only(place: Place) -> list[str]:
    _linked_model(place)
    return ["alias"]


def _model_is_a_link(place: Place) -> None:
    place.runs.rename(place.here / "elsewhere")
    place.runs.symlink_to(place.here / "elsewhere", target_is_directory=True)


def _runs_is_a_link(place: Place) -> None:
    place.runs.parent.rename(place.here / "elsewhere")
    place.runs.parent.symlink_to(place.here / "elsewhere", target_is_directory=True)


def _other_root(place: Place) -> list[str]:
    # The same runs below another root, with no repository beside them.
    (place.here / "other").mkdir()
    (place.here / "other/runs").symlink_to(place.runs.parent, target_is_directory=True)
    return ["--root", "other"]


def _moved_root(place: Place) -> list[str]:
    (place.here / "other").mkdir()
    place.runs.parent.rename(place.here / "other/runs")
    return ["--root", "other"]


def _renamed_model(place: Place) -> list[str]:
    place.runs.rename(place.runs.with_name("renamed"))
    return ["renamed"]


def _renamed_run(place: Place) -> None:
    place.released.rename(place.released.with_name("20200101T000000Z-0000"))


def _copied_run(place: Place) -> None:
    shutil.copytree(place.released, place.runs / "20200101T000000Z-0000")


def _linked_run(place: Place) -> None:
    (place.runs / "20200101T000000Z-0000").symlink_to(place.released, target_is_directory=True)


def _linked_marker(place: Place) -> None:
    (place.exported / MARKER).rename(place.here / "marker")
    (place.exported / MARKER).symlink_to(place.here / "marker")


def _repository_moved(place: Place) -> None:
    place.repository.rename(place.here / "moved")


def _repository_is_a_loop(place: Place) -> None:
    shutil.rmtree(place.repository)
    place.repository.symlink_to(place.repository)


def _repository_is_a_file(place: Place) -> None:
    shutil.rmtree(place.repository)
    place.repository.write_text("no folder", encoding="utf-8")


def _repository_without_log(place: Place) -> None:
    (place.repository / "log").rename(place.repository / "log.bak")


def _damaged_note(place: Place) -> None:
    (place.released / "released-to.json").write_text("[", encoding="utf-8")
    shutil.rmtree(place.repository)


def _note_of_numbers(place: Place) -> None:
    (place.released / "released-to.json").write_text('{"repositories": [1]}', encoding="utf-8")


def _repository_in_a_run(place: Place) -> None:
    place.repository.rename(place.exported / "repository")


def _run_in_a_run(place: Place) -> None:
    place.released.rename(place.exported / "inner")


def _cache_in_a_run(place: Place) -> None:
    place.cache(place.exported / "cache")


def _leftover_is_a_link(place: Place) -> None:
    (place.runs / ".removed-x").symlink_to(place.released, target_is_directory=True)


def _leftover_holds_a_run(place: Place) -> None:
    (place.runs / ".removed-x").mkdir()
    (place.runs / ".removed-x" / MARKER).touch()
    place.released.rename(place.runs / ".removed-x" / "run")


def _leftover_without_marker(place: Place) -> None:
    (place.runs / ".removed-x").mkdir()
    (place.runs / ".removed-x" / "notes.txt").write_text("mine", encoding="utf-8")


def _files_beside_runs(place: Place) -> None:
    (place.runs / "notes.txt").write_text("mine", encoding="utf-8")
    (place.runs.parent / "notes").mkdir()
    (place.runs.parent / "notes" / "notes.txt").write_text("mine", encoding="utf-8")


RUNS: list[Layout] = [
    _nothing, _linked_model, _linked_model_only, _model_is_a_link, _runs_is_a_link, _other_root, _moved_root,
    _renamed_model, _renamed_run, _copied_run, _linked_run, _linked_marker, _repository_moved, _repository_is_a_loop,
    _repository_is_a_file, _repository_without_log, _damaged_note, _note_of_numbers, _repository_in_a_run,
    _run_in_a_run, _cache_in_a_run,
    _leftover_is_a_link, _leftover_holds_a_run, _leftover_without_marker, _files_beside_runs,
]  # fmt: skip


_NOTHING_GOES = {
    _linked_model_only, _model_is_a_link, _runs_is_a_link, _other_root, _linked_marker, _repository_is_a_loop,
    _repository_is_a_file, _damaged_note, _note_of_numbers, _repository_in_a_run, _run_in_a_run, _cache_in_a_run,
}  # fmt: skip


@pytest.mark.parametrize("layout", RUNS, ids=lambda layout: layout.__name__)
def test_no_layout_has_clean_remove_more_than_old_runs(layout: Layout, place: Place) -> None:
    name = place.exported.name
    options = layout(place) or []
    before = _files(place.here)

    called = place.desk.json("clean", *options, "--keep", "0", "--yes")

    assert called.code == 0, str(called)
    gone = set(before) - set(_files(place.here))
    # The one run of which nothing was released, and no file of anything else.
    assert [path for path in gone if name not in Path(path).parts] == []
    _SEEN["layouts of runs"] += 1
    removed = [run["folder"] for run in called.data["removed"]]
    assert bool(gone) == bool(removed) == (layout not in _NOTHING_GOES)


@pytest.mark.parametrize(
    "name",
    [
        "../runs/tiny", "tiny/../tiny", "./tiny", "/", "..", ".", "", "~", "*", "tiny/", "tiny\n", "t\u0000", ".hidden",
        "-keep", "artifacts/runs/tiny", "C:\\tiny", "a" * 101, "tiny/20200101T000000Z-0000",
    ],
)  # fmt: skip
def test_clean_takes_names_and_no_paths(name: str, place: Place) -> None:
    before = _files(place.here)

    called = place.desk.call("clean", "--keep", "0", "--yes", "--", name)

    assert called.code == 2, str(called)
    assert _files(place.here) == before
    _SEEN["names that are paths"] += 1


# Of the cache: what PARITYGATE_CACHE names, and what else lies there.


def _own_cache(place: Place) -> set[str]:
    place.cache(place.here / "artifacts/cache")
    return set()


def _cache_elsewhere(place: Place) -> set[str]:
    place.cache(place.here / "far/away")
    return set()


def _cache_with_notes(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    return {"notes.txt"}


def _cache_with_a_repository(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    place.repository.rename(folder / "repository")
    return {"repository"}


def _cache_with_runs(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    place.runs.parent.rename(folder / "runs")
    return {"runs"}


def _cache_that_is_a_repository(place: Place) -> set[str]:
    # As it was before a cache looked at where it lies.
    (place.repository / CACHE_MARKER).touch()
    place.use(place.repository)
    return {path.name for path in place.repository.iterdir()} - {CACHE_MARKER}


def _cache_with_a_linked_key(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / ("f" * 32)).symlink_to(place.runs, target_is_directory=True)
    return {"f" * 32}


def _cache_with_a_linked_entry(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / _KEY / _ENTRY.replace("ab12", "ab13")).symlink_to(place.released, target_is_directory=True)
    return {f"{_KEY}/{_ENTRY.replace('ab12', 'ab13')}"}


def _cache_with_linked_digests(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / "digests.json").unlink()
    (folder / "digests.json").symlink_to(place.released / "evidence.json")
    return {"digests.json"}


def _cache_with_a_linked_partial(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / ".partial-2-0123abcd").symlink_to(place.runs, target_is_directory=True)
    return {".partial-2-0123abcd"}


def _cache_with_a_file_beside_an_entry(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / _KEY / "notes.txt").write_text("mine", encoding="utf-8")
    return {f"{_KEY}/notes.txt"}


def _cache_with_a_link_in_an_entry(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / _KEY / _ENTRY / "0").symlink_to(place.repository, target_is_directory=True)
    return set()


def _cache_with_a_name_like_a_key(place: Place) -> set[str]:
    folder = place.cache(place.here / "far")
    (folder / "releases").mkdir()
    (folder / "releases" / _ENTRY).mkdir()
    return {"releases"}


CACHES: list[Callable[[Place], set[str]]] = [
    _own_cache, _cache_elsewhere, _cache_with_notes, _cache_with_a_repository, _cache_with_runs,
    _cache_that_is_a_repository, _cache_with_a_linked_key, _cache_with_a_linked_entry, _cache_with_linked_digests,
    _cache_with_a_linked_partial, _cache_with_a_file_beside_an_entry, _cache_with_a_link_in_an_entry,
    _cache_with_a_name_like_a_key,
]  # fmt: skip


@pytest.mark.parametrize("layout", CACHES, ids=lambda layout: layout.__name__)
def test_of_a_cache_only_its_own_goes(layout: Callable[[Place], set[str]], place: Place) -> None:
    stays = layout(place)
    folder = Path(os.environ["PARITYGATE_CACHE"])
    before = _files(place.here)

    called = place.desk.json("clean", "--cache", "--yes")

    assert called.code == 0, str(called)
    gone = set(before) - set(_files(place.here))
    lost = [path for path in gone if not _OWN.match(os.path.relpath(path, folder))]
    assert lost == []
    _SEEN["layouts of caches"] += 1
    assert set(called.data["beside_cache"]) == stays
    assert folder.exists() == bool(stays)
    assert not list(folder.glob(f"*/{_ENTRY}/entry.json"))


def _names_nothing(place: Place) -> Path:
    return place.here / "nothing"


def _names_the_desk(place: Place) -> Path:
    return place.here


def _names_the_repository(place: Place) -> Path:
    return place.repository


def _names_a_run(place: Place) -> Path:
    return place.released


def _names_the_runs(place: Place) -> Path:
    return place.runs


def _names_a_link(place: Place) -> Path:
    folder = place.cache(place.here / "far")
    (place.here / "link").symlink_to(folder, target_is_directory=True)
    return place.here / "link"


def _names_a_file(place: Place) -> Path:
    (place.here / "file").write_text("mine", encoding="utf-8")
    return place.here / "file"


def _has_a_linked_marker(place: Place) -> Path:
    (place.repository / CACHE_MARKER).symlink_to(place.here / "spec.yaml")
    return place.repository


@pytest.mark.parametrize(
    "layout",
    [
        _names_nothing, _names_the_desk, _names_the_repository, _names_a_run, _names_the_runs, _names_a_link,
        _names_a_file, _has_a_linked_marker,
    ],
    ids=lambda layout: layout.__name__,
)  # fmt: skip
def test_what_is_no_cache_loses_nothing_and_is_none_for_a_run_either(
    layout: Callable[[Place], Path], place: Place
) -> None:
    place.use(layout(place))
    before = _files(place.here)

    cleaned = place.desk.call("clean", "--cache", "--yes")

    assert cleaned.code == (0 if layout is _names_nothing else 5), str(cleaned)
    assert _files(place.here) == before
    exported = place.desk.call("export", "spec.yaml")
    assert exported.code == 0, str(exported)
    assert (before.items() <= _files(place.here).items()) or layout is _names_a_run
    _SEEN["folders that are no cache"] += 1
    if layout is not _names_nothing:
        folder = Path(os.environ["PARITYGATE_CACHE"])
        assert not (folder / CACHE_MARKER).is_file() or layout in {_names_a_link, _has_a_linked_marker}


def test_figures(record_property: Callable[[str, object], None]) -> None:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(_SEEN.items()))
    record_property("figures", f"clean lost nothing in {counts}")

    assert len(RUNS) + len(CACHES) + 8 >= 40
