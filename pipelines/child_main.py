"""The child's side of `paritygate.pipelines.child`, which starts `main` in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.errors import ParitygateError, StorageError, UnsupportedOperatorsError
from paritygate.files import storage_errors, write_json_atomically

__all__ = ["JOBS", "main"]

# Each job: `run(args, report)`, JSON data in and out, `report(stage, done, total)` on the way.
JOBS: Mapping[str, str] = {
    "answer": "paritygate.pipelines.jobs.answer",
    "benchmark": "paritygate.pipelines.jobs.benchmark",
    "compare": "paritygate.pipelines.jobs.compare",
    "export": "paritygate.pipelines.jobs.export",
    "overflow": "paritygate.pipelines.jobs.overflow",
    "record": "paritygate.pipelines.jobs.record",
    "selftest": "paritygate.pipelines.jobs.selftest",
}

_PR_SET_PDEATHSIG = 1
_REPORT_EVERY_S = 0.1


class _Reporter:
    """Sends progress to the parent, at most ten times a second and at every change of stage."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last = ("", 0.0)

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        now = time.monotonic()
        if stage == self._last[0] and now - self._last[1] < _REPORT_EVERY_S:
            return
        self._last = (stage, now)
        line = json.dumps({"stage": stage, "done": done, "total": total}) + "\n"
        # A parent that is gone wants no progress.
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line.encode())


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _crash(err: Exception) -> dict[str, Any]:
    text = str(err).strip().splitlines()
    return {"status": "crash", "message": f"{type(err).__name__}: {text[0] if text else ''}"}


def _outcome_of_os_error(err: OSError, folder: Path) -> dict[str, Any]:
    """Return a full disk, or a limit on the size of files, as what it is; others may be about files of the user."""
    if err.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return _crash(err)
    try:
        with storage_errors(Path(err.filename or folder)):
            raise err
    except StorageError as full:
        return _error(full)


def _error(err: ParitygateError) -> dict[str, Any]:
    return {"status": "error", "class": type(err).__name__, "message": str(err), "hint": err.hint}


def main(request: str, descriptor: str) -> int:
    """Run the job described in the file `request`, report to the pipe `descriptor`, write the result file."""
    _die_with_parent()
    data = json.loads(Path(request).read_text(encoding="utf-8"))
    outcome: dict[str, Any]
    try:
        module = importlib.import_module(JOBS[data["job"]])
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
    write_json_atomically(Path(data["result"]), outcome)
    sys.stdout.flush()
    sys.stderr.flush()
    # Frameworks may crash or hang while they are taken down; the result is written, so they need not be.
    os._exit(0)
