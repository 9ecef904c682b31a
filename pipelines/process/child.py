"""Run a job in a child process, so that a crash, a hang or an out-of-memory kill stays there.

A job is JSON in and JSON out; arrays never cross. The child's output goes to a log file, and its progress through a
pipe as JSON lines.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

import paritygate.errors
from paritygate.addresses import SIGNING_PASSWORD, without_secrets
from paritygate.errors import BackendError, ParitygateError, UnsupportedOperatorsError
from paritygate.files import storage_errors
from paritygate.pipelines.process.child_main import JOBS
from paritygate.pipelines.process.child_memory import MemoryWatch, family_of
from paritygate.pipelines.process.child_result import HINT_OF_GARBAGE, NOT_OURS, reading_result
from paritygate.text import in_one_line

if TYPE_CHECKING:
    from paritygate.pipelines.process.file_access.listener import Listener

# The child's progress: a description of the stage, the amount done, and the total (0 if unknown).
Progress = Callable[[str, int, int], None]


def progress_of(what: str, progress: Progress) -> Progress:
    """Return the progress of a part, whose stages are shown after its name."""
    return lambda stage, done, total: progress(f"{what}: {stage}", done, total)


# The child's first code. Python puts the current directory first on the path, where a file such as ctypes.py would
# replace a module of Python's. So nothing is imported before it is off the path. The package must be that of this
# process, so its place is on the path until it is imported. Before any slow work, the child is bound to end with its
# parent, which may have ended already.
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
# Far longer than any line of progress, or reply.
_LONGEST_LINE = 1 << 24
_SHOWN_OF_GARBAGE = 60
_GB = 10**9
# The child's own children may keep a pipe open, so the parent also polls whether the child lives.
_LOOK_EVERY_S = 0.1
_FIRST_LOOK_S = 0.001
# The keys of a result besides its status.
_OUTCOMES = {"ok": {"value"}, "crash": {"message", "is_of_user"}, "error": {"class", "message", "hint", "command"}}
# Frameworks read these when they are imported: quiet, and Keras on TensorFlow.
_ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1"),
}
# Converters iterate over sets of texts, so another seed would change the files. Where models run, the seed stays
# random, so that outputs that depend on it show.
_ENVIRONMENT_OF_JOB = {"export": {"PYTHONHASHSEED": "0"}}
# Idle threads of PyTorch and ONNX Runtime spin, which on a busy machine costs several times the work itself. The
# outputs are the same. Only a benchmark lets them spin, as where the model is served. The variable is OpenMP's; see
# also `set_waiting` of the runner of ONNX Runtime.
_PASSIVE = {"OMP_WAIT_POLICY": "passive"}
_BENCHMARK = "benchmark"
# By whether the log is kept.
_SEE = {True: "look into the log", False: "add --debug before the command"}


class ChildJob(Struct, frozen=True, kw_only=True):
    """A job for a child process."""

    name: str  # in `JOBS` of `child_main`
    args: Mapping[str, Any]  # JSON data
    folder: Path  # for job, result and log
    what: str  # for messages: `converter torch to onnx`
    time_limit_s: float
    crash_error: type[ParitygateError] = BackendError  # raised for a crash or hang
    killed_error: type[ParitygateError] | None = None  # raised in place of it where a signal ended the child
    is_log_kept: bool = True  # else no message names it
    for_messages: Mapping[str, Any] = field(default_factory=dict)  # arguments without effect on the result
    environment: Mapping[str, str] = field(default_factory=dict)  # those of the user win

    @property
    def all_args(self) -> dict[str, Any]:
        """All arguments of the job."""
        return {**self.args, **self.for_messages}

    @property
    def log(self) -> Path:
        """The file of the child's output."""
        return self.folder / f"{self.name}.log"


class StartedChild(Struct, frozen=True, kw_only=True):
    """A job that runs."""

    job: ChildJob
    process: subprocess.Popen[bytes]  # leader of its own process group
    events: FileIO  # the pipe of its progress
    result: Path
    memory: MemoryWatch


