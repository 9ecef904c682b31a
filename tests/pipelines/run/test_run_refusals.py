"""What a run refuses or survives: bad inputs, bad references, converters that hang or crash, a full disk, signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.processes import is_alive, wait_until
from tests.small_disk import small_disk_at

from paritygate.files import MARKER

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

# The child says where it is; what it was asked to do is the name of its request file.
_SLOW = """
import json
import os
import pathlib
import sys
import time

import numpy as np

from paritygate.batch import Batch


def wait_if_told():
    told = pathlib.Path(__file__).with_name("slow")
    if told.is_file() and pathlib.Path(sys.argv[1]).name.startswith(told.read_text()):
        pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
        time.sleep(600)


def samples():
    wait_if_told()
    x = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    yield Batch(inputs={"x": x}, ids=[str(row) for row in range(120)])
"""
_HANGS = """
import pathlib
import time

print("about to hang", flush=True)
pathlib.Path(__file__).with_name("hangs").touch()
time.sleep(600)
"""
_SLOW_SOURCE = """
import slow

slow.wait_if_told()
model = None
"""


@pytest.mark.parametrize("command", ["run", "export"])
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"model": {"name": "tiny", "source": "absent.onnx"}}, "absent.onnx does not exist"),
        ({"model": {"name": "tiny", "source": "modle.onnx"}}, "does not exist: did you mean 'model.onnx'?"),
        ({"samples": {"source": "input.npz"}}, "input.npz do not exist: did you mean 'inputs.npz'?"),
        ({"samples": {"source": "absent.npz"}}, "absent.npz do not exist"),
        ({"tolerence": {}}, "tolerence: unknown key"),
    ],
)
def test_what_is_not_there_or_misspelt_is_wrong_usage_before_any_work(
    desk: Desk, command: str, parts: dict[str, object], message: str
) -> None:
    called = desk.call(command, desk.spec(**parts))

    assert called.code == 2
    assert f"{message}" in called.err
    assert called.err.startswith("error: ")
    assert "\nhint: " in called.err
    assert not (desk.folder / "artifacts").exists()


@pytest.mark.parametrize("command", ["run", "export"])
def test_a_samples_file_of_the_command_line_that_is_not_there_is_wrong_usage(desk: Desk, command: str) -> None:
    called = desk.call(command, "spec.yaml", "--samples", "absent.npz")

    assert called.code == 2
    assert "error: samples absent.npz do not exist" in called.err
    assert not (desk.folder / "artifacts").exists()


def test_an_unknown_packaged_spec_is_wrong_usage(desk: Desk) -> None:
    called = desk.call("run", "--verbose", "klue-st")

    assert called.code == 2
    assert called.err == "error: no file or packaged spec is named 'klue-st'\nhint: did you mean 'klue-sts'?\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"spec": {}}', "holds a run of another version of paritygate (schema None, supported: 2)"),
        ('{"schema": 99, "spec": {}}', "holds a run of another version of paritygate (schema 99, supported: 2)"),
        ("[]", "spec.json is corrupt: list indices"),
        ("{}", "spec.json is corrupt: 'spec'"),
    ],
)
def test_a_run_of_another_version_and_one_that_is_damaged_are_told_apart(desk: Desk, text: str, words: str) -> None:
    assert desk.call("export", "spec.yaml").code == 0
    (desk.run_folder / "spec.json").write_text(text, encoding="utf-8")

    called = desk.call("choose", "--run", str(desk.run_folder))

    assert called.code == 2
    assert words in called.err


def test_a_corrupt_onnx_source_is_an_input_error(desk: Desk) -> None:
    (desk.folder / "model.onnx").write_bytes(b"\x08\x09 this is not a model" * 100)

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == called.data["exit_code"] == 2, str(called)
    assert "model.onnx" in called.err
    assert called.err.count("error: ") == 1, "said once, not for every variant"
    assert desk.releases == []


def test_empty_samples_are_not_measured(desk: Desk) -> None:
    desk.samples(0)

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 2
    assert called.data["runs"][0]["error"]["kind"] == "InputFileError"
    assert desk.releases == []


@pytest.mark.parametrize(
    ("fill", "words"), [(float("nan"), "values that are NaN or infinite"), (0.0, "the reference is refused")]
)
def test_a_reference_that_is_not_finite_or_constant_is_refused(desk: Desk, fill: float, words: str) -> None:
    desk.onnx(fill=fill)

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 5
    assert called.data["runs"][0]["error"]["kind"] == "ReferenceRefusedError"
    assert words in called.err
    assert desk.releases == []


def test_damaged_samples_are_an_input_error(desk: Desk) -> None:
    (desk.folder / "inputs.npz").write_bytes(b"PK\x03\x04 no archive")

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 2, str(called)
    assert "inputs.npz" in called.err
    assert desk.releases == []


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        *(
            pytest.param(text, 4, words, marks=pytest.mark.children)
            for text, words in (
                ("import ctypes\nctypes.string_at(0)", "was killed by SIGSEGV, a crash in native code"),
                ("import os\nos.kill(os.getpid(), 9)", "was killed by SIGKILL, as when memory runs out"),
                ("import sys\nsys.exit(0)", "ended with exit code 0 and left no result"),
                ("1 / 0", "ZeroDivisionError: division by zero"),
            )
        ),
        ("import absent_framework", 2, "net.py:1 needs the module 'absent_framework', which is not installed"),
        ("def model(:", 2, "the syntax of net.py:1 is wrong"),
        ("wrong = 1", 2, "module 'net' has no 'model'"),
        ("model = 7", 2, "'net:model' is an int, neither a model nor a function"),
        ("def model():\n    return 7", 2, "the callable returned a builtins.int, which is not a model"),
        (
            "def model(arrays):\n    return arrays",
            2,
            "net:model is a function with an argument",
        ),
    ],
)
def test_a_source_that_crashes_or_is_no_model_ends_the_export_alone(
    desk: Desk, text: str, code: int, words: str
) -> None:
    desk.module("net", text)

    called = desk.call("export", "--verbose", desk.module_spec("net:model"))

    assert called.code == code, str(called)
    assert words in called.err
    assert "hint: " in called.err
    if code == 4:
        assert "error: onnx-fp32: the conversion of tiny to onnx-fp32" in called.err
        assert f"log: {desk.run_folder}/jobs/export-onnx-fp32/export.log" in called.err
        assert not (desk.run_folder / "onnx-fp32").exists()
        assert not list(desk.run_folder.glob(".*.partial"))
    else:
        assert desk.runs == []


@pytest.mark.children
def test_a_converter_that_hangs_is_stopped(desk: Desk, time_is_over_once: Callable[[Path], None]) -> None:
    desk.module("net", _HANGS)
    time_is_over_once(desk.folder / "hangs")

    called = desk.json("export", "--verbose", desk.module_spec("net:model"), "--time-limit", "600")

    assert called.code == called.data["exit_code"] == 4
    failure = called.data["failures"]["onnx-fp32"]
    assert failure["message"].startswith(
        "the conversion of tiny to onnx-fp32 did not end within 600 s and was stopped while loading the source"
    )
    assert "| about to hang" in failure["message"]
    assert "--time-limit" in failure["hint"]
    assert called.data["artifacts"] == {}


@pytest.mark.children
def test_a_reference_that_hangs_is_not_measured(desk: Desk, time_is_over_once: Callable[[Path], None]) -> None:
    desk.module("slow", _SLOW)
    (desk.folder / "slow").write_text("record")
    spec = desk.spec(samples={"source": "slow:samples"})
    assert desk.call("export", "--verbose", spec).code == 0

    time_is_over_once(desk.folder / "pid")

    called = desk.call("record", "--run", str(desk.run_folder), "--time-limit", "600")

    assert called.code == 5
    assert "the recording of tiny did not end within 600 s and was stopped" in called.err
    assert not (desk.run_folder / "reference").exists()
    assert not (desk.run_folder / ".reference.partial").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the mount point of a filesystem of 256 KiB."""
    with small_disk_at(tmp_path / "disk", "256k") as folder:
        yield folder


