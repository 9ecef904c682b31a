"""A comparison runs in a child process: whatever happens there ends in a message, an exit code and no leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.processes import is_alive, wait_until
from tests.small_disk import small_disk_at

from paritygate.errors import BackendError, ConversionError
from paritygate.pipelines.process.child import ChildJob, environment_of_job, run_child
from paritygate.pipelines.process.child_main import JOBS

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

pytestmark = pytest.mark.children

_MODULE = """
import ctypes
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from paritygate.batch import Batch


def _good() -> Iterator[Batch]:
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    yield Batch(inputs={"x": x}, ids=[f"r{row}" for row in range(8)])


def segfault() -> Iterator[Batch]:
    yield from _good()
    ctypes.string_at(0)


def killed() -> Iterator[Batch]:
    yield from _good()
    os.kill(os.getpid(), signal.SIGKILL)


def raising() -> Iterator[Batch]:
    yield from _good()
    raise RuntimeError("the samples ran dry\\nand this is the second line")


def talking() -> Iterator[Batch]:
    for number in range(20_000):
        print("a line that nobody wants to read", number)
        print("another one on standard error", number, file=sys.stderr)
    yield from _good()


def talking_binary() -> Iterator[Batch]:
    os.write(1, bytes(range(256)) * 400)
    raise RuntimeError("after noise")


def _write_whole(name: str, text: str) -> None:
    # Who waits for the file may end this process at once.
    Path("written").write_text(text)
    os.replace("written", name)


def hanging() -> Iterator[Batch]:
    yield from _good()
    _write_whole("child.pid", str(os.getpid()))
    time.sleep(600)


def deaf() -> Iterator[Batch]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield from hanging()


def with_child() -> Iterator[Batch]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("grandchild.pid").write_text(str(process.pid))
    yield from hanging()


def forking() -> Iterator[Batch]:
    pid = os.fork()
    if not pid:
        time.sleep(600)
    Path("grandchild.pid").write_text(str(pid))
    yield from _good()


def forked_twice() -> Iterator[Batch]:
    if not os.fork():
        time.sleep(0.5)
    yield from _good()


def _add(number: int) -> int:
    return number + 1


def of_many_processes() -> Iterator[Batch]:
    context = multiprocessing.get_context("fork")
    left_behind = context.Process(target=time.sleep, args=(600,))
    left_behind.start()
    Path("grandchild.pid").write_text(str(left_behind.pid))
    with context.Pool(2) as pool:
        assert pool.map(_add, [1, 2]) == [2, 3]
    yield from _good()


def _pipes() -> Iterator[int]:
    for descriptor in range(3, 256):
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                yield descriptor
        except OSError:
            pass


def _write_garbage(garbage: bytes) -> Iterator[Batch]:
    for descriptor in _pipes():
        os.write(descriptor, garbage)
    yield from _good()


def garbage() -> Iterator[Batch]:
    return _write_garbage(b"\\xff\\x1b[31mgarbage\\n")


def garbage_in_json() -> Iterator[Batch]:
    return _write_garbage(b'["stage"]\\n')


def garbage_without_end() -> Iterator[Batch]:
    for descriptor in _pipes():
        for _ in range(64):
            os.write(descriptor, bytes(65536))
    yield from _good()


def closing() -> Iterator[Batch]:
    os.closerange(3, 256)
    yield from _good()
"""


@pytest.fixture
def misbehave(isolated_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Return a function that compares on samples of the module above, with temporary files in a folder of its own."""
    bench = isolated_bench
    (bench.folder / "samples_that.py").write_text(_MODULE)
    monkeypatch.chdir(bench.folder)
    sides = bench.linear("a"), bench.linear("b")
    return lambda name, *options: bench.compare(*sides, "--samples", f"samples_that:{name}", *options)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_the_threads_of_a_child_wait_without_using_a_core_but_in_a_benchmark(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert environment_of_job(job).get("OMP_WAIT_POLICY") == (None if job == "benchmark" else "passive")

    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert environment_of_job(job)["OMP_WAIT_POLICY"] == "active"


def test_an_export_has_a_fixed_seed_of_hashes_and_what_runs_models_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)

    assert environment_of_job("export")["PYTHONHASHSEED"] == "0"
    # By the same seed, a source whose outputs depend on it would equal its export.
    assert not any("PYTHONHASHSEED" in environment_of_job(job) for job in ("record", "compare", "answer"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("segfault", "was killed by SIGSEGV, a crash in native code while running the reference"),
        ("killed", "was killed by SIGKILL, as when memory runs out while running the reference"),
    ],
)
def test_a_child_that_dies_is_an_error_with_its_cause_and_its_log(
    misbehave: Callable[..., Outcome], name: str, message: str
) -> None:
    outcome = misbehave(name)

    assert (outcome.code, outcome.result["verdict"], outcome.result["error"]["kind"]) == (5, "error", "BackendError")
    assert message in outcome.err
    log = Path(outcome.message.rpartition("log: ")[2])
    assert log.is_file()
    assert outcome.check("measured")["status"] == "error"


