"""The child's side of `paritygate.pipelines.process.child`, which starts `main` in a new process."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paritygate.errors import ParitygateError, StorageError, UnsupportedOperatorsError
from paritygate.files import storage_errors, write_json_atomically
from paritygate.pipelines.process.child_memory import unlimited_memory

# Each job: `run(args, report)`, JSON data in and out, `report(stage, done, total)` on the way.
JOBS: Mapping[str, str] = {
    "answer": "paritygate.pipelines.jobs.answer",
    "benchmark": "paritygate.pipelines.jobs.benchmark",
    "compare": "paritygate.pipelines.jobs.compare",
    "diagnose": "paritygate.pipelines.jobs.diagnose",
    "graph_diff": "paritygate.pipelines.jobs.graph_diff",
    "export": "paritygate.pipelines.jobs.export",
    "inspect": "paritygate.pipelines.jobs.inspect",
    "overflow": "paritygate.pipelines.jobs.overflow",
    "record": "paritygate.pipelines.jobs.record",
    "repair_conversion": "paritygate.pipelines.jobs.repair_conversion",
    "selftest": "paritygate.pipelines.jobs.selftest",
    "shard": "paritygate.pipelines.jobs.shard",
}

_REPORT_EVERY_S = 0.1
_OWN = os.getpid()


class _Reporter:
    """Sends progress to the parent, at most ten times a second and at every change of stage, and replies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = _file_of(descriptor)
        self._last = ("", 0.0)

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        _end_copies()
        now = time.monotonic()
        if stage == self._last[0] and now - self._last[1] < _REPORT_EVERY_S:
            return
        self._last = (stage, now)
        # The parent may have ended.
        with contextlib.suppress(OSError):
            self.send({"stage": stage, "done": done, "total": total})

    def send(self, data: Mapping[str, Any]) -> None:
        """Send data to the parent."""
        # Code of the user may have closed the pipe, and opened another file.
        if _file_of(self._descriptor) != self._pipe:
            raise OSError(errno.EBADF, "code of the model or of the samples closed the pipe to the parent")
        with open(self._descriptor, "wb", closefd=False) as pipe:
            pipe.write(json.dumps(data).encode() + b"\n")


def serve(
    args: Mapping[str, Any],
    report: Callable[[str, int, int], None],
    reply: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *,
    first: Mapping[str, Any] | None = None,
) -> None:
    """Reply to each request of a `ServingChild` until it is closed, and send it `first` before any request.

    `args` and `report` are those of the job.
    """
    if not isinstance(report, _Reporter):
        raise TypeError(type(report))
    if first is not None:
        report.send({"reply": first})
    with os.fdopen(args["requests"]) as requests:
        for line in requests:
            report.send({"reply": reply(json.loads(line))})


def _file_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _keep_to_oneself(descriptor: int) -> None:
    """Hide the pipe from processes that the user's code starts, and replace it in those that it forks."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - takes it by position alone
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.register_at_fork(after_in_child=lambda: os.dup2(nowhere, descriptor, inheritable=False))


def _end_copies() -> None:
    """End a process that the user's code forked and that goes on with the job as if it were this one."""
    if os.getpid() != _OWN:
        os._exit(0)


def _crash(err: Exception) -> dict[str, Any]:
    # The parent imports this module for the table alone.
    from paritygate.importing import place_in_users_code
    from paritygate.text import in_one_line

    place = place_in_users_code(err)
    where = f" ({place})" if place else ""
    return {"status": "crash", "message": f"{in_one_line(err)}{where}", "is_of_user": bool(place)}


def _outcome_of_os_error(err: OSError, folder: Path) -> dict[str, Any]:
    """Return a full disk, or a limit on the size of files, as such; others may be about files of the user."""
    if err.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return _crash(err)
    try:
        with storage_errors(Path(err.filename or folder)):
            raise err
    except StorageError as full:
        return _error(full)


def _error(err: ParitygateError) -> dict[str, Any]:
    return {"status": "error", "class": type(err).__name__, "message": str(err), **err.next_step}


def main(request: str, descriptor: str) -> int:
    """Run the job described in the file `request`, report to the pipe `descriptor`, write the result file."""
    _keep_to_oneself(int(descriptor))
    data = json.loads(Path(request).read_text(encoding="utf-8"))
    outcome: dict[str, Any]
    # The parent imports this module only for the table.
    from paritygate.pipelines.process.installed import compile_own_modules
    from paritygate.pipelines.process.telemetry import send_nothing

    send_nothing()
    compile_own_modules()
    is_watched = "notes" in data
    if is_watched:
        # Before importing anything that the result may depend on.
        from paritygate.pipelines.process.file_access.python import read_in_python, watch_python

        watch_python(data["notes"])
    try:
        module = importlib.import_module(JOBS[data["job"]])
        # The parent watches all processes below this one.
        with unlimited_memory():
            value = module.run(data["args"], _Reporter(int(descriptor)))
        outcome = {"status": "ok", "value": value}
    except ParitygateError as err:
        traceback.print_exc()
        outcome = _error(err)
        if isinstance(err, UnsupportedOperatorsError):
            outcome["rows"] = err.rows
    except OSError as err:
        traceback.print_exc()
        outcome = _outcome_of_os_error(err, Path(request).parent)
    except Exception as err:  # noqa: BLE001 - the parent turns whatever it was into an error of the variant
        traceback.print_exc()
        outcome = _crash(err)
    if is_watched:
        outcome["read"] = read_in_python()
    _end_copies()
    write_json_atomically(Path(data["result"]), outcome)
    sys.stdout.flush()
    sys.stderr.flush()
    # Frameworks may crash or hang at exit, and the result is written.
    os._exit(0)