@pytest.mark.children
@pytest.mark.parametrize("free", [0, 16384, 65536])
@pytest.mark.thorough
def test_a_full_disk_is_said_and_leaves_no_half_release(desk: Desk, small_disk: Path, free: int) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(max(0, shutil.disk_usage(small_disk).free - free)))

    called = desk.call("run", "--verbose", "spec.yaml", "--root", str(small_disk / "root"))

    assert called.code == 5, str(called)
    assert "the disk is full: " in called.err
    assert "hint: free space there, or choose another place with --root" in called.err
    repository = small_disk / "root/repository"
    assert not list(repository.glob("store/*/*"))
    assert not list(repository.glob("log/*/*"))
    assert not list(repository.glob("staging/*"))


@pytest.mark.children
@pytest.mark.parametrize("what", ["model", "outputs"])
def test_what_a_child_writes_may_fill_the_disk(desk: Desk, small_disk: Path, what: str) -> None:
    if what == "model":
        desk.onnx(width=100_000)
    else:
        desk.samples(40_000)

    called = desk.call("export" if what == "model" else "run", "spec.yaml", "--root", str(small_disk / "root"))

    assert called.code == 5, str(called)
    assert "the disk is full: " in called.err
    assert "hint: free space there, or choose another place with --root" in called.err
    assert not (small_disk / "root/repository").exists()


