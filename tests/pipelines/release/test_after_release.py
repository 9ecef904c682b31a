"""A command that ends in anything but 0 has changed no alias, and one that has moved it ends in 0 whatever follows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paritygate.pipelines import run_spec as runs
from paritygate.pipelines.cli import json_file, moving, running
from paritygate.pipelines.release import promote as promotion
from paritygate.pipelines.release.repository import log, release
from paritygate.pipelines.release.repository.state import state_of
from paritygate.pipelines.release.stores import disk, staging
from paritygate.pipelines.release.views import view_updates
from paritygate.pipelines.report.terminal import release as summary

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_SEEN: Counter[str] = Counter()
# What does the steps of a release, and of what follows one: where it is looked up, its name.
_OF_A_RELEASE = [
    (promotion, "note_release_to"),
    (release, "check_files"),
    (release, "_copy"),
    (disk, "sync_folder"),
    (disk, "_link"),
    (disk, "write_bytes_atomically"),
    (staging, "_discard"),
    (promotion, "_promote_noted"),
]
_OF_ALL = [*_OF_A_RELEASE, (json_file, "write_json_atomically"), (json_file, "write_json")]
_OF_PROMOTE = [*_OF_ALL, (moving, "update_views"), (moving, "print_view_updates")]
_OF_RUN = [
    *_OF_ALL,
    (runs, "write_reports"),
    (view_updates, "update_views"),
    (runs, "_close_cache"),
    (running, "print_outcome"),
]


def _version(desk: Desk, alias: str = "prod", repository: str = "artifacts/repository") -> int | None:
    """Return where the alias points, by the log alone, and check that no release is there without it."""
    state = state_of(log.read_records(desk.folder / repository, "tiny"))
    assert state.aliases or not state.releases
    return state.aliases.get(alias)


@pytest.fixture
def copied(finished: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a run that was released, which may be changed."""
    return finished.copy(tmp_path)


def _interrupt() -> None:
    # What Python makes of Ctrl-C. No signal is sent: a process that runs tests may have handlers of other libraries.
    raise KeyboardInterrupt


def _fill_the_disk() -> None:
    raise OSError(28, os.strerror(28))


