"""Running a job in a child process, so that a crash, a hang or an out-of-memory kill stays there.

A job is JSON in and JSON out; arrays never cross. What the child prints goes to a log file, its
progress comes back as JSON lines through a pipe.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import paritygate.errors
from paritygate.errors import ParitygateError, UnsupportedOperatorsError
from paritygate.files import storage_errors
from paritygate.pipelines.process.child_main import JOBS
from paritygate.pipelines.process.child_memory import MemoryWatch, family_of
from paritygate.pipelines.process.child_result import HINT_OF_GARBAGE, NOT_OURS, reading_result
from paritygate.pipelines.process.telemetry import send_nothing
from paritygate.pipelines.process.witness.asking import watched
from paritygate.pipelines.process.witness.listener import Listener

# The child's progress: a stage in words, what was done and out of how much (0 where that is not known).
Progress = Callable[[str, int, int], None]

# What a child begins with. Python puts the current directory first on the path, where a file called like a module of
# Python's, such as ctypes.py, would run as a part of the job: so nothing is imported before it is off the path. The
# package is to be that of this process, wherever that was found: its place is on the path until it is imported. Before
# anything that takes time, the child is made to end with its parent, which may have ended already.
_START = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import os
here, place, parent = os.getcwd(), sys.argv.pop(1), int(sys.argv.pop(1))
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]
if sys.platform == "linux":
    import ctypes, signal
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != parent:
    os._exit(1)
sys.path.insert(0, place)
import paritygate
del sys.path[0]
from paritygate.pipelines.process.child_main import main
main(*sys.argv[1:])
"""
_PLACE = str(Path(paritygate.errors.__file__).parent.parent)
_LOG_LINES = 5
_LOG_BYTES = 65536
_GRACE_S = 5.0
_ROOM_BYTES = 65536
_PART_BYTES = 65536
# No line of progress is nearly as long.
_LONGEST_LINE = 1 << 20
_SHOWN_OF_GARBAGE = 60
_GB = 10**9
# A pipe may be open for longer than the child lives, in processes that it started: whether it lives is looked at.
_LOOK_EVERY_S = 0.1
_FIRST_LOOK_S = 0.001
# What stands in a result beside its status.
_OUTCOMES = {"ok": {"value"}, "crash": {"message"}, "error": {"class", "message", "hint", "command"}}
# Frameworks read these when they are imported: quiet, and Keras on TensorFlow.
_ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1"),
}
# Converters go through sets of texts: with another seed, the same source would become another file. Where models
# answer, the seed stays drawn, so that an answer that follows from it shows.
_ENVIRONMENT_OF_JOB = {"export": {"PYTHONHASHSEED": "0"}}
# Threads of PyTorch and ONNX Runtime wait busily for their next work and for each other. On a machine with other work
# that is several times the work itself. The answers are the same. Only a benchmark has them wait as they do where the
# model is served. The variable is OpenMP's; see also `set_waiting` of the runner of ONNX Runtime.
_PASSIVE = {"OMP_WAIT_POLICY": "passive"}
_BENCHMARK = "benchmark"


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
        for_messages: Arguments that stand in its errors alone: what it returns is the same whatever they are.
    """

    name: str
    args: Mapping[str, Any]
    folder: Path
    what: str
    time_limit_s: float
    crash_error: type[ParitygateError]
    for_messages: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_args(self) -> dict[str, Any]:
        """What the job is called with."""
        return {**self.args, **self.for_messages}

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
        memory: Looks at how much memory it holds.
    """

    job: ChildJob
    process: subprocess.Popen[bytes]
    events: FileIO
    result: Path
    memory: MemoryWatch


def run_child(job: ChildJob, progress: Progress = lambda *_: None, *, listener: Listener | None = None) -> Any:  # noqa: ANN401 - the job's JSON
    """Run the job in a child process and return its result.

    Args:
        job: The job.
        progress: Told what is done.
        listener: Told what the child reads; None where nobody wants to know.

    Raises:
        ParitygateError: What the job raised, or `job.crash_error` if the child crashed, hung or was killed.
    """
    child = start_child(job, listener=listener)
    try:
        last_stage = _watch(child, progress)
    finally:
        # Whatever ends the wait, Ctrl-C included, no child is left behind.
        stop_child(child)
    if listener is not None and child.result.is_file():
        # Also of what raised an error: that something does not run here is known by what was read.
        listener.add_of_python(_outcome(child).get("read"))
    return result_of_child(child, last_stage)


