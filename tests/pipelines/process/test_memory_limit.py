"""A child that holds too much memory, with all that it started, is ended by one clear error; the others go on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.processes import is_alive, wait_until

from paritygate.errors import BackendError, ConversionError, ParitygateError
from paritygate.pipelines.benchmark.worker import Worker
from paritygate.pipelines.process import child, child_memory
from paritygate.pipelines.process.child import ChildJob, run_child
from paritygate.pipelines.process.child_memory import (
    MEMORY_SHARE,
    Member,
    MemoryWatch,
    family_of,
    memory_limit,
    usable_memory,
)

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

pytestmark = pytest.mark.children

_SAMPLES = """
import os
import sys
import time

import numpy as np

from paritygate.batch import Batch


def grow():
    held = []
    for _ in range(8):
        held.append(np.ones(10_000_000))
    time.sleep(600)


def samples():
    if "onnx-fp16" in sys.argv[1]:
        grow()
    x = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    yield Batch(inputs={"x": x}, ids=[str(row) for row in range(120)])


def samples_of_a_fork():
    pid = os.fork()
    if not pid:
        grow()
        os._exit(0)
    os.waitpid(pid, 0)
    yield from samples()
"""
# What a child does in these tests in place of a job, which takes seconds to import.
_GROW = """
import time
def grow():
    held = []
    for _ in range(14):
        held.append(bytearray(b"x") * 10_000_000)
    return held
"""
_DONE = """
import json, sys
from pathlib import Path
place = json.loads(Path(sys.argv[3]).read_text())["result"]
Path(place).write_text('{"status": "ok", "value": "done"}')
"""
_IN_ANOTHER_SESSION = (
    _GROW
    + """
import os
from pathlib import Path
pid = os.fork()
if not pid:
    os.setsid()
    # All are ended once it has grown.
    Path("grandchild.pid").write_text(str(os.getpid()))
    held = grow()
    time.sleep(600)
os.waitpid(pid, 0)
"""
    + _DONE
)
_SHARED = (
    """
import os, time
held = bytearray(b"x") * 100_000_000
pids = [os.fork() for _ in range(2)]
time.sleep(1.5)
if 0 in pids:
    os._exit(0)