_LIMITED = """
import resource
import sys

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from paritygate.__main__ import main

main(["run", "spec.yaml"])
"""


@pytest.mark.parametrize("limit", [1, 20000])
def test_files_that_may_not_grow_are_said_and_leave_no_half_release(desk: Desk, limit: int) -> None:
    # Python cuts off the bytecode of what it imports at the limit, and then reads it for good.
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _LIMITED, str(limit)]
    done = subprocess.run(command, cwd=desk.folder, env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 5, done.stderr
    assert "could not be written: File too large\nhint: " in done.stderr
    assert desk.releases == []


def _start(desk: Desk) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "paritygate", "run", "spec.yaml"],
        cwd=desk.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _pid_of_child(desk: Desk) -> int:
    path = desk.folder / "pid"
    wait_until(lambda: path.is_file() and bool(path.read_text()))
    return int(path.read_text())


@pytest.mark.parametrize(
    ("stage", "number", "code", "word"),
    [
        ("export", signal.SIGINT, 130, "interrupted"),
        pytest.param("record", signal.SIGINT, 130, "interrupted", marks=pytest.mark.thorough),
        ("compare", signal.SIGINT, 130, "interrupted"),
        ("compare", signal.SIGTERM, 143, "terminated"),
    ],
)
def test_a_signal_ends_the_child_and_leaves_a_state_that_the_next_run_works_on(
    desk: Desk, stage: str, number: signal.Signals, code: int, word: str
) -> None:
    desk.module("slow", _SLOW)
    desk.module("net", _SLOW_SOURCE)
    (desk.folder / "slow").write_text(stage)
    if stage == "export":
        desk.module_spec("net:model")
    else:
        desk.spec(samples={"source": "slow:samples"})

    process = _start(desk)
    child = _pid_of_child(desk)
    process.send_signal(number)
    _, err = process.communicate(timeout=600)

    assert process.returncode == code, err
    left = "nothing was published in part, and what was finished is kept"
    after = "next: the same command starts again, since nothing is cached"
    assert err.splitlines()[-2:] == [f"{word}: {left}", after]
    assert "Traceback" not in err
    assert not is_alive(child)
    assert desk.releases == []
    assert not list(desk.run_folder.glob(".*.partial"))
    assert json.loads((desk.run_folder / "stopped.json").read_bytes())["exit_code"] == 130
    (desk.folder / "slow").unlink()
    desk.spec(samples={"source": "slow:samples"})
    if (stage, number) == ("compare", signal.SIGINT):
        assert desk.call("run", "--verbose", "spec.yaml").code == 0
        assert desk.releases == ["tiny/1"]


