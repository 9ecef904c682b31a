"""`compare --workers`: the verdict of one shard, whatever happens to the processes on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.processes import is_alive, wait_until

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_OPTIONS = ("--samples", "inputs.npz", "--decision", "output_0:argmax", "--precision", "fp16")
_SLOW = """
    import time

    import numpy as np
    from paritygate.batch import Batch


    def batches():
        x = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
        for number in range(8):
            if IS_SLOW:
                open(f"begun-{time.monotonic_ns()}", "a").close()
                time.sleep(120)
            yield Batch(inputs={"x": x + number}, ids=[f"{number}-{row}" for row in range(16)])
"""


def without_times(data: Any) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data without what differs between two machines."""
    if isinstance(data, dict):
        kept = {name: item for name, item in data.items() if name != "machine" and not name.endswith("seconds")}
        return {name: without_times(item) for name, item in kept.items()}
    return [without_times(item) for item in data] if isinstance(data, list) else data


@pytest.fixture
def recorded(desk: Desk) -> Desk:
    """Return a desk with a recorded reference, and a candidate that is wrong in one row of eight batches."""
    desk.onnx()
    desk.onnx("wrong.onnx", fill=0.5)
    desk.samples()
    assert desk.call("record", "model.onnx", "--samples", "inputs.npz", "--out", "reference").code == 0
    return desk


def _of_one_shard(desk: Desk, *more: str, model: str = "wrong.onnx") -> Any:  # noqa: ANN401 - JSON data
    called = desk.call("compare", "reference", model, *_OPTIONS, *more, "--shard", "1/1", "--out", "part.json")
    assert called.code == 0, called
    return without_times(desk.json("merge", "part.json").data)


@pytest.mark.children
def test_workers_give_the_verdict_of_one_shard_and_keep_their_process(desk: Desk) -> None:
    desk.onnx()
    desk.onnx("wrong.onnx", fill=0.5)
    # Another size of the file, because Python may keep code of the same second and size.
    desk.module("slow", _SLOW.replace("IS_SLOW", "False"))
    samples = ("--samples", "slow:batches")
    assert desk.call("record", "model.onnx", *samples, "--out", "reference").code == 0
    wanted = _of_one_shard(desk, *samples)
    note = "import os, pathlib; pathlib.Path(f'pid-{os.getpid()}').touch()"
    desk.module("slow", _SLOW.replace("IS_SLOW", "False").replace("import time", note, 1))

    called = desk.json("compare", "reference", "wrong.onnx", *_OPTIONS, *samples, "--workers", "2")
    assert called.code == 1, called
    assert without_times(called.data) == wanted
    assert "8 shards" in called.err
    assert 1 <= len(list(desk.folder.glob("pid-*"))) <= 2


@pytest.mark.thorough
@pytest.mark.children
def test_a_worker_that_is_killed_is_replaced_in_the_open_and_leaves_no_folder(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.onnx()
    desk.module("slow", _SLOW.replace("IS_SLOW", "False"))
    samples = ("--samples", "slow:batches")
    assert desk.call("record", "model.onnx", *samples, "--out", "reference").code == 0
    wanted = _of_one_shard(desk, *samples, model="model.onnx")
    killing = _SLOW.replace("import time", "import os\n    import pathlib\n    import signal", 1)
    killing = killing.replace("IS_SLOW", "number == 3 and not pathlib.Path('killed').exists()")
    killing = killing.replace('open(f"begun-{time.monotonic_ns()}", "a").close()', "pathlib.Path('killed').touch()")
    desk.module("slow", killing.replace("time.sleep(120)", "os.kill(os.getpid(), signal.SIGKILL)"))
    (temporary := desk.folder / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    called = desk.json("compare", "reference", "model.onnx", *_OPTIONS, *samples, "--workers", "2")

    notes = called.data["notes"]
    assert without_times({**called.data, "notes": notes[:-1]}) == wanted
    assert notes[-1] == "workers that ended early: 1; others measured their shards again"
    assert called.err.count("SIGKILL") == 1, called.err
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--engine", "processes"), "--workers"),
        (("--workers", "2", "--ray-address", "127.0.0.1:1"), "--engine ray"),
        (("--workers", "2", "--shard", "1/2", "--out", "part.json"), "--shard"),
        (("--workers", "2", "--repair", "repaired"), "--repair"),
    ],
)
def test_what_does_not_go_together_is_refused(recorded: Desk, options: tuple[str, ...], word: str) -> None:
    called = recorded.call("compare", "reference", "wrong.onnx", *_OPTIONS, *options)

    assert called.code == 2
    assert word in called.err