def _plant(
    patch: pytest.MonkeyPatch,
    module: object,
    name: str,
    fault: Callable[[], None],
    *,
    is_before: bool,
) -> list[int]:
    """Have a function end in a fault, before or after its work, the first time that it is called."""
    work, calls = getattr(module, name), [0]

    def planted(*args: object, **options: object) -> object:
        calls[0] += 1
        if is_before and calls[0] == 1:
            fault()
        found = work(*args, **options)
        if not is_before and calls[0] == 1:
            fault()
        return found

    patch.setattr(module, name, planted)
    return calls


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fault", [_interrupt, _fill_the_disk])
@pytest.mark.parametrize("step", _OF_PROMOTE, ids=[name for _, name in _OF_PROMOTE])
def test_promote_ends_in_0_exactly_where_the_alias_moved(
    step: tuple[object, str],
    fault: Callable[[], None],
    *,
    is_before: bool,
    copied: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = copied
    calls = _plant(monkeypatch, *step, fault, is_before=is_before)

    called = desk.json("promote", "--run", str(desk.run_folder), "--repository", "other")

    moved = _version(desk, repository="other")
    assert calls[0], "the fault was not planted"
    assert (called.code == 0) == (moved is not None), str(called)
    assert not list(desk.folder.glob(".said.json.*"))
    # Whoever reads the JSON knows what was released.
    assert called.data.get("version") == moved
    _SEEN["faults in promote"] += 1


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fault", [_interrupt, _fill_the_disk])
@pytest.mark.parametrize("step", _OF_RUN, ids=[name for _, name in _OF_RUN])
def test_run_ends_in_0_exactly_where_the_alias_moved(
    step: tuple[object, str],
    fault: Callable[[], None],
    *,
    is_before: bool,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = _plant(monkeypatch, *step, fault, is_before=is_before)

    called = desk.json("run", "spec.yaml", "--quiet")

    moved = _version(desk)
    assert calls[0], "the fault was not planted"
    assert (called.code == 0) == (moved is not None), str(called)
    if moved is not None:
        (run,) = called.data["runs"]
        assert (called.data["exit_code"], run["exit_code"], run["release"]["version"]) == (0, 0, 1)
    _SEEN["faults in run"] += 1


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fault", [_interrupt, _fill_the_disk])
@pytest.mark.parametrize(
    "step",
    [
        (disk, "_link"),
        (disk, "sync_folder"),
        (staging, "_discard"),
        (json_file, "write_json"),
        (summary, "print_message"),
    ],
)
def test_alias_ends_in_0_exactly_where_it_moved(
    step: tuple[object, str],
    fault: Callable[[], None],
    *,
    is_before: bool,
    copied: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = copied
    calls = _plant(monkeypatch, *step, fault, is_before=is_before)

    called = desk.json("alias", "tiny", "canary", "1")

    assert calls[0], "the fault was not planted"
    assert (called.code == 0) == (_version(desk, "canary") == 1), str(called)
    assert called.data.get("version") == _version(desk, "canary")
    _SEEN["faults in alias"] += 1


@pytest.mark.parametrize("command", ["run", "promote", "alias"])
def test_json_that_cannot_be_written_keeps_the_alias_where_it_is(command: str, finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    # The file could be made, and nothing beside it: its temporary name is too long.
    target = "x" * 250 + ".json"
    calls = {
        "run": ("run", "spec.yaml", "--alias", "canary"),
        "promote": ("promote", "--run", str(desk.run_folder), "--alias", "canary"),
        "alias": ("alias", "tiny", "canary", "1"),
    }

    called = desk.call(*calls[command], "--json", target)

    assert called.code == 5, str(called)
    assert _version(desk, "canary") is None
    assert desk.releases == ["tiny/1"]


def _stream(number: int, place: str) -> Callable[[], None]:
    """Return what a process does before it begins: its stream goes to that place, or is closed."""

    def change() -> None:
        if place:
            os.dup2(os.open(place, os.O_WRONLY), number)
        else:
            os.close(number)

    return change


@pytest.mark.parametrize(
    ("options", "number", "place"),
    [
        ((), 1, "/dev/full"),
        ((), 1, ""),
        ((), 2, "/dev/full"),
        ((), 2, ""),
        (("--json", "-"), 1, "/dev/full"),
        (("--json", "-"), 1, ""),
        (("--json", "/dev/full"), 0, "/dev/null"),
        (("--json", "/dev/full"), 2, "/dev/full"),
    ],
)
def test_a_stream_that_is_full_or_closed_changes_no_exit_code(
    options: tuple[str, ...], number: int, place: str, finished: Desk, tmp_path: Path
) -> None:
    desk = finished.copy(tmp_path)

    done = subprocess.run(
        [sys.executable, "-m", "paritygate", "alias", "tiny", "canary", "1", *options],
        check=False,
        cwd=desk.folder,
        capture_output=True,
        preexec_fn=_stream(number, place),
    )

    assert done.returncode == 0, done.stderr.decode()
    assert _version(desk, "canary") == 1
    is_lost = number == 1 or "/dev/full" in options
    assert (b"could not" in done.stderr) == (is_lost and number != 2)
    _SEEN["streams"] += 1


@pytest.mark.parametrize(
    ("words", "code"), [(["alias", "tiny"], 2), (["show", "tiny", "none"], 2), (["show", "tiny", "prod"], 0)]
)
@pytest.mark.parametrize("place", ["/dev/full", ""])
def test_a_message_that_nobody_can_read_changes_no_exit_code(
    words: list[str], code: int, place: str, finished: Desk
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paritygate", *words],
        check=False,
        cwd=finished.folder,
        capture_output=True,
        preexec_fn=_stream(2, place),
    )

    assert done.returncode == code


@pytest.mark.parametrize("place", ["/dev/full", ""])
def test_a_result_that_nobody_can_read_is_no_pass(place: str, finished: Desk) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paritygate", "show", "tiny", "prod"],
        check=False,
        cwd=finished.folder,
        capture_output=True,
        preexec_fn=_stream(1, place),
    )

    assert done.returncode == 5
    assert b"unexpected" not in done.stderr


def test_a_file_of_the_tool_takes_the_place_of_no_closed_stream(tmp_path: Path) -> None:
    # What a library prints by itself, to standard output, is to end in no file.
    program = (
        "import os, sys; from paritygate.__main__ import _open_missing_streams; _open_missing_streams();"
        f"opened = os.open({str(tmp_path / 'model')!r}, os.O_WRONLY | os.O_CREAT); sys.exit(opened)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=False, stderr=subprocess.PIPE, preexec_fn=lambda: os.closerange(0, 2)
    )

    assert done.returncode >= 3, done.stderr


def test_what_was_left_out_is_in_the_outcome_of_the_api(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "write_reports", lambda *_, **__: _fill_the_disk())
    monkeypatch.chdir(desk.folder)

    from paritygate import run

    outcome = run("spec.yaml")

    assert (outcome.exit_code, outcome.version, outcome.reports) == (0, 1, ())
    assert len(outcome.left_out) == 1


def test_figures(record_property: Callable[[str, object], None]) -> None:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(_SEEN.items()))
    record_property("figures", f"exit code 0 exactly where the alias moved: {counts}")


@pytest.mark.parametrize("words", [("list",), ("show", "tiny", "prod"), ("runs",)])
def test_the_hint_of_json_that_cannot_be_written_names_an_option_that_there_is(
    words: tuple[str, ...], finished: Desk
) -> None:
    called = finished.call(*words, "--json", "/dev/full")

    hint = called.err[called.err.index("hint: ") :]
    assert called.code == 5
    assert ("--json" in hint, "--root" in called.err) == (True, False)
