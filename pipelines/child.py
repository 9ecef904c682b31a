"""Running a job in a child process, so that a crash, a hang or an out-of-memory kill stays there.

A job is JSON in and JSON out; arrays never cross. What the child prints goes to a log file, its
progress comes back as JSON lines through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import paritygate.errors
from paritygate.errors import ParitygateError, UnsupportedOperatorsError
from paritygate.files import storage_errors
from paritygate.pipelines.crash_dump import innermost_frames

__all__ = ["ChildJob", "Progress", "StartedChild", "result_of_child", "run_child", "start_child", "stop_child"]

# The child's progress: a stage in words, what was done and out of how much (0 where that is not known).
Progress = Callable[[str, int, int], None]

# What a child begins with. Python puts the current directory first on the path, where a file called like a module of
# Python's, such as ctypes.py, would run as a part of the job: so nothing is imported before it is off the path. The
# package is to be that of this process, wherever that was found: its place is on the path until it is imported.
_START = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import os
here, place = os.getcwd(), sys.argv.pop(1)
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]
sys.path.insert(0, place)
import paritygate
del sys.path[0]
from paritygate.pipelines.child_main import main
main(*sys.argv[1:])
"""
_PLACE = str(Path(paritygate.errors.__file__).parent.parent)
_LOG_LINES = 5
_LOG_BYTES = 65536
_GRACE_S = 5.0
_ROOM_BYTES = 65536
# Frameworks read these when they are imported: quiet, and Keras on TensorFlow.
_ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildJob:
    """A job for a child process.

    Attributes:
        name: Which job, by the table in `child_main`.
        args: Its arguments, JSON data.
        folder: A folder for job, result and log; it is kept.
        what: What runs, in words, for messages: `converter torch to onnx`.
        time_limit_s: Seconds after which the child is killed.
        crash_error: The class of error that a crash or hang of this job is.
    """

    name: str
    args: Mapping[str, Any]
    folder: Path
    what: str
    time_limit_s: float
    crash_error: type[ParitygateError]

    @property
    def log(self) -> Path:
        """Where the child's output goes."""
        return self.folder / f"{self.name}.log"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedChild:
    """A job that runs.

    Attributes:
        job: The job.
        process: Its process, the leader of a group of its own.
        events: The pipe that its progress comes through.
        result: Where its result goes.
    """

    job: ChildJob
    process: subprocess.Popen[bytes]
    events: FileIO
    result: Path


def run_child(job: ChildJob, progress: Progress = lambda *_: None) -> Any:  # noqa: ANN401 - the job's JSON
    """Run the job in a child process and return its result.

    Raises:
        ParitygateError: What the job raised, or `job.crash_error` if the child crashed, hung or was killed.
    """
    child = start_child(job)
    try:
        last_stage = _watch(child, progress)
    finally:
        # Whatever ends the wait, Ctrl-C included, no child is left behind.
        stop_child(child)
    return result_of_child(child, last_stage)


def start_child(job: ChildJob, *, inherited: Sequence[int] = ()) -> StartedChild:
    """Start the job in a child process; `stop_child` is to be called in the end, whatever happens.

    Args:
        job: The job.
        inherited: File descriptors that the child keeps, beside that of its progress.

    Raises:
        StorageError: The job's folder cannot be written.
    """
    with storage_errors(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        result = job.folder / f"{job.name}.result.json"
        result.unlink(missing_ok=True)
        request = job.folder / f"{job.name}.job.json"
        request.write_text(json.dumps({"job": job.name, "args": dict(job.args), "result": str(result)}))
    read_end, write_end = os.pipe()
    command = [*_python(), "-c", _START, _PLACE, str(request), str(write_end)]
    events = FileIO(read_end, "rb")
    try:
        with job.log.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end, *inherited),
                env={**os.environ, **_ENVIRONMENT},
                # Ctrl-C reaches the parent only, which then ends the child and all it started.
                start_new_session=True,
            )
    except BaseException:
        events.close()
        raise
    finally:
        os.close(write_end)
    return StartedChild(job=job, process=process, events=events, result=result)