def test_a_model_as_the_reference_is_refused_with_the_command_that_records_it(recorded: Desk) -> None:
    called = recorded.call("compare", "model.onnx", "wrong.onnx", *_OPTIONS, "--workers", "2")

    assert called.code == 2
    assert "record model.onnx" in called.err
    assert "--workers" in called.err
    assert "--shard" not in called.err


def test_ray_that_is_not_installed_is_named_with_its_command(recorded: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    called = recorded.call("compare", "reference", "wrong.onnx", *_OPTIONS, "--engine", "ray", "--workers", "2")

    assert called.code == 5
    assert "[ray]" in called.err


def _jobs_of(driver: int) -> list[int]:
    """Return the processes of shards that the driver has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == driver:
            found.append(int(folder.name))
    return found


def _one_of(choice: np.random.Generator, pids: list[int]) -> list[int]:
    """Return one of the processes by chance; none if there are none."""
    return [int(choice.choice(pids))] if pids else []


@pytest.mark.thorough
@pytest.mark.children
def test_a_shard_that_takes_too_long_is_measured_once(desk: Desk) -> None:
    desk.onnx()
    desk.module("slow", _SLOW.replace("IS_SLOW", "False"))
    assert desk.call("record", "model.onnx", "--samples", "slow:batches", "--out", "reference").code == 0
    desk.module("slow", _SLOW.replace("IS_SLOW", "number == 0"))
    options = ("--samples", "slow:batches", "--workers", "1", "--time-limit", "5")

    assert desk.call("compare", "reference", "model.onnx", *options).code == 5
    assert len(list(desk.folder.glob("begun-*"))) <= 1


@pytest.mark.thorough
def test_nothing_is_lost_where_workers_are_killed(recorded: Desk, tool: list[str]) -> None:
    wanted = _of_one_shard(recorded)
    choice = np.random.default_rng(0)
    killed = 0

    for _ in range(20):
        command = [*tool, "compare", "reference", "wrong.onnx", *_OPTIONS, "--workers", "2", "--json", "said.json"]
        with subprocess.Popen(command, cwd=recorded.folder, stdout=subprocess.DEVNULL) as driver:
            wait_until(lambda driver=driver: bool(_jobs_of(driver.pid)))  # type: ignore[misc]
            for _ in range(2):
                time.sleep(choice.uniform(0, 1.5))
                for pid in _one_of(choice, _jobs_of(driver.pid)):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            assert driver.wait(600) == 1
        found = without_times(json.loads((recorded.folder / "said.json").read_bytes()))
        # A last note counts the workers that ended early.
        assert {**found, "notes": found["notes"][: len(wanted["notes"])]} == wanted
    assert killed > 20


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_worker_outlives_the_command(desk: Desk, tool: list[str], number: signal.Signals, code: int) -> None:
    desk.onnx()
    desk.onnx("wrong.onnx", fill=0.5)
    desk.module("slow", _SLOW.replace("IS_SLOW", "False"))
    assert desk.call("record", "model.onnx", "--samples", "slow:batches", "--out", "reference").code == 0
    desk.module("slow", _SLOW.replace("IS_SLOW", "True"))
    options = ("--samples", "slow:batches", "--workers", "2")
    with subprocess.Popen([*tool, "compare", "reference", "wrong.onnx", *options], cwd=desk.folder) as driver:
        wait_until(lambda: len(list(desk.folder.glob("begun-*"))) == 2)
        jobs = _jobs_of(driver.pid)
        driver.send_signal(number)
        assert driver.wait(600) == code
    assert len(jobs) == 2
    wait_until(lambda: not any(map(is_alive, jobs)))