def run_child(job: ChildJob, progress: Progress = lambda *_: None, *, listener: Listener | None = None) -> Any:  # noqa: ANN401 - the job's JSON
    """Run the job in a child process and return its result; `listener` records what the child reads.

    Raises:
        ParitygateError: The job's error, or `job.crash_error` if the child crashed, hung or was killed.
    """
    child = start_child(job, listener=listener)
    events = ChildEvents(child)
    try:
        deadline = time.monotonic() + job.time_limit_s
        if events.reply(deadline, progress) is not None:
            raise garbage_error(child, b"a reply")
        with events.in_time():
            wait_for_end(child, deadline, events.stage)
        if events.pending and child.process.returncode == 0:
            raise garbage_error(child, events.pending)
    finally:
        # Whatever ends the wait, Ctrl-C included, no child is left behind.
        stop_child(child)
    if listener is not None and child.result.is_file():
        # Also after an error: what was read shows why something does not run here.
        listener.add_of_python(_outcome(child).get("read"))
    return result_of_child(child, events.stage)


# Written last: its folder then has all outputs of a job's models.
ANSWERS_FILE = "answers.json"
# Its key for the samples that ran; null where these must be read again.
SAMPLES = "samples"


class ModelAnswers(Struct, frozen=True, kw_only=True):
    """Outputs of a job's models, cached apart because many arguments of the job do not change them."""

    folder: Path  # where the job writes or finds them
    asked: Mapping[str, Any]  # all arguments that they depend on, JSON data
    needs_own_code: bool  # code of the user judges them


class DoJob(Protocol):
    """Does a job in a child process, or reuses its result."""

    def __call__(
        self,
        job: ChildJob,
        progress: Progress,
        *,
        makes: Sequence[Path] = (),
        is_kept: Callable[[Any], bool] = lambda _: True,
        answers: ModelAnswers | None = None,
    ) -> Any:  # noqa: ANN401 - the job's JSON
        """Return the job's result.

        The job writes files into the folders `makes`. `is_kept` decides whether a later run may reuse a result.
        `answers` are outputs of its models that may be cached apart.
        """


def do_job(job: ChildJob, progress: Progress, **_: object) -> Any:  # noqa: ANN401 - the job's JSON
    """Do a job in a child process, without any cache; raises as `run_child`."""
    return run_child(job, progress)


def run_here(job: ChildJob, progress: Progress = lambda *_: None) -> Any:  # noqa: ANN401 - the job's JSON
    """Run the job in this process, because it needs an object that no other has, and return its result.

    There is no time limit, and a crash ends this process.

    Raises:
        ParitygateError: The job's error, or `job.crash_error` for any other exception.
    """
    from paritygate.pipelines.process.telemetry import sending_nothing

    try:
        with sending_nothing():
            return importlib.import_module(JOBS[job.name]).run(job.all_args, progress)
    except ParitygateError:
        raise
    except Exception as err:
        msg = f"{job.what} failed: {in_one_line(err)}"
        raise job.crash_error(msg, hint="see the original exception for the place") from err