"""
    + _DONE
)


def _run(
    script: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    limit: int,
    crash_error: type[ParitygateError] = BackendError,
) -> object:
    monkeypatch.setattr(child, "_START", script)
    monkeypatch.chdir(folder)
    with memory_limit(limit):
        return run_child(
            ChildJob(name="x", args={}, folder=folder, what="the job", time_limit_s=600, crash_error=crash_error)
        )


def test_a_comparison_that_holds_too_much_is_an_error_and_the_other_variants_go_on(desk: Desk) -> None:
    desk.onnx()
    desk.module("rows", _SAMPLES)
    spec = desk.spec(samples={"source": "rows:samples"}, targets=["onnx-fp32", "onnx-fp16"], probes="none")

    called = desk.json("run", "--verbose", spec, "--memory-limit", "600MB", "--no-promote")

    (run,) = called.data["runs"]
    assert called.code == 5, str(called)
    assert run["variants"]["onnx-fp32"]["verdict"] == "pass"
    failed = run["variants"]["onnx-fp16"]
    assert (failed["verdict"], failed["exit_code"], failed["error"]["kind"]) == ("error", 5, "BackendError")
    assert re.search(r"held \S+ [GM]B of memory, of 600 MB allowed, and was stopped while", failed["error"]["message"])
    hint = "allow more with --memory-limit SIZE, such as 8GB, or use smaller batches"
    assert failed["error"]["hint"] == hint


def test_what_a_process_holds_that_the_samples_started_counts(
    isolated_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = isolated_bench
    (bench.folder / "rows.py").write_text(_SAMPLES)
    monkeypatch.chdir(bench.folder)

    outcome = bench.compare(
        bench.linear("a"), bench.linear("b"), "--samples", "rows:samples_of_a_fork", "--memory-limit", "0.6 GB"
    )

    assert (outcome.code, outcome.result["verdict"], outcome.result["error"]["kind"]) == (5, "error", "BackendError")
    assert " of memory, of 600 MB allowed, and was stopped while " in outcome.message


def test_a_conversion_that_holds_too_much_is_an_error_of_its_variant(desk: Desk) -> None:
    # However fast the rest is, it is looked at while this waits.
    desk.module("net", "import time\ntime.sleep(600)\nmodel = None\n")

    called = desk.json("export", "--verbose", desk.module_spec("net:model"), "--memory-limit", "1MB")

    assert called.code == called.data["exit_code"] == 4
    message = called.data["failures"]["onnx-fp32"]["message"]
    assert re.match(
        r"the conversion of tiny to onnx-fp32 held \S+ MB of memory, of 1 MB allowed, and was stopped", message
    )


def test_a_worker_of_a_benchmark_that_holds_too_much_is_stopped(finished: Desk, tmp_path: Path) -> None:
    from paritygate.models.source import SourceKind
    from paritygate.pipelines.benchmark.worker import WorkerJob
    from paritygate.pipelines.compare.models import artifact_model
    from paritygate.pipelines.run.workspace import open_run

    run = open_run(finished.run_folder)
    job = WorkerJob(
        model=artifact_model(run.artifact("onnx-fp32")),
        kind=SourceKind.ONNX,
        samples=run.resolved.samples(run.samples_path),
        batch_sizes=(1,),
        device="cpu",
        folder=tmp_path / "job",
        time_limit_s=600,
    )
    with memory_limit(1_000_000):
        worker = Worker(job)
    try:
        with pytest.raises(BackendError, match=r"of memory, of 1 MB allowed, and was stopped while"):
            worker.loaded()
    finally:
        worker.close()


def test_a_process_in_another_session_counts_and_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConversionError, match=r"the job held 1\d\d MB of memory, of 100 MB allowed, and was stopped"):
        _run(_IN_ANOTHER_SESSION, tmp_path, monkeypatch, limit=100_000_000, crash_error=ConversionError)

    grandchild = int((tmp_path / "grandchild.pid").read_text())
    wait_until(lambda: not is_alive(grandchild))


def test_what_processes_share_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Four processes of 100 MB each, which are the same ones. They are looked at one after the other, as some may end.
    assert _run(_SHARED, tmp_path, monkeypatch, limit=300_000_000) == "done"


def test_a_process_that_ends_during_a_look_holds_nothing() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert child_memory._proportional(ended.pid, Member(session=1, resident=100_000_000)) == 0
    assert child_memory._proportional(os.getpid(), Member(session=1, resident=0)) > 0


def test_where_the_part_of_a_process_is_not_to_be_read_all_of_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a kernel that has no such file.
    (tmp_path / "7").mkdir()
    monkeypatch.setattr(child_memory, "_PROC", tmp_path)

    assert child_memory._proportional(7, Member(session=7, resident=5)) == 5


def test_a_child_within_its_limit_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(_GROW + "grow()\n" + _DONE, tmp_path, monkeypatch, limit=2_000_000_000) == "done"


def test_the_default_is_a_share_of_what_the_machine_has() -> None:
    watch = MemoryWatch(os.getpid())

    assert watch.limit == int(usable_memory() * MEMORY_SHARE)
    assert 0 < watch.limit < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert watch.excess() is None


def test_this_process_is_in_its_own_family() -> None:
    family = family_of(os.getpid())

    assert family[os.getpid()].session == os.getsid(0)
    assert family[os.getpid()].resident > 10_000_000


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/a/b", {"a/memory.max": "3000000", "a/b/memory.max": "max"}, 3_000_000),
        ("0::/", {"memory.max": "max"}, None),
        ("0::/not/seen/inside", {"memory.max": "2000000"}, 2_000_000),
        ("4:cpu,memory:/docker/1\n0::/", {"memory/memory.limit_in_bytes": "5000000"}, 5_000_000),
        ("4:memory:/x", {"memory/x/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("3:cpu:/x", {"x/memory.max": "1000000"}, None),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines + "\n")
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(child_memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(child_memory, "_CGROUPS", tmp_path / "cgroup")

    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert usable_memory() == (whole if expected is None else expected)


@pytest.mark.parametrize(
    "command", ["run", "validate", "compare", "export", "record", "build", "selftest", "benchmark"]
)
def test_every_command_that_starts_children_has_the_limit(desk: Desk, command: str) -> None:
    called = desk.call(command, "--help")

    words = " ".join(called.out.split())
    assert "--memory-limit SIZE" in words
    assert "[default: (80% of the memory of the machine or container)]" in words


@pytest.mark.parametrize("value", ["8", "0GB", "-1GB", "8 G", "much", "1e3GB", "0.0000000001kB"])
def test_a_limit_that_is_no_size_is_wrong_usage(desk: Desk, value: str) -> None:
    called = desk.call("export", "--verbose", "spec.yaml", f"--memory-limit={value}")

    assert called.code == 2
    assert (
        f"{value!r} is not a size (allowed: a number above 0 with kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 8GB)"
        in " ".join(called.err.split())
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("8GB", 8 * 10**9), ("8 gib", 8 * 2**30), ("1.5MB", 1_500_000), ("2kB", 2000)]
)
def test_a_size_is_read_with_its_unit(desk: Desk, monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    seen: list[int] = []

    def look(*args: object, **kwargs: object) -> None:
        del args, kwargs
        seen.append(MemoryWatch(os.getpid()).limit)
        msg = "seen"
        raise BackendError(msg)

    monkeypatch.setattr("paritygate.pipelines.process.child.run_child", look)
    desk.onnx()
    (desk.folder / "other.onnx").write_bytes((desk.folder / "model.onnx").read_bytes() + b"\x2a\x00")
    desk.call("compare", "model.onnx", "other.onnx", "--samples", "inputs.npz", "--memory-limit", text)

    assert seen == [expected]
    # It holds for the one command.
    assert MemoryWatch(os.getpid()).limit == int(usable_memory() * MEMORY_SHARE)