def test_what_the_users_samples_raise_is_said_to_be_theirs(misbehave: Callable[..., Outcome]) -> None:
    outcome = misbehave("raising")

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")
    assert "samples 'samples_that:raising' raised RuntimeError: the samples ran dry" in outcome.err
    assert "hint: correct your function or its module" in outcome.err


def test_of_a_crash_in_native_code_the_innermost_frames_are_shown(misbehave: Callable[..., Outcome]) -> None:
    message = misbehave("segfault").message

    shown = re.findall(r"\n  \| (.+)", message)
    title = shown.index("Fatal Python error: Segmentation fault")
    assert re.search(r"ctypes.__init__\.py\", line \d+ in string_at", shown[title + 1])
    assert re.search(r"samples_that\.py\", line \d+ in segfault", shown[title + 2])
    assert len(shown) <= 7
    assert "child_main" not in message


def test_a_child_that_prints_much_is_measured_all_the_same(misbehave: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = misbehave("talking")

    assert outcome.code == 0
    assert "nobody wants to read" not in outcome.out + outcome.err
    # Nothing went wrong, so nothing is kept.
    assert list((tmp_path / "tmp").glob("paritygate-*")) == []


def test_a_log_that_is_no_text_is_shown_as_far_as_it_goes(misbehave: Callable[..., Outcome]) -> None:
    assert "RuntimeError: after noise" in misbehave("talking_binary").message


@pytest.mark.parametrize("name", ["hanging", "deaf"])
def test_a_child_that_hangs_is_stopped_at_the_time_limit(
    misbehave: Callable[..., Outcome],
    time_is_over_once: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    time_is_over_once(tmp_path / "child.pid")
    if name == "deaf":
        # It would use all of it.
        monkeypatch.setattr("paritygate.pipelines.process.child._GRACE_S", 0.1)

    outcome = misbehave(name, "--time-limit", "600")

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")
    assert "did not end within 600 s and was stopped while running the reference" in outcome.err
    assert outcome.result["error"]["hint"].startswith("give it more time with --time-limit SECONDS")
    assert not is_alive(int((tmp_path / "child.pid").read_text()))


def test_what_the_child_started_is_stopped_with_it(
    misbehave: Callable[..., Outcome], time_is_over_once: Callable[[Path], None], tmp_path: Path
) -> None:
    time_is_over_once(tmp_path / "child.pid")

    misbehave("with_child", "--time-limit", "600")

    grandchild = int((tmp_path / "grandchild.pid").read_text())
    wait_until(lambda: not is_alive(grandchild))


@pytest.mark.parametrize("name", ["forking", "of_many_processes"])
def test_samples_that_leave_a_process_behind_are_compared_and_the_process_is_ended(
    misbehave: Callable[..., Outcome], tmp_path: Path, name: str
) -> None:
    outcome = misbehave(name, "--time-limit", "600")

    assert (outcome.code, outcome.result["verdict"]) == (0, "pass"), outcome.err
    grandchild = int((tmp_path / "grandchild.pid").read_text())
    wait_until(lambda: not is_alive(grandchild))


def test_a_fork_that_goes_on_with_the_job_is_ended_and_changes_no_result(misbehave: Callable[..., Outcome]) -> None:
    outcome = misbehave("forked_twice")

    assert (outcome.code, outcome.result["verdict"], outcome.result["rows"]) == (0, "pass", 8), outcome.err


def test_samples_that_close_every_file_are_compared_all_the_same(misbehave: Callable[..., Outcome]) -> None:
    assert misbehave("closing").code == 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("garbage", "'\ufffd\\x1b[31mgarbage'"),
        ("garbage_in_json", """'["stage"]'"""),
        ("garbage_without_end", r"'\x00\x00\x00"),
    ],
)
def test_garbage_in_the_pipe_of_the_progress_is_one_clear_error(
    misbehave: Callable[..., Outcome], name: str, shown: str
) -> None:
    outcome = misbehave(name)

    assert (outcome.code, outcome.result["error"]["kind"]) == (5, "BackendError"), outcome.err
    assert f"failed: other code than paritygate wrote {shown}" in outcome.message
    assert "' into its pipe\n" in outcome.message
    assert outcome.result["error"]["hint"].startswith("code of the model or of the samples writes to files that it did")
    assert outcome.err.count("error: ") <= 1
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    "result",
    ["garbage", "[" * 100_000, "[]", "{}", '{"status": "well"}', '{"status": []}', '{"status": "error", "class": "x"}'],
)
def test_garbage_in_place_of_the_result_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str
) -> None:
    script = "import json, sys; from pathlib import Path\n"
    script += f"Path(json.loads(Path(sys.argv[3]).read_text())['result']).write_text({result!r})"
    monkeypatch.setattr("paritygate.pipelines.process.child._START", script)
    job = ChildJob(name="x", args={}, folder=tmp_path, what="the job", time_limit_s=600, crash_error=BackendError)

    with pytest.raises(BackendError, match=r"the job left a result that paritygate did not write: \S+/x\.result\.json"):
        run_child(job)