# Once it is there, the answers of the models of a job are all in its folder.
ANSWERS_FILE = "answers.json"
# Under this name stands in it which samples were answered; nothing, where these have to be read again.
SAMPLES = "samples"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAnswers:
    """What the models of a job answered, which is kept apart: much of what is asked of the job does not change it.

    Attributes:
        folder: Where the job puts it, and finds it where it is told that it is there.
        asked: All of the job's arguments that it follows from, JSON data.
        needs_own_code: Whether the answers are judged by code of the user's.
    """

    folder: Path
    asked: Mapping[str, Any]
    needs_own_code: bool


class DoJob(Protocol):
    """How a job is done: in a child process, or not at all where what comes of it is known."""

    def __call__(
        self,
        job: ChildJob,
        progress: Progress,
        *,
        makes: Sequence[Path] = (),
        is_kept: Callable[[Any], bool] = lambda _: True,
        answers: ModelAnswers | None = None,
    ) -> Any:  # noqa: ANN401 - the job's JSON
        """Return what the job returns.

        Args:
            job: The job.
            progress: Told what is done.
            makes: The folders that it writes files to.
            is_kept: Whether a later run may take a result over.
            answers: What its models answer, where that may be kept apart.
        """


def do_job(
    job: ChildJob,
    progress: Progress,
    *,
    makes: Sequence[Path] = (),
    is_kept: Callable[[Any], bool] = lambda _: True,
    answers: ModelAnswers | None = None,
) -> Any:  # noqa: ANN401 - the job's JSON
    """Do a job in a child process, whatever was done before.

    Raises:
        ParitygateError: As `run_child`.
    """
    del makes, is_kept, answers
    return run_child(job, progress)


def run_here(job: ChildJob, progress: Progress = lambda *_: None) -> Any:  # noqa: ANN401 - the job's JSON
    """Run the job in this process, because what it needs is an object that no other has, and return its result.

    Nothing ends it when its time is over, and a crash ends this process.

    Raises:
        ParitygateError: What the job raised, or `job.crash_error` for any other exception.
    """
    send_nothing()
    try:
        return importlib.import_module(JOBS[job.name]).run(job.all_args, progress)
    except ParitygateError:
        raise
    except Exception as err:
        text = str(err).strip().splitlines()
        msg = f"{job.what} failed: {type(err).__name__}: {text[0] if text else ''}"
        raise job.crash_error(msg, hint="the exception that this one was raised from says where") from err


def start_child(job: ChildJob, *, inherited: Sequence[int] = (), listener: Listener | None = None) -> StartedChild:
    """Start the job in a child process; `stop_child` is to be called in the end, whatever happens.

    Args:
        job: The job.
        inherited: File descriptors that the child keeps, beside that of its progress.
        listener: Told what the child reads; None where nobody wants to know.

    Raises:
        StorageError: The job's folder cannot be written.
    """
    with storage_errors(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        result = job.folder / f"{job.name}.result.json"
        result.unlink(missing_ok=True)
        request = job.folder / f"{job.name}.job.json"
        asked: dict[str, Any] = {"job": job.name, "args": job.all_args, "result": str(result)}
        if listener is not None:
            asked["notes"] = listener.notes.childs_end
            inherited = (*inherited, *listener.inherited)
        request.write_text(json.dumps(asked))
    read_end, write_end = os.pipe()
    command = [*_python(), "-c", _START, _PLACE, str(os.getpid()), str(request), str(write_end)]
    if listener is not None:
        command = watched(command, listener.childs_end.fileno())
    events = FileIO(read_end, "rb")
    try:
        with job.log.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end, *inherited),
                env=environment_of_job(job.name),
                # Ctrl-C reaches the parent only, which then ends the child and all it started.
                start_new_session=True,
            )
    except BaseException:
        events.close()
        raise
    finally:
        os.close(write_end)
    if listener is not None:
        listener.start(process.pid)
    return StartedChild(job=job, process=process, events=events, result=result, memory=MemoryWatch(process.pid))