_INTERRUPTED_RELEASE = """
import json
import os
import signal
import sys

from paritygate.__main__ import main
from paritygate.pipelines.release.repository import release
from paritygate.pipelines.release.stores import disk

place = {{"publish": disk.DiskStore, "fsync_tree": disk}}.get("{function}", release)
whole = place.{function}

def interrupted(*args, **options):
    os.kill(os.getpid(), signal.{number})
    return whole(*args, **options)

place.{function} = interrupted
main(["promote", "--run", sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("function", "number", "code"),
    [("fsync_tree", "SIGINT", 130), ("publish", "SIGINT", 130), ("append_record", "SIGTERM", 143)],
)
def test_a_signal_while_releasing_leaves_no_half_release(
    finished: Desk, tmp_path: Path, function: str, number: str, code: int
) -> None:
    desk = finished.copy(tmp_path)
    # What exists already would not be released again.
    shutil.rmtree(desk.folder / "artifacts/repository")
    before = desk.releases

    script = _INTERRUPTED_RELEASE.format(function=function, number=number)
    done = subprocess.run(
        [sys.executable, "-c", script, str(desk.run_folder)],
        cwd=desk.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stderr
    assert "nothing was published in part" in done.stderr
    assert desk.releases == before == []
    assert desk.call("promote", "--verbose", "--run", str(desk.run_folder)).code == 0
    assert len(desk.releases) == 1


def test_folders_that_are_not_ours_are_left_alone(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    theirs = desk.run_folder / "reference"
    (theirs / MARKER).unlink()
    (theirs / "notes.txt").write_text("mine")

    called = desk.call("record", "--run", str(desk.run_folder))

    assert called.code == 2
    assert "was not made by paritygate, so it is not overwritten" in called.err
    assert (theirs / "notes.txt").read_text() == "mine"


@pytest.mark.thorough
def test_two_runs_at_the_same_time_that_find_the_same_release_one_version(desk: Desk) -> None:
    processes = [_start(desk) for _ in range(2)]
    codes: list[int] = []

    def wait(process: subprocess.Popen[str]) -> None:
        process.communicate(timeout=600)
        codes.append(process.returncode)

    threads = [threading.Thread(target=wait, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == [0, 0]
    assert len(desk.releases) == 1


def test_samples_whose_rows_change_between_record_and_validate_are_not_measured(desk: Desk) -> None:
    assert desk.call("export", "--verbose", "spec.yaml").code == 0
    run = str(desk.run_folder)
    assert desk.call("record", "--run", run).code == 0
    values = np.load(desk.folder / "inputs.npz")["x"].copy()
    values[7, 1] += 1
    np.savez(desk.folder / "inputs.npz", x=values)

    called = desk.json("validate", "--verbose", "--run", run)

    assert called.code == 5, str(called)
    assert "samples" in called.err
    assert desk.evidence()["variants"][0]["verdict"] == "error"
    assert desk.evidence()["variants"][0]["evidence"] == "none"


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_gpu_that_is_not_there_is_said_before_anything_is_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("paritygate.machine.gpu_of_machine", lambda: None)

    called = desk.call(command, "spec.yaml", "--device", "cuda")

    assert called.code == 5, str(called)
    assert "device 'cuda' was requested, but the CUDA driver shows no GPU to this process" in called.err
    assert not (desk.folder / "artifacts/runs/tiny").exists()