def start_child(job: ChildJob, *, inherited: Sequence[int] = (), listener: Listener | None = None) -> StartedChild:
    """Start the job in a child process, which the caller must end with `stop_child`.

    The child keeps the file descriptors `inherited`. `listener` records what it reads.

    Raises:
        StorageError: The job's folder cannot be written.
    """
    with storage_errors(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        result = job.folder / f"{job.name}.result.json"
        result.unlink(missing_ok=True)
        request = job.folder / f"{job.name}.job.json"
        request_data: dict[str, Any] = {"job": job.name, "args": job.all_args, "result": str(result)}
        if listener is not None:
            request_data["notes"] = listener.notes.childs_end
            inherited = (*inherited, *listener.inherited)
        request.write_text(json.dumps(request_data))
    read_end, write_end = os.pipe()
    command = [*_python(), "-c", _START, _PLACE, str(os.getpid()), str(request), str(write_end)]
    if listener is not None:
        # Only runs with a cache record what a job reads.
        from paritygate.pipelines.process.file_access.seccomp_filter import watched

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
                env={**job.environment, **environment_of_job(job.name)},
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
    """Return the environment variables of a child for a job; those of the user win."""
    passive = {} if name == _BENCHMARK else _PASSIVE
    return {**passive, **_ENVIRONMENT_OF_JOB.get(name, {}), **environment_of_child()}


def environment_of_child() -> dict[str, str]:
    """Return the environment variables of a child for any job."""
    # As a whole: where this process is itself watched, reading one by one would record all of them.
    own = {os.fsdecode(name): os.fsdecode(value) for name, value in os.environ._data.items()}  # type: ignore[attr-defined]  # noqa: SLF001 - as said
    # No code of a model sees it, and no key of the cache depends on it.
    own.pop(SIGNING_PASSWORD, None)
    # For Python, an empty one is as good as none.
    if own.get("PYTHONPATH") == "":
        del own["PYTHONPATH"]
    return {**own, **_ENVIRONMENT}


def _python() -> list[str]:
    # Python 3.11 and above can leave the current directory off the path from the start.
    is_safe = ["-P"] if sys.version_info >= (3, 11) else []
    # Bytecode must match its source.
    return [sys.executable, *is_safe, "--check-hash-based-pycs", "always"]


def stop_child(child: StartedChild, *, at_once: bool = False) -> None:
    """End the child, if it still runs, and all its processes; `at_once` gives it no time to tidy up."""
    if child.events.closed:
        return
    leader = child.process.pid
    if child.process.poll() is None:
        # Processes in other sessions are found by their parents, while those live.
        _kill_each(pid for pid, member in family_of(leader).items() if member.session != leader)
        _end(child.process, (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL))
    _kill_group(leader, signal.SIGKILL)
    # It may have made process groups. Its own id may be another process's by now.
    _kill_each(pid for pid, member in family_of(leader).items() if pid != leader == member.session)
    child.events.close()


class ChildEvents:
    """Progress and replies of a child: the `stage` of its last progress, and a `pending` line without its end."""

    def __init__(self, child: StartedChild) -> None:
        self._child = child
        self.pending = b""
        self.stage = ""

    def reply(self, deadline: float, progress: Progress) -> dict[str, Any] | None:
        """Pass progress on until the next reply, and return it; None once the child has ended or closed the pipe.

        Raises:
            ParitygateError: The job's `crash_error` after the deadline, by the monotonic clock, or for garbage.
        """
        child = self._child
        while True:
            line, end, rest = self.pending.partition(b"\n")
            if end:
                self.pending = rest
                if (reply := self._parsed(line, progress)) is not None:
                    return reply
                continue
            with self.in_time():
                part = receive(child, deadline, self.stage)
            if not part:
                return None
            if len(line) > _LONGEST_LINE:
                raise garbage_error(child, line)
            self.pending += part

    def _parsed(self, line: bytes, progress: Progress) -> dict[str, Any] | None:
        """Return the reply in a line; None for progress, which is passed on."""
        try:
            data = json.loads(line)
            if "reply" in data:
                return dict(data["reply"])
            self.stage, done, total = str(data["stage"]), int(data["done"]), int(data["total"])
        except NOT_OURS:
            raise garbage_error(self._child, line) from None
        progress(self.stage, done, total)
        return None

    @contextlib.contextmanager
    def in_time(self) -> Iterator[None]:
        """End the child after a TimeoutError inside, and raise its job's error."""
        job = self._child.job
        try:
            yield
        except TimeoutError:
            stop_child(self._child)
            late = f"did not end within {job.time_limit_s:g} s and was stopped{_during(self.stage)}"
            raise job.crash_error(
                f"{job.what} {late}{_last_lines(job)}",
                hint=f"give it more time with --time-limit SECONDS, or {_SEE[job.is_log_kept]}",
            ) from None


def garbage_error(child: StartedChild, garbage: bytes) -> ParitygateError:
    """End the child, and return the error that others wrote into its pipe."""
    stop_child(child)
    shown = garbage[:_SHOWN_OF_GARBAGE].decode(errors="replace")
    msg = f"{child.job.what} failed: other code than paritygate wrote {shown!r} into its pipe{_last_lines(child.job)}"
    return child.job.crash_error(msg, hint=HINT_OF_GARBAGE)


def receive(child: StartedChild, deadline: float, stage: str) -> bytes:
    """Return the next bytes of the child's events; empty once it has ended or closed the pipe.

    `deadline` is by the monotonic clock, and `stage` is for messages.

    Raises:
        TimeoutError: The deadline has passed.
        ParitygateError: It exceeds its memory limit; then it is ended.
    """
    pipe = child.events.fileno()
    while True:
        # At its end, the pipe has everything that it wrote.
        has_ended = child.process.poll() is not None
        if select.select([pipe], [], [], 0 if has_ended else _time_to_look(child, deadline, stage))[0]:
            return os.read(pipe, _PART_BYTES)
        if has_ended:
            return b""


def wait_for_end(child: StartedChild, deadline: float, stage: str) -> None:
    """Wait until the child has ended, even if its own children have not.

    Raises:
        TimeoutError: The deadline has passed.
        ParitygateError: It exceeds its memory limit; then it is ended.
    """
    # Nearly always it closed its pipes by ending.
    wait = _FIRST_LOOK_S
    while child.process.poll() is None:
        time.sleep(min(wait, _time_to_look(child, deadline, stage)))
        wait *= 2


def _time_to_look(child: StartedChild, deadline: float, stage: str) -> float:
    """Return how long to wait for a running child; raises as `receive`."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    check_memory(child, child.memory.excess(), stage)
    return min(left, _LOOK_EVERY_S)


def check_memory(child: StartedChild, excess: int | None, stage: str) -> None:
    """End a child that exceeds its memory limit, by the `excess` of its `MemoryWatch`, and raise the job's error."""
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
    return "".join(f"\n  | {line[:300]}" for line in lines) + (f"\n  log: {job.log}" if job.is_log_kept else "")


def _log_lines(job: ChildJob) -> list[str]:
    # Python underlines with carets what raised an error.
    return [line.strip() for line in _end_of_log(job).splitlines() if line.strip(" \t~^")]


def _end_as_cause(job: ChildJob) -> RuntimeError:
    return RuntimeError(f"in the job's process:\n{_end_of_log(job)}")


def _end_of_log(job: ChildJob) -> str:
    try:
        with job.log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _LOG_BYTES))
            # Before its lines are cut, because a part of an address does not look like one.
            return without_secrets(stream.read().decode(errors="replace"))
    except OSError:
        return ""


