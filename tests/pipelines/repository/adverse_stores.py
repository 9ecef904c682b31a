"""Acts on a repository in an object store from processes of its own; run by the tests.

    adverse_stores.py CONDITION ROOT CANDIDATE

`race-N`: 16 processes start at the same moment, and each promotes the candidate N times; prints their exit
codes and seconds.
`killed-promote`, `killed-rollback`, `killed-alias`, `killed-gc`: a forked child does it once, and its calls of the
store are counted before and after they are made, by the functions that lead to them. For each of these places, and for
its first, middle and last repetition, another child prepares `ROOT-<k>` and is killed there. Prints the calls, and the
outcomes; the last one is that of a child that was not killed.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paritygate.pipelines.release.repository import collection
from paritygate.pipelines.release.repository.aliases import Note, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.stores import objects
from paritygate.roots import Root, root_of

_PROCESSES = 16
_CALLS = ("get", "get_range", "put", "list", "list_with_delimiter", "delete")
_Place = tuple[str, int]  # what leads to a call, and its repetition


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
    begun, codes, used = time.monotonic(), [_code_of(pid) for pid in pids], resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"codes": codes, "seconds": time.monotonic() - begun, "cpu_seconds": used.ru_utime + used.ru_stime}


class _Killing:
    """A client that notes its calls, and ends the process at one of them."""

    def __init__(self, client: Any, place: _Place | None, note: int) -> None:  # noqa: ANN401 - without types
        self._client, self._place, self._note = client, place, note
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _pass(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
            os.write(self._note, f"{what}\n".encode())
            if (what, self._counts[what]) == self._place:
                os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of a package without types
        work = getattr(self._client, name)
        if name not in _CALLS:
            return work

        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - handed on
            # Threads of a pool begin anew.
            frames = [frame.name for frame in traceback.extract_stack() if "/release/" in frame.filename]
            way = f"{name} in {' > '.join(frames)}"
            self._pass(f"before {way}")
            found = work(*args, **options)
            self._pass(f"after {way}")
            return found

        return call


def _places(calls: list[str]) -> list[_Place]:
    """Return the first, middle and last repetition of each call."""
    places = []
    for what, count in Counter(calls).items():
        places += [(what, number) for number in sorted({1, (count + 1) // 2, count})]
    return places


def killed(
    root: Root, prepare: Callable[[Root], object], act: Callable[[Root], object], number: int, place: _Place | None
) -> dict[str, Any]:
    """Prepare a repository and act on it in a child, which is killed at a place."""
    of_child = root_of(f"{root}-{number}")
    readable, writable = os.pipe()

    def task() -> None:
        prepare(of_child)
        store = objects.object_store(of_child)
        store._client = _Killing(store._client, place, writable)
        # As in a process of its own, which probes the server first.
        store._is_fit = False
        act(of_child)

    pid = _forked(task)
    os.close(writable)
    with os.fdopen(readable) as stream:
        calls = stream.read().split("\n")[:-1]
    return {"root": str(of_child), "code": _code_of(pid), "calls": calls}


def killed_at_each(
    root: Root, prepare: Callable[[Root], object], act: Callable[[Root], object]
) -> dict[str, list[dict[str, Any]]]:
    whole = killed(root, prepare, act, 0, None)
    places = _places(whole["calls"])
    return {"found": [*(killed(root, prepare, act, n, place) for n, place in enumerate(places, 1)), whole]}


def main() -> None:
    condition, root, pickled = sys.argv[1], root_of(sys.argv[2]), Path(sys.argv[3])
    candidate = pickle.loads(pickled.read_bytes())  # noqa: S301 - written by the test
    name, _, what = condition.partition("-")

    def released(count: int) -> Callable[[Root], object]:
        return lambda place: [promote(place, candidate) for _ in range(count)]

    def with_upload(place: Root) -> None:
        for _ in range(3):
            promote(place, candidate)
        store = objects.object_store(place)
        for file in ("manifest.json", "onnx-fp32/model.onnx"):
            store._put_new(f"store/{candidate.model}/4/{file}", b"{}")

    def move(place: Root) -> object:
        return point_alias(place, candidate.model, "prod", 1, also={"before": "prod"})

    def collect(place: Root) -> object:
        collection._GRACE_S = -1.0
        return collection.collect(place, candidate.model, keep=1, note=Note())

    acts: dict[str, tuple[Callable[[Root], object], Callable[[Root], object]]] = {
        "promote": (released(1), lambda place: promote(place, candidate)),
        "rollback": (released(2), lambda place: roll_back(place, candidate.model)),
        "alias": (released(2), move),
        "gc": (with_upload, collect),
    }
    found = race(root, candidate, int(what)) if name == "race" else killed_at_each(root, *acts[what])
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