def test_an_error_of_a_class_that_is_none_of_ours_is_an_error_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"class": "ExitCode", "message": "what it said", "hint": "again", "command": "convert-and-validate run SPEC"}
    outcome = json.dumps({"status": "error", **said})
    script = "import json, sys; from pathlib import Path\n"
    script += f"Path(json.loads(Path(sys.argv[3]).read_text())['result']).write_text({outcome!r})"
    monkeypatch.setattr("paritygate.pipelines.process.child._START", script)
    job = ChildJob(name="x", args={}, folder=tmp_path, what="the job", time_limit_s=600, crash_error=BackendError)

    with pytest.raises(BackendError, match="what it said") as caught:
        run_child(job)
    assert caught.value.next_step == {"hint": "again", "command": "convert-and-validate run SPEC"}


def test_a_process_in_a_group_of_its_own_is_ended_with_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
import json, os, sys, time
from pathlib import Path
pid = os.fork()
if not pid:
    time.sleep(600)
os.setpgid(pid, pid)
Path(json.loads(Path(sys.argv[3]).read_text())["result"]).write_text(json.dumps({"status": "ok", "value": pid}))
"""
    monkeypatch.setattr("paritygate.pipelines.process.child._START", script)
    job = ChildJob(name="x", args={}, folder=tmp_path, what="the job", time_limit_s=600, crash_error=BackendError)

    left_behind = run_child(job)

    wait_until(lambda: not is_alive(left_behind))


# Starts a child that would sleep for long, says its id and dies: the child is at the very beginning then.
_SHORT_LIVED = """
import os, signal, sys
from pathlib import Path
from paritygate.errors import BackendError
from paritygate.pipelines.process import child
child._START = child._START.replace("main(*sys.argv[1:])", "import time; time.sleep(600)")
started = child.start_child(child.ChildJob(
    name="x", args={}, folder=Path(sys.argv[1]), what="x", time_limit_s=600, crash_error=BackendError
))
print(started.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_whose_parent_dies_at_once_ends_too(tmp_path: Path) -> None:
    tool = subprocess.run([sys.executable, "-c", _SHORT_LIVED, str(tmp_path)], capture_output=True, check=False)

    assert tool.returncode == -signal.SIGKILL, tool.stderr
    child = int(tool.stdout)
    try:
        wait_until(lambda: not is_alive(child))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_an_unexpected_job_is_an_error_of_the_class_that_its_kind_has(tmp_path: Path) -> None:
    job = ChildJob(
        name="no-such-job",
        args={},
        folder=tmp_path,
        what="the job",
        time_limit_s=600,
        crash_error=ConversionError,
    )

    with pytest.raises(ConversionError, match="the job failed: KeyError: 'no-such-job'") as caught:
        run_child(job)

    # The last lines of the log, the traceback's.
    assert re.search(r"(\n  \| .+){3,4}\n  \| KeyError: 'no-such-job'\n  log: ", str(caught.value))


def test_the_result_of_an_earlier_job_is_not_taken_for_that_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "no-such-job.result.json").write_text(json.dumps({"status": "ok", "value": "stale"}))
    job = ChildJob(
        name="no-such-job", args={}, folder=tmp_path, what="the job", time_limit_s=600, crash_error=BackendError
    )

    with pytest.raises(BackendError, match="the job failed"):
        run_child(job)