def _python() -> list[str]:
    # Python 3.11 and above can leave the current directory off the path from the very first.
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]


def stop_child(child: StartedChild) -> None:
    """End the child and all that it started, if it still runs."""
    if child.process.poll() is None:
        _kill(child.process)
    child.events.close()


def _watch(child: StartedChild, progress: Progress) -> str:
    job = child.job
    deadline = time.monotonic() + job.time_limit_s
    stage = ""
    try:
        for line in _lines(child.events.fileno(), deadline):
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                stage = event["stage"]
                progress(stage, event["done"], event["total"])
        child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        stop_child(child)
        msg = f"{job.what} did not end within {job.time_limit_s:g} s and was stopped{_during(stage)}{_last_lines(job)}"
        raise job.crash_error(msg, hint="give it more time with --time-limit SECONDS, or look into the log") from None
    return stage


def _lines(events: int, deadline: float) -> Iterator[bytes]:
    pending = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([events], [], [], left)[0]:
            raise TimeoutError
        part = os.read(events, 65536)
        if not part:
            return
        *whole, pending = (pending + part).split(b"\n")
        yield from whole


def _kill(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        break
    # The child is gone; what it started may not be.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _during(stage: str) -> str:
    return f" while {stage}" if stage else ""


def _last_lines(job: ChildJob) -> str:
    return _shown(job, _log_lines(job)[-_LOG_LINES:])


def _lines_of_crash(job: ChildJob) -> str:
    lines = _log_lines(job)
    return _shown(job, innermost_frames(lines) or lines[-_LOG_LINES:])


def _shown(job: ChildJob, lines: Sequence[str]) -> str:
    return "".join(f"\n  | {line[:300]}" for line in lines) + f"\n  log: {job.log}"


def _log_lines(job: ChildJob) -> list[str]:
    try:
        with job.log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _LOG_BYTES))
            return [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def result_of_child(child: StartedChild, stage: str) -> Any:  # noqa: ANN401 - the job's JSON
    """Return the result of a child that has ended.

    Args:
        child: The child.
        stage: What it was last doing, in words, for messages.

    Raises:
        ParitygateError: What the job raised, or its `crash_error` if the child crashed or was killed.
    """
    job, path = child.job, child.result
    if not path.is_file():
        _check_room(job.folder)
        msg = f"{job.what} {_ending(child.process.returncode)}{_during(stage)}{_lines_of_crash(job)}"
        raise job.crash_error(msg, hint="look into the log; the other variants are not affected")
    outcome = json.loads(path.read_text(encoding="utf-8"))
    if outcome["status"] == "ok":
        return outcome["value"]
    if outcome["status"] == "crash":
        _check_room(job.folder)
        msg = f"{job.what} failed{_during(stage)}: {outcome['message']}{_last_lines(job)}"
        raise job.crash_error(msg, hint="look into the log for the whole traceback")
    kind = getattr(paritygate.errors, outcome["class"], job.crash_error)
    if kind is UnsupportedOperatorsError:
        rows = [tuple(row) for row in outcome["rows"]]
        raise UnsupportedOperatorsError(outcome["message"], rows=rows, hint=outcome["hint"])
    raise kind(outcome["message"], hint=outcome["hint"])


def _check_room(folder: Path) -> None:
    """Check that the disk was not what stopped the child: on a full one, frameworks fail in words of their own.

    Raises:
        StorageError: The disk is full.
    """
    probe = folder / ".room"
    with storage_errors(folder):
        try:
            probe.write_bytes(bytes(_ROOM_BYTES))
        finally:
            probe.unlink(missing_ok=True)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} and left no result"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    reason = {"SIGKILL": ", as when memory runs out", "SIGSEGV": ", a crash in native code"}.get(name, "")
    return f"was killed by {name}{reason}"
