"""Promotes a pickled candidate under adverse conditions; run by the tests in a process of its own.

    adverse.py CONDITION REPOSITORY CANDIDATE

`killed`, `interrupted`, `full` and `unsynced` try every point at which something can go wrong: for k = 0, 1, 2, ... the
repository is copied to `REPOSITORY.<k>`, and a forked child promotes into it until, at its k-th change of
the disk, it is killed (SIGKILL) or interrupted (Ctrl-C), or the disk is full or fsync fails from there on.
The last k is the one that nothing happened to. `killed-rollback` and `race-rollback` roll back instead,
`killed-alias` moves two aliases, and `killed-gc` collects.
Prints one JSON object per k: `repository`, `outcome`, `said`.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paritygate.pipelines.release.repository import collection
from paritygate.pipelines.release.repository.aliases import Note, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import promote

_GROWING = {"os.mkdir", "os.link"}
_CHANGING = {*_GROWING, "os.rename", "os.remove", "os.rmdir", "os.chmod"}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NOBODY = 65534


def _is_change(repository: Path, event: str, args: tuple[Any, ...], changes: set[str]) -> bool:
    if event == "open":
        path, _, flags = args
        return bool(flags & _WRITE_FLAGS) and str(path).startswith(str(repository))
    return event in changes


def _at_change(point: int, repository: Path, changes: set[str], act: Callable[[int, str], None]) -> None:
    """Call `act` before each change of the disk from number `point` on."""
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if _is_change(repository, event, args, changes):
            count += 1
            if count > point:
                act(count - 1, f"{event} {args[0]}")

    sys.addaudithook(hook)


def _kill(point: int, repository: Path) -> None:
    _at_change(point, repository, _CHANGING, lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def _interrupt(point: int, repository: Path) -> None:
    def act(count: int, what: str) -> None:
        if count == point:
            raise KeyboardInterrupt(what)

    _at_change(point, repository, _CHANGING, act)


def _fill_disk(point: int, repository: Path) -> None:
    def act(_: int, what: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)

    _at_change(point, repository, _GROWING, act)


def _stop_syncing(point: int, repository: Path) -> None:
    del repository
    count = 0
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count > point:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    os.fsync = failing  # type: ignore[assignment]


def _forked(task: Callable[[], None]) -> tuple[int, str]:
    """Run `task` in a forked child; return its exit status (minus the signal) and what went wrong, if it did."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        status = 0
        try:
            task()
        except BaseException as err:  # noqa: BLE001 - reported to the test, whatever it is
            hint = getattr(err, "hint", "")
            os.write(writable, f"{type(err).__name__}: {err} [{hint}]\n{traceback.format_exc()}".encode()[:60000])
            status = 1
        os._exit(status)
    os.close(writable)
    with os.fdopen(readable) as stream:
        said = stream.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), said


def _every_point(
    disturb: Callable[[int, Path], None], repository: Path, act: Callable[[Path], object]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while not found or found[-1]["outcome"] != 0:
        point = len(found)
        copy = repository.with_name(f"{repository.name}.{point}")
        shutil.copytree(repository, copy)

        def task(point: int = point, copy: Path = copy) -> None:
            disturb(point, copy)
            act(copy)

        outcome, said = _forked(task)
        found.append({"repository": str(copy), "outcome": outcome, "said": said})
    return found


def _race(repository: Path, act: Callable[[Path], object], times: int) -> list[dict[str, Any]]:
    """Do something from eight processes that start at the same moment, several times each."""
    start, go = os.pipe()
    pids = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(start, 1)  # returns when the parent closes its end
            try:
                for _ in range(times):
                    act(repository)
            except BaseException:  # noqa: BLE001 - printed for the test, whatever it is
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    os.close(go)
    return [{"outcome": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])} for pid in pids]


def _unprivileged(repository: Path, candidate: ReleaseCandidate) -> list[dict[str, Any]]:
    """Promote as a user who may read the repository and not write it."""
    # What reading a log takes is imported first: Python's own files need not be readable to that user.
    read_records(repository, candidate.model)

    def task() -> None:
        if os.geteuid() == 0:
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        promote(repository, candidate)

    outcome, said = _forked(task)
    return [{"outcome": outcome, "said": said}]


def main() -> None:
    condition, repository, pickled = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    candidate = pickle.loads(pickled.read_bytes())  # noqa: S301 - written by the test

    def release(place: Path) -> object:
        return promote(place, candidate)

    def go_back(place: Path) -> object:
        return roll_back(place, candidate.model)

    def move(place: Path) -> object:
        return point_alias(place, candidate.model, "prod", 1, also={"before": "prod"})

    def collect_all(place: Path) -> object:
        collection._GRACE_S = -1.0
        return collection.collect(place, candidate.model, keep=1, note=Note())

    run = {
        "killed": lambda: _every_point(_kill, repository, release),
        "killed-rollback": lambda: _every_point(_kill, repository, go_back),
        "killed-alias": lambda: _every_point(_kill, repository, move),
        "killed-gc": lambda: _every_point(_kill, repository, collect_all),
        "interrupted": lambda: _every_point(_interrupt, repository, release),
        "full": lambda: _every_point(_fill_disk, repository, release),
        "unsynced": lambda: _every_point(_stop_syncing, repository, release),
        "race": lambda: _race(repository, release, 3),
        "race-rollback": lambda: _race(repository, go_back, 1),
        "unprivileged": lambda: _unprivileged(repository, candidate),
    }
    sys.stdout.write(json.dumps(run[condition]()))


if __name__ == "__main__":
    main()