def environment_of_job(name: str) -> dict[str, str]:
    """Return the environment variables that a child is started with for a job; those of the user come first."""
    passive = {} if name == _BENCHMARK else _PASSIVE
    return {**passive, **_ENVIRONMENT_OF_JOB.get(name, {}), **environment_of_child()}


def environment_of_child() -> dict[str, str]:
    """Return the environment variables that a child is started with, whatever its job."""
    # Not by its names one by one, which would be reading them all where this process is itself watched.
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in os.environ._data.items()}  # type: ignore[attr-defined]  # noqa: SLF001 - as said
    return {**given, **_ENVIRONMENT}


def _python() -> list[str]:
    # Python 3.11 and above can leave the current directory off the path from the very first.
    is_safe = ["-P"] if sys.version_info >= (3, 11) else []
    # What is kept of a module is what its source says.
    return [sys.executable, *is_safe, "--check-hash-based-pycs", "always"]


def stop_child(child: StartedChild, *, at_once: bool = False) -> None:
    """End the child, if it still runs, and all that it started and left behind.

    Args:
        child: The child.
        at_once: Whether it is given no time to tidy up.
    """
    if child.events.closed:
        return
    leader = child.process.pid
    if child.process.poll() is None:
        # What is in a session of its own is told by its parents, as long as those live.
        _kill_each(pid for pid, member in family_of(leader).items() if member.session != leader)
        _end(child.process, (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL))
    _kill_group(leader, signal.SIGKILL)
    # It may have made groups of their own. Its own id may be another process's by now.
    _kill_each(pid for pid, member in family_of(leader).items() if pid != leader == member.session)
    child.events.close()


def _watch(child: StartedChild, progress: Progress) -> str:
    job = child.job
    deadline = time.monotonic() + job.time_limit_s
    stage, pending = "", b""
    try:
        while part := receive(child, child.events.fileno(), deadline, stage):
            *lines, pending = (pending + part).split(b"\n")
            for line in lines:
                stage, done, total = _event(child, line)
                progress(stage, done, total)
            if len(pending) > _LONGEST_LINE:
                raise garbage_error(child, pending)
        wait_for_end(child, deadline, stage)
    except TimeoutError:
        stop_child(child)
        msg = f"{job.what} did not end within {job.time_limit_s:g} s and was stopped{_during(stage)}{_last_lines(job)}"
        raise job.crash_error(msg, hint="give it more time with --time-limit SECONDS, or look into the log") from None
    if pending and child.process.returncode == 0:
        raise garbage_error(child, pending)
    return stage


def _event(child: StartedChild, line: bytes) -> tuple[str, int, int]:
    try:
        event = json.loads(line)
        return str(event["stage"]), int(event["done"]), int(event["total"])
    except NOT_OURS:
        raise garbage_error(child, line) from None


def garbage_error(child: StartedChild, garbage: bytes) -> ParitygateError:
    """Return the error that a pipe of the child holds what paritygate did not write; the child is ended."""
    stop_child(child)
    shown = garbage[:_SHOWN_OF_GARBAGE].decode(errors="replace")
    msg = (
        f"{child.job.what} failed: something else than paritygate wrote {shown!r} into its pipe{_last_lines(child.job)}"
    )
    return child.job.crash_error(msg, hint=HINT_OF_GARBAGE)


def receive(child: StartedChild, pipe: int, deadline: float, stage: str) -> bytes:
    """Return what comes through a pipe of the child next; nothing once it has ended or closed the pipe.

    Args:
        child: The child.
        pipe: The end of the pipe that is read.
        deadline: When its time is over, by the monotonic clock.
        stage: What it was last doing, in words, for messages.

    Raises:
        TimeoutError: Its time is over.
        ParitygateError: It holds more memory than it may; then it is ended.
    """
    while True:
        # What it wrote before its end is in the pipe once its end is seen.
        has_ended = child.process.poll() is not None
        if select.select([pipe], [], [], 0 if has_ended else _time_to_look(child, deadline, stage))[0]:
            return os.read(pipe, _PART_BYTES)
        if has_ended:
            return b""


