"""`compare --engine ray` and `run --engine ray` on a real Ray, in the environment of its server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec import Struct
from msgspec.structs import replace
from tests.processes import is_alive, wait_until
from tests.servers.conftest import environment_of, inputs

pytestmark = pytest.mark.servers

_OPTIONS = ("--samples", "inputs.npz", "--precision", "fp16", "--batch-size", "8", "--probes", "none")


def _without_times(data: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(data, dict):
        kept = {name: item for name, item in data.items() if name != "machine" and not name.endswith("seconds")}
        return {name: _without_times(item) for name, item in kept.items()}
    return [_without_times(item) for item in data] if isinstance(data, list) else data


class Work(Struct, frozen=True, kw_only=True):
    """A folder with a recorded reference and a candidate that is wrong, and Ray's Python."""

    folder: Path
    bin: Path
    wanted: Any  # the verdict of one shard

    def command(self, *more: str) -> list[str]:
        """Return the command that compares on Ray."""
        return [*self.tool, "compare", "reference", "wrong.onnx", *_OPTIONS, "--engine", "ray", *more]

    @property
    def tool(self) -> list[str]:
        """The command of paritygate."""
        return [str(self.bin / "python"), "-m", "paritygate"]

    def call(self, *words: str, code: int = 0) -> str:
        """Run a command of paritygate, and return its standard error."""
        ran = subprocess.run([*self.tool, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert ran.returncode == code, ran.stderr
        return ran.stderr

    def verdict(self) -> Any:  # noqa: ANN401 - JSON data
        """Return the verdict that was written, and remove it."""
        file = self.folder / "said.json"
        data = json.loads(file.read_bytes())
        file.unlink()
        return _without_times(data)


def _model(path: Path, fill: float | None) -> None:
    weight = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
    if fill is not None:
        weight[1] = fill
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "weight"], ["y"])],
        "linear",
        [info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [info("y", onnx.TensorProto.FLOAT, ["batch", 3])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Return the folder with its verdict of one shard."""
    folder = tmp_path_factory.mktemp("work")
    _model(folder / "model.onnx", None)
    _model(folder / "wrong.onnx", 0.5)
    np.savez(folder / "inputs.npz", x=inputs()["x"])
    work = Work(folder=folder, bin=environment_of("ray") / "bin", wanted=None)
    work.call("record", "model.onnx", *_OPTIONS[:2], "--batch-size", "8", "--out", "reference")
    work.call("compare", "reference", "wrong.onnx", *_OPTIONS, "--shard", "1/1", "--out", "part.json")
    work.call("merge", "part.json", "--json", "said.json", code=1)
    return replace(work, wanted=work.verdict())


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            found[int(folder.name)] = int(text.rpartition(")")[2].split()[1])
    return found


def _below(pid: int) -> set[int]:
    """Return the processes that a process started, and those that they started."""
    parents, family = _parents(), {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {pid}


def _words(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _jobs(pid: int) -> list[int]:
    """Return the processes of shards, and Ray's processes that wait for them."""
    return [each for each in _below(pid) if "child_main" in _words(each) or _words(each).startswith("ray::ShardWorker")]


def _listening(pids: set[int]) -> set[str]:
    """Return the addresses, in hexadecimal digits, at which some processes listen."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ray_gives_the_verdict_of_one_shard(work: Work, workers: str) -> None:
    seen: set[int] = set()
    addresses: set[str] = set()
    with subprocess.Popen(work.command("--workers", workers, "--json", "said.json"), cwd=work.folder) as driver:
        while driver.poll() is None:
            seen |= _below(driver.pid)
            addresses |= _listening(seen)
            time.sleep(0.2)
        assert driver.returncode == 1
    assert work.verdict() == work.wanted
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    wait_until(lambda: not any(map(is_alive, seen)))


_SLOW = """
import time


def batches():
    open(f"begun-{time.monotonic_ns()}", "a").close()
    time.sleep(600)
    yield {}
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_process_outlives_the_command(work: Work, number: signal.Signals, code: int) -> None:
    (work.folder / "slow.py").write_text(_SLOW, encoding="utf-8")
    for path in work.folder.glob("begun-*"):
        path.unlink()
    command = work.command("--workers", "2", "--samples", "slow:batches")
    with subprocess.Popen(command, cwd=work.folder) as driver:
        wait_until(lambda: len(list(work.folder.glob("begun-*"))) > 1)
        seen = _below(driver.pid)
        driver.send_signal(number)
        assert driver.wait(600) == code
    wait_until(lambda: not any(map(is_alive, seen)))


@pytest.fixture
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray use 127.0.0.1, which it replaces by another address of the machine otherwise, without a token."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@contextlib.contextmanager
def _cluster(python: Path) -> Iterator[tuple[str, int]]:
    """Yield the address of a cluster of two processors, and the id of its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = f"import sys; sys.argv[1:] = ['start', '--head', '--block', '--port={address.split(':')[1]}', "
    start += "'--num-cpus=2', '--include-dashboard=false', '--disable-usage-stats']; "
    start += "from ray.scripts.scripts import main; main()"
    process = subprocess.Popen([str(python), "-c", start], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: any("raylet" in _words(pid) for pid in _below(process.pid)) or process.poll() is not None)
        assert process.poll() is None
        yield address, process.pid
    finally:
        below = _below(process.pid)
        process.terminate()
        process.wait(600)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _one_of(choice: np.random.Generator, pids: list[int]) -> list[int]:
    """Return one of the processes by chance; none if there are none."""
    return [int(choice.choice(pids))] if pids else []


@pytest.mark.thorough
@pytest.mark.timeout(7200)  # 20 comparisons, on a machine that may be busy
@pytest.mark.usefixtures("on_loopback")
def test_nothing_is_lost_where_workers_of_a_cluster_are_killed(work: Work) -> None:
    choice = np.random.default_rng(0)
    killed = 0
    with _cluster(work.bin / "python") as (address, cluster):
        for _ in range(20):
            command = work.command("--workers", "2", "--ray-address", address, "--json", "said.json")
            with subprocess.Popen(command, cwd=work.folder, stdout=subprocess.DEVNULL) as driver:
                wait_until(lambda: bool(_jobs(cluster)))
                for _ in range(2):
                    time.sleep(choice.uniform(0, 1.5))
                    for pid in _one_of(choice, _jobs(cluster)):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            killed += 1
                assert driver.wait(600) == 1
            assert work.verdict() == work.wanted
            wait_until(lambda: not _jobs(cluster))
    assert killed > 20


def test_a_cluster_that_is_not_there_is_named(work: Work) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = work.command("--workers", "2", "--ray-address", address)[3:]

    assert address in work.call(*command, code=5)
    assert "HOST:PORT" in work.call(*command[:-1], "auto", code=2)


@pytest.mark.usefixtures("on_loopback")
def test_a_machine_without_the_package_or_the_files_is_refused(work: Work, tmp_path: Path) -> None:
    # Python does not read .pth files in a folder that one of them names, so the packages are there, except paritygate.
    subprocess.run([str(work.bin / "python"), "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (packages,) = work.bin.parent.glob("lib/python*/site-packages")
    (own,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (own / "ray.pth").write_text(f"{packages}\n", encoding="utf-8")
    command = ("--workers", "2", "--ray-address")

    with _cluster(tmp_path / "venv/bin/python") as (address, _):
        err = work.call(*work.command(*command, address)[3:], code=5)
    assert "has no paritygate" in err
    assert "same packages, reference, wrong.onnx, inputs.npz" in " ".join(err.split())


def test_specs_run_on_ray_as_alone(work: Work) -> None:
    (work.folder / "specs").mkdir()
    for name in ("one", "two"):
        spec = {
            "model": {"name": name, "source": "../model.onnx", "rename": {"y": "z"}},
            "samples": {"source": "../inputs.npz"},
            "targets": ["onnx-fp32"],
            "probes": "none",
        }
        (work.folder / f"specs/{name}.yaml").write_text(json.dumps(spec), encoding="utf-8")
    (work.folder / "specs/broken.yaml").write_text("model: [", encoding="utf-8")

    work.call("run", "specs", "--engine", "ray", "--workers", "2", "--json", "said.json", code=2)
    runs = {run["spec"]: run for run in work.verdict()["runs"]}
    assert {name: run["exit_code"] for name, run in runs.items()} == {
        "specs/broken.yaml": 2,
        "specs/one.yaml": 0,
        "specs/two.yaml": 0,
    }
    assert all((work.folder / run["log"]).is_file() for run in runs.values())