@contextlib.contextmanager
def _started(bench: Bench, tool: list[str], *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a comparison that hangs; yield the process and the pid of its child, and end both whatever happens."""
    folder = bench.folder
    (folder / "samples_that.py").write_text(_MODULE)
    sides = bench.linear("a"), bench.linear("b")
    process = subprocess.Popen(
        [*tool, "compare", *sides, "--samples", "samples_that:hanging", *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid_file = folder / "child.pid"
    child = 0
    try:
        wait_until(pid_file.exists)
        child = int(pid_file.read_text())
        yield process, child
    finally:
        process.kill()
        process.wait()
        if child and is_alive(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_the_tool_and_its_child_and_leaves_nothing(
    isolated_bench: Bench, tool: list[str], number: signal.Signals, code: int, word: str
) -> None:
    target = isolated_bench.folder / "result.json"
    target.write_text('{"schema_version": 1, "verdict": "pass"}')
    with _started(isolated_bench, tool, "--json", str(target)) as (process, child):
        process.send_signal(number)
        _, err = process.communicate(timeout=600)

        assert process.returncode == code
        assert f"{word}: nothing is kept" in err
        assert "Traceback" not in err
        assert not is_alive(child)
    assert list((isolated_bench.folder / "tmp").glob("paritygate-*")) == []
    # What an earlier comparison had written does not stand for this one.
    assert not target.exists()


def test_the_child_does_not_outlive_a_tool_that_is_killed(isolated_bench: Bench, tool: list[str]) -> None:
    with _started(isolated_bench, tool) as (process, child):
        process.kill()

        wait_until(lambda: not is_alive(child))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--samples", "none.npz"], 2), (["--samples", "empty.npz"], 2), (["--samples", "x.npz", "--precision", "x"], 2)],
)
def test_a_result_of_an_earlier_comparison_never_stands_for_this_one(
    isolated_bench: Bench, tool: list[str], arguments: list[str], code: int
) -> None:
    bench = isolated_bench
    bench.npz("empty.npz", {})
    bench.npz("x.npz", {"x": bench.normal(8, 4)})
    target = bench.folder / "result.json"
    target.write_text('{"schema_version": 1, "verdict": "pass"}')

    process = subprocess.run(
        [*tool, "compare", bench.linear("a"), bench.linear("b"), *arguments, "--json", str(target)],
        cwd=bench.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == code
    assert process.stderr.count("error: ") == 1
    assert not target.exists() or json.loads(target.read_text())["verdict"] == "error"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of 64 KiB."""
    with small_disk_at(tmp_path / "disk", "64k") as folder:
        yield folder


def _compare_with_tmp(bench: Bench, tool: list[str], tmp: Path, *options: str) -> subprocess.CompletedProcess[str]:
    samples = bench.samples(4096)
    return subprocess.run(
        [*tool, "compare", bench.linear("a"), bench.linear("b"), "--samples", samples, "--probes", "none", *options],
        env={**os.environ, "TMPDIR": str(tmp)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_is_full_while_outputs_are_recorded_is_said(
    isolated_bench: Bench, tool: list[str], full_disk: Path
) -> None:
    process = _compare_with_tmp(isolated_bench, tool, full_disk)

    assert process.returncode == 5
    assert "error: the disk is full: " in process.stderr
    assert "Traceback" not in process.stderr


def test_a_result_that_does_not_fit_on_the_disk_is_said(
    isolated_bench: Bench, tool: list[str], full_disk: Path
) -> None:
    with contextlib.suppress(OSError):
        (full_disk / "filler").write_bytes(bytes(1 << 17))

    process = _compare_with_tmp(isolated_bench, tool, isolated_bench.folder, "--json", str(full_disk / "result.json"))

    assert process.returncode == 5
    assert f"error: the disk is full: {full_disk / 'result.json'} could not be written" in process.stderr
    assert "hint: free space there, or name another file with --json" in process.stderr
    assert not (full_disk / "result.json").exists()


def test_a_result_that_cannot_be_written_is_said_before_anything_is_run(isolated_bench: Bench, tool: list[str]) -> None:
    process = _compare_with_tmp(isolated_bench, tool, isolated_bench.folder, "--json", str(isolated_bench.folder))

    assert process.returncode == 2
    assert "--json" in process.stderr


def test_a_reader_that_goes_away_is_no_traceback(isolated_bench: Bench, tool: list[str]) -> None:
    bench = isolated_bench
    samples = ("--samples", bench.samples(), "--probes", "none")
    command = [*tool, "compare", bench.linear("a"), bench.linear("b"), *samples, "--verbose"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read().decode()

    # Not 1, which says that the candidate differs.
    assert process.wait(timeout=600) == 5
    assert "Traceback" not in err
    process.stderr.close()


def test_a_folder_named_like_a_framework_does_not_stand_in_for_it(isolated_bench: Bench, tool: list[str]) -> None:
    bench = isolated_bench
    samples = ("--samples", bench.samples(), "--probes", "none")
    (bench.folder / "onnxruntime.py").write_text("raise RuntimeError('the wrong one')")

    process = subprocess.run(
        [*tool, "compare", bench.linear("a"), bench.linear("b"), *samples],
        cwd=bench.folder,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == 0, process.stderr


def test_progress_goes_to_standard_error_only(isolated_bench: Bench, tool: list[str]) -> None:
    bench = isolated_bench
    samples = ("--samples", bench.samples(), "--probes", "none")
    process = subprocess.run(
        [*tool, "compare", bench.linear("a"), bench.linear("b"), *samples, "--json", "-"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(process.stdout)["verdict"] == "pass"
    assert re.match(r"b\.onnx: compared 32 rows in \d+\.\d s\n", process.stderr)
    assert process.stderr.rstrip().endswith("verdict: pass")