def result_of_child(child: StartedChild, stage: str) -> Any:  # noqa: ANN401 - the job's JSON
    """Return the result of a child that has ended; `stage` is for messages.

    Raises:
        ParitygateError: The job's error, or its `crash_error` if the child crashed or was killed.
    """
    job, path = child.job, child.result
    if not path.is_file():
        _check_room(job.folder)
        msg = f"{job.what} {_ending(child.process.returncode)}{_during(stage)}{_lines_of_crash(job)}"
        hint = f"{_SEE[job.is_log_kept]}{'; the other variants are not affected' if job.is_log_kept else ''}"
        killed = job.killed_error if child.process.returncode < 0 else None
        raise (killed or job.crash_error)(msg, hint=hint) from _end_as_cause(job)
    outcome = _outcome(child)
    if outcome["status"] == "ok":
        return outcome["value"]
    if outcome["status"] == "crash":
        _check_room(job.folder)
        # The line of the user's code is enough; what led there is in the log, and in what --debug prints.
        lines = [] if outcome["is_of_user"] else _log_lines(job)[-_LOG_LINES:]
        msg = f"{job.what} failed{_during(stage)}: {outcome['message']}{_shown(job, lines)}"
        hint = f"{_SEE[job.is_log_kept]} for the whole traceback"
        if outcome["is_of_user"]:
            where = "its traceback is in the log, and --debug before the command prints it"
            hint = (
                f"correct your code; {where if job.is_log_kept else '--debug before the command prints its traceback'}"
            )
        raise job.crash_error(msg, hint=hint) from _end_as_cause(job)
    kind = getattr(paritygate.errors, str(outcome["class"]), None)
    if not (isinstance(kind, type) and issubclass(kind, ParitygateError)):
        kind = job.crash_error
    message, step = str(outcome["message"]), {key: str(outcome[key]) for key in ("hint", "command")}
    if kind is UnsupportedOperatorsError:
        with reading_result(job):
            rows = [(str(a), str(b), str(c), str(d)) for a, b, c, d in outcome["rows"]]
        raise UnsupportedOperatorsError(message, rows=rows, hint=step["hint"], command=step["command"])
    raise kind(message, **step) from _end_as_cause(job)


def _outcome(child: StartedChild) -> dict[str, Any]:
    """Return the child's result file, or raise the job's error if paritygate did not write it."""
    try:
        outcome = json.loads(child.result.read_bytes())
        if isinstance(outcome, dict) and _OUTCOMES[outcome["status"]] <= outcome.keys():
            return outcome
    except NOT_OURS:
        pass
    msg = f"{child.job.what} left a result that paritygate did not write: {child.result}{_last_lines(child.job)}"
    raise child.job.crash_error(msg, hint=HINT_OF_GARBAGE)


def _check_room(folder: Path) -> None:
    """Raise a `StorageError` if the disk is full, because frameworks report that in many ways."""
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
