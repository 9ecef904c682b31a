"""Real servers that run the loaders of docs/servers.md, each in its own environment, on a release of a small model."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import paritygate as pg

_ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^```(?P<language>\w+) server=(?P<server>\w+)(?: file=(?P<file>\S+))?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# The distribution whose version is that of the server.
SERVERS: Mapping[str, str] = {
    "fastapi": "fastapi",
    "litserve": "litserve",
    "bentoml": "bentoml",
    "mlserver": "mlserver",
    "kserve": "kserve",
    "ray": "ray",
}
# Those that answer over gRPC as well.
GRPC = frozenset({"mlserver", "kserve"})
_PORTS = (8000, 8001, 8002)
_START_S = 120.0
_STOP_S = 20.0
ROWS = 120
_FLOAT, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
_DATATYPES = {"float32": "FP32", "int64": "INT64"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for every server."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", list(SERVERS))


def inputs() -> dict[str, np.ndarray]:
    """Return the golden inputs."""
    random = np.random.default_rng(3)
    shift = random.integers(-3, 4, (ROWS, 1))
    return {"x": random.standard_normal((ROWS, 4)).astype(np.float32), "shift": shift}


def golden(seed: int) -> dict[str, np.ndarray]:
    """Return what the model of a seed answers to them, computed in float64."""
    rows = inputs()
    score = rows["x"].astype(np.float64) @ _weight(seed).astype(np.float64) + rows["shift"]
    return {"score": score.astype(np.float32), "label": score.argmax(axis=1)}


def _weight(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)


def _write_model(path: Path, seed: int) -> None:
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            node("Cast", ["shift"], ["offset"], to=_FLOAT),
            node("MatMul", ["x", "weight"], ["product"]),
            node("Add", ["product", "offset"], ["score"]),
            node("ArgMax", ["score"], ["label"], axis=1, keepdims=0),
        ],
        "scores",
        [info("x", _FLOAT, ["batch", 4]), info("shift", _INT64, ["batch", 1])],
        [info("score", _FLOAT, ["batch", 3]), info("label", _INT64, ["batch"])],
        [onnx.numpy_helper.from_array(_weight(seed), "weight")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))


def _released(folder: Path, seed: int) -> pg.Release:
    _write_model(folder / "model.onnx", seed)
    np.savez(folder / "inputs.npz", **inputs())
    spec = {
        "model": {"name": "scores", "source": "model.onnx"},
        "samples": {"source": "inputs.npz"},
        "targets": ["onnx-fp32"],
        "probes": "none",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pg.run(pg.Spec.model_validate(spec)).assert_passed()
    return pg.Repository(folder / "artifacts/repository").release("scores", "prod")


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> pg.Release:
    """Return the release that is served."""
    return _released(tmp_path_factory.mktemp("released"), 0)


@pytest.fixture(scope="session")
def other_release(tmp_path_factory: pytest.TempPathFactory) -> pg.Release:
    """Return a release of another model under the same name."""
    return _released(tmp_path_factory.mktemp("other"), 1)


def environment_of(name: str) -> Path:
    """Return the environment of a server, or skip."""
    place = _ROOT / ".venv-servers" / name
    if not (place / ".installed").is_file():
        pytest.skip(f"there is no environment .venv-servers/{name}: make servers-test makes it")
    return place


def version_of(environment: Path, distribution: str) -> str:
    """Return the version of a distribution in an environment."""
    program = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    ran = subprocess.run([str(environment / "bin/python"), "-c", program], check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that was started by the code and the command of its section.

    Attributes:
        ports: Its ports, by those that its code names.
        log: The file of what it says.
        process: Its process, which leads a group of its own.
        started: When it was started, by the monotonic clock.
    """

    ports: Mapping[int, int]
    log: Path
    process: subprocess.Popen[bytes]
    started: float

    @property
    def address(self) -> str:
        """Where its model is asked over HTTP."""
        return self.with_ports("http://127.0.0.1:8000/v2/models/scores")

    @property
    def grpc(self) -> str:
        """Where it is asked over gRPC, if it answers that."""
        return self.with_ports("grpc://127.0.0.1:8001/scores")

    def with_ports(self, text: str) -> str:
        """Return a text in which its ports stand in the place of those that its code names."""
        return _with_ports(text, self.ports)

    def wait_until_it_listens(self) -> None:
        """Wait until its first port takes connections.

        Raises:
            RuntimeError: It ended, or does not in time; the message ends with what it said last.
        """
        while time.monotonic() < self.started + _START_S and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.ports[_PORTS[0]])) == 0:
                    return
            time.sleep(0.1)
        msg = f"the server does not listen:\n{self.said()[-3000:]}"
        raise RuntimeError(msg)

    def wait_until_ready(self) -> float:
        """Return the seconds until it answered the golden inputs for the first time.

        Raises:
            RuntimeError: It ended, or does not answer in time; the message ends with what it said last.
        """
        while time.monotonic() < self.started + _START_S and self.process.poll() is None:
            if self.answer() is not None:
                return time.monotonic() - self.started
            time.sleep(0.1)
        msg = f"the server does not answer:\n{self.said()[-3000:]}"
        raise RuntimeError(msg)

    def wait_until_it_says(self, words: str) -> None:
        """Wait until words are in its log.

        Raises:
            RuntimeError: It ended without them, or does not say them in time.
        """
        while words not in self.said():
            if self.process.poll() is not None or time.monotonic() > self.started + _START_S:
                # What it said last is in the file when it is gone.
                if words in self.said():
                    return
                msg = f"the server did not say {words!r}:\n{self.said()[-3000:]}"
                raise RuntimeError(msg)
            time.sleep(0.1)

    def answer(self) -> dict[str, Any] | None:
        """Return what it answers to the golden inputs over HTTP with JSON; None where it is not answered with 200."""
        said = [
            {
                "name": name,
                "datatype": _DATATYPES[array.dtype.name],
                "shape": array.shape,
                "data": array.ravel().tolist(),
            }
            for name, array in inputs().items()
        ]
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.address}/infer", json.dumps({"inputs": said}).encode(), headers)  # noqa: S310 - the loopback
        # Without the proxies of the environment: it is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(asked, timeout=30) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def listens_elsewhere(self) -> bool:
        """Return whether a port of its is open on another address than that of the loopback that it was given."""
        for port in self.ports.values():
            with socket.socket() as probe:
                # Who listens on all addresses listens on this one as well.
                if probe.connect_ex(("127.0.0.2", port)) == 0:
                    return True
        return False

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        """End it and what it started: the group that it leads."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if number is signal.SIGINT and self.process.poll() is None:
                # As from a terminal, for some end what they started in no other way.
                self.process.send_signal(number)
            elif not _signal_group(self.process.pid, number):
                break
            end = time.monotonic() + _STOP_S
            while time.monotonic() < end and (self.process.poll() is None or _signal_group(self.process.pid, 0)):
                time.sleep(0.1)
        self.process.wait()


def _signal_group(leader: int, number: int) -> bool:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def serve_files(tmp_path: Path) -> Callable[..., AbstractContextManager[Server]]:
    """Return a function that starts a server of an environment on files of its own, as a context that ends it."""

    @contextmanager
    def started(name: str, files: Mapping[str, str], command: str, repository: Path | None = None) -> Iterator[Server]:
        environment = environment_of(name)
        folder = tmp_path / f"server-{len(list(tmp_path.iterdir()))}"
        (folder / "artifacts").mkdir(parents=True)
        if repository is not None:
            (folder / "artifacts/repository").symlink_to(repository)
        ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        for file, text in files.items():
            (folder / file).write_text(_with_ports(text, ports))
        log = folder / "server.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                ["env", *shlex.split(_with_ports(command, ports))],
                cwd=folder,
                env=_environment_of(environment, folder),
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        server = Server(ports=ports, log=log, process=process, started=time.monotonic())
        try:
            yield server
        finally:
            server.stop()

    return started


@pytest.fixture
def serve(
    name: str, serve_files: Callable[..., AbstractContextManager[Server]]
) -> Callable[[Path], AbstractContextManager[Server]]:
    """Return a function that starts the server by its section of the page, on a repository."""
    blocks = [block for block in _BLOCK.finditer((_ROOT / "docs/servers.md").read_text()) if block["server"] == name]
    (command,) = [block["text"] for block in blocks if block["language"] == "shell"]
    files = {block["file"]: block["text"] for block in blocks if block["file"]}
    return lambda repository: serve_files(name, files, command, repository)


def _with_ports(text: str, ports: Mapping[int, int]) -> str:
    return re.sub(r"\b800[012]\b", lambda found: str(ports[int(found[0])]), text)


def _environment_of(environment: Path, home: Path) -> dict[str, str]:
    """Return the environment variables of a server: none of the tests' own Python, nor of a proxy."""
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    path = os.pathsep.join((str(environment / "bin"), os.environ["PATH"]))
    return {**kept, "PATH": path, "HOME": str(home), "PYTHONUNBUFFERED": "1"}


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


@pytest.fixture
def with_other_bytes(release: pg.Release, other_release: pg.Release, tmp_path: Path) -> Path:
    """Return a copy of the repository in which the bytes of the other model stand in the place of the released ones."""
    copy = tmp_path / "with-other-bytes"
    shutil.copytree(release.root, copy)
    model = copy / release.path().relative_to(release.root)
    model.chmod(0o644)
    model.write_bytes(other_release.path().read_bytes())
    return copy


@pytest.fixture(scope="session")
def record() -> Callable[[str, Mapping[str, Any]], None]:
    """Return a function that writes what came of a server, for the table of the page."""

    def write(name: str, row: Mapping[str, Any]) -> None:
        folder = _ROOT / "build/servers"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")

    return write
