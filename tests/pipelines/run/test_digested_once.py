"""A stage reads a file once for its digest, however many of its checks want it, and sees every change of a file."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paritygate import files
from paritygate.files import digest_of_file

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

# Longer than a step of the clock of this file system.
_STEP_NS, _AGE_S = 20_000_000, 0.05


@pytest.fixture(autouse=True)
def _files_are_old_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files be old enough for their times to show a change after a step of the clock here, not of any clock."""
    # FAT has steps of two seconds, and nobody is to wait for long.
    assert 2 * 10**9 < files._TIME_STEP_NS < 3 * 10**9
    monkeypatch.setattr(files, "_TIME_STEP_NS", _STEP_NS)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often each file was read for its digest since."""
    found: Counter[str] = Counter()
    real = files._sha256

    def count(stream: Any, note: Any) -> str:  # noqa: ANN401 - a stream and a function
        found[stream.name if isinstance(stream.name, str) else str(Path(stream.name))] += 1
        return real(stream, note)

    monkeypatch.setattr(files, "_sha256", count)
    monkeypatch.setattr(files, "_DIGESTS", {})
    return found


def test_each_stage_reads_a_file_of_the_run_once_for_its_digest(
    finished: Desk, tmp_path: Path, read: Counter[str]
) -> None:
    desk = finished.copy(tmp_path)
    run = desk.run_folder
    time.sleep(_AGE_S)
    stages = (
        ("validate", "--quiet"),
        ("benchmark", "--quiet", "--rounds", "2", "--seconds", "0.01"),
        ("choose", "--prefer", "smallest"),
        ("promote",),
    )

    for command, *options in stages:
        read.clear()
        files._DIGESTS.clear()
        called = desk.call(command, "--run", str(run), *options)

        assert called.code == 0, str(called)
        of_run = {name: count for name, count in read.items() if Path(name).is_relative_to(run)}
        assert str(run / "onnx-fp32/model.onnx") in of_run, command
        assert set(of_run.values()) == {1}, (command, of_run)


def test_a_file_that_was_not_changed_is_not_read_again(tmp_path: Path, read: Counter[str]) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"1")
    time.sleep(_AGE_S)

    assert digest_of_file(path) == digest_of_file(path)
    assert read[str(path)] == 1


def test_a_file_that_was_written_just_now_is_read_again(
    tmp_path: Path, read: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long the machine pauses meanwhile.
    monkeypatch.setattr(files, "_TIME_STEP_NS", 10**18)
    path = tmp_path / "weights"
    path.write_bytes(b"1")

    digest_of_file(path)
    digest_of_file(path)

    assert read[str(path)] == 2


def test_a_change_that_keeps_size_and_time_of_a_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"1")
    time.sleep(_AGE_S)
    before, times = digest_of_file(path), path.stat()

    path.write_bytes(b"2")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert path.stat().st_mtime_ns == times.st_mtime_ns
    assert digest_of_file(path) != before