def wait_for_end(child: StartedChild, deadline: float, stage: str) -> None:
    """Wait until the child has ended, whatever it started that has not.

    Raises:
        TimeoutError: Its time is over.
        ParitygateError: It holds more memory than it may; then it is ended.
    """
    # Nearly always it has closed its pipes by ending.
    wait = _FIRST_LOOK_S
    while child.process.poll() is None:
        time.sleep(min(wait, _time_to_look(child, deadline, stage)))
        wait *= 2


def _time_to_look(child: StartedChild, deadline: float, stage: str) -> float:
    """Return for how long to wait for a child that runs.

    Raises:
        TimeoutError: Its time is over.
        ParitygateError: It holds more memory than it may; then it is ended.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    check_memory(child, child.memory.excess(), stage)
    return min(left, _LOOK_EVERY_S)


def check_memory(child: StartedChild, excess: int | None, stage: str) -> None:
    """End a child that holds more memory than it may.

    Args:
        child: The child.
        excess: Bytes that it holds, where that is more than its limit; see `MemoryWatch`.
        stage: What it was last doing, in words, for the message.

    Raises:
        ParitygateError: It holds more; it is ended.
    """
    if excess is None:
        return
    stop_child(child, at_once=True)
    job, limit = child.job, child.memory.limit
    msg = (
        f"{job.what} held {_size(excess)} of memory, of {_size(limit)} allowed, and was stopped"
        f"{_during(stage)}{_last_lines(job)}"
    )
    raise job.crash_error(msg, hint="allow more with --memory-limit SIZE, such as 8GB, or use smaller batches")


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count >= _GB else f"{count / 1e6:.3g} MB"


def _end(process: subprocess.Popen[bytes], signals: Sequence[signal.Signals]) -> None:
    for number in signals:
        _kill_group(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
            return


def _kill_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _kill_each(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _during(stage: str) -> str:
    return f" while {stage}" if stage else ""


def _last_lines(job: ChildJob) -> str:
    return _shown(job, _log_lines(job)[-_LOG_LINES:])


def _lines_of_crash(job: ChildJob) -> str:
    lines = _log_lines(job)
    from paritygate.pipelines.process.crash_dump import innermost_frames

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
    outcome = _outcome(child)
    if outcome["status"] == "ok":
        return outcome["value"]
    if outcome["status"] == "crash":
        _check_room(job.folder)
        msg = f"{job.what} failed{_during(stage)}: {outcome['message']}{_last_lines(job)}"
        raise job.crash_error(msg, hint="look into the log for the whole traceback")
    kind = getattr(paritygate.errors, str(outcome["class"]), None)
    if not (isinstance(kind, type) and issubclass(kind, ParitygateError)):
        kind = job.crash_error
    message, step = str(outcome["message"]), {key: str(outcome[key]) for key in ("hint", "command")}
    if kind is UnsupportedOperatorsError:
        with reading_result(job):
            rows = [(str(a), str(b), str(c), str(d)) for a, b, c, d in outcome["rows"]]
        raise UnsupportedOperatorsError(message, rows=rows, hint=step["hint"], command=step["command"])
    raise kind(message, **step)


def _outcome(child: StartedChild) -> dict[str, Any]:
    """Return what the child left, its status and what belongs to that.

    Raises:
        ParitygateError: It is not what paritygate writes.
    """
    try:
        outcome = json.loads(child.result.read_bytes())
        if isinstance(outcome, dict) and _OUTCOMES[outcome["status"]] <= outcome.keys():
            return outcome
    except NOT_OURS:
        pass
    msg = f"{child.job.what} left a result that paritygate did not write: {child.result}{_last_lines(child.job)}"
    raise child.job.crash_error(msg, hint=HINT_OF_GARBAGE)


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
