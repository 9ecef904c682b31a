"""Promotes a pickled candidate into stores from processes of its own; run by the tests.

    adverse_stores.py CONDITION ROOT CANDIDATE

`race-N`: 16 processes start at the same moment, and each promotes N times; prints their exit codes.
`killed`: for k = 0, 1, 2, ... a forked child promotes once into `ROOT-<k>` and is killed at its k-th call of the store
in the next promotion: calls are counted before and after they are made. Prints what was called, and the outcomes.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paritygate.pipelines.release.repository import ReleaseCandidate, promote
from paritygate.roots import Root, root_of

_PROCESSES = 16
_CALLS = ("get", "get_range", "put", "list", "list_with_delimiter", "delete")


def _forked(task: Callable[[], None]) -> int:
    """Start a child for a task, and return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            task()
        except BaseException:  # noqa: BLE001 - printed for the test, whatever it is
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def _code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def race(root: Root, candidate: ReleaseCandidate, times: int) -> dict[str, Any]:
    start, go = os.pipe()

    def work() -> None:
        os.close(go)
        os.read(start, 1)  # returns when the parent closes its end
        for _ in range(times):
            promote(root, candidate)

    pids = [_forked(work) for _ in range(_PROCESSES)]
    os.close(go)
    return {"codes": [_code_of(pid) for pid in pids]}


class _Killing:
    """A client that notes its calls, and ends the process at one of them."""

    def __init__(self, client: Any, point: int, note: int) -> None:  # noqa: ANN401 - of a package without types
        self._client, self._point, self._note, self._count = client, point, note, 0

    def _pass(self, what: str) -> None:
        os.write(self._note, f"{what}\n".encode())
        if self._count == self._point:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of a package without types
        work = getattr(self._client, name)
        if name not in _CALLS:
            return work

        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - handed on
            self._pass(f"before {name}")
            found = work(*args, **options)
            self._pass(f"after {name}")
            return found

        return call


def killed(root: Root, candidate: ReleaseCandidate) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    while not found or found[-1]["code"] == -signal.SIGKILL:
        place = root_of(f"{root}-{len(found)}")
        readable, writable = os.pipe()

        def task(point: int = len(found), place: Root = place, writable: int = writable) -> None:
            from paritygate.pipelines.release.stores import objects

            promote(place, candidate)
            store = objects.object_store(place)
            store._client = _Killing(store._client, point, writable)
            # As in a process of its own, which probes the server first.
            store._is_fit = False
            promote(place, candidate)

        pid = _forked(task)
        os.close(writable)
        with os.fdopen(readable) as stream:
            calls = stream.read().split("\n")[:-1]
        found.append({"root": str(place), "code": _code_of(pid), "calls": calls})
    return {"found": found}


def main() -> None:
    condition, root, pickled = sys.argv[1], root_of(sys.argv[2]), Path(sys.argv[3])
    candidate = pickle.loads(pickled.read_bytes())  # noqa: S301 - written by the test
    name, _, times = condition.partition("-")
    sys.stdout.write(json.dumps(race(root, candidate, int(times)) if name == "race" else killed(root, candidate)))


if __name__ == "__main__":
    main()
