"""A real Triton server from the package index: the binary that the wheel of nvidia-pytriton carries, on the loopback.

The wheel is unpacked and never installed: `unpack.py`. Of backends it holds the python backend alone, so a view is
served from its shadow: the same files and configuration but for the backend, which calls ONNX Runtime's package.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from paritygate.pipelines.serving.place import digest_of
from paritygate.pipelines.serving.protobuf import text_of
from paritygate.pipelines.serving.triton.messages import config_of
from paritygate.pipelines.serving.triton.view import TritonView

__all__ = ["ENVIRONMENT", "TritonServer", "free_ports", "shadow_of", "why_no_server"]

# The environment of the server, below the root of the project: `make triton-test` makes it.
ENVIRONMENT = ".venv-triton"
_SERVER = "server/pytriton/tritonserver"
# The packages of the shadow: the python backend is older than NumPy 2, and reads nothing of its arrays.
_SITE = "lib/python*/site-packages"
_SHADOW_MODEL = Path(__file__).with_name("shadow_model.py")
_KINDS = ("http", "grpc", "metrics")
_START_S = 60.0
_STOP_S = 20.0


def why_no_server(place: Path) -> str:
    """Return why no server can be started from its environment; empty if one can."""
    if not (place / _SERVER / "backends/python/triton_python_backend_stub").is_file():
        return f"there is no Triton server in {place.name}/: make triton-test downloads it"
    return ""


def shadow_of(view: TritonView, root: Path | None, *, waits_ms: Sequence[float] = ()) -> TritonView:
    """Return the view of which only the backend differs: the python backend, which runs the very files of `root`.

    Args:
        view: The view.
        root: Where it was written; None for the files that it is to be written from.
        waits_ms: How long the model waits besides, a call and a row, as if a device computed it; not at all if empty.
    """
    files = dict(view.files)
    if root is not None:
        files = {name: root / view.name / str(view.version) / name for name in view.files}
    digests = json.dumps(dict(view.digests))
    parameters = {"digests": {"string_value": digests}}
    if waits_ms:
        parameters["waits_ms"] = {"string_value": json.dumps(list(waits_ms))}
    config = {**view.config, "backend": "python", "parameters": parameters}
    return replace(
        view,
        config=config,
        text=view.head.over(text_of(config_of(config))),
        files={**files, "model.py": _SHADOW_MODEL},
        digests={**view.digests, "model.py": digest_of(_SHADOW_MODEL)},
    )


class TritonServer:
    """A server on ports of the loopback that were free, as a context: it is ended by its process id.

    Attributes:
        http: Host and port of HTTP.
        grpc: Host and port of gRPC.
        metrics: Host and port of its page of metrics.
        log: The file of what it says.
        events: The file of what the shadow's models did.
    """

    def __init__(self, place: Path, root: Path | str, work: Path, *, mode: Sequence[str] = ()) -> None:
        """Say which server is to be started, on which models.

        Args:
            place: Its environment.
            root: Where it looks for models, a folder or an address.
            work: A folder for its logs.
            mode: Further arguments, such as `--model-control-mode=poll`.
        """
        ports = free_ports(len(_KINDS))
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{port}" for port in ports)
        self.log, self.events = work / "triton.log", work / "events.jsonl"
        server = (place / _SERVER).absolute()
        self._site = next(place.absolute().glob(_SITE))
        self._command = [
            str(server / "bin/tritonserver"),
            f"--model-repository={root}",
            f"--backend-directory={server / 'backends'}",
            f"--cache-directory={server / 'caches'}",
            "--backend-config=python,shm-default-byte-size=4194304",
            *(f"--{kind}-address=127.0.0.1" for kind in _KINDS),
            *(f"--{kind}-port={port}" for kind, port in zip(_KINDS, ports, strict=True)),
            *mode,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TritonServer:  # noqa: PYI034 - Self is of Python 3.11
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: It ended, or does not answer in time; the message ends with what it said last.
        """
        # The stub needs Python's own library, which the process that starts it may have elsewhere than the system.
        places = (sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH"))
        libraries = os.pathsep.join(filter(None, places))
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": libraries,
            "PARITYGATE_SHADOW_PATH": str(self._site),
            "PARITYGATE_SHADOW_LOG": str(self.events),
        }
        with self.log.open("wb") as stream:
            self._process = subprocess.Popen(self._command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self._process.poll() is None:
            if self.get("/v2/health/live") is not None:
                return self
            time.sleep(0.05)
        status = self._process.poll()
        self.__exit__(None, None, None)
        why = "it does not answer" if status is None else f"it ended with status {status}"
        msg = f"the server did not start: {why}:\n{self.last_words()}"
        raise RuntimeError(msg)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it: a server that waits for a model ends on no other signal than the last."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                try:
                    self._process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    continue
        self._process = None

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def last_words(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def get(self, path: str) -> object | None:
        """Return the JSON data at a path, `{}` where there is none; None where it is not answered with 200."""
        return _ask(f"http://{self.http}{path}", None)

    def post(self, path: str, data: Mapping[str, object]) -> object | None:
        """Return what is answered to JSON data; None where it is not answered with 200."""
        return _ask(f"http://{self.http}{path}", json.dumps(data).encode())

    def is_ready(self, model: str, version: int | None = None) -> bool:
        """Return whether a model, or a version of it, is ready."""
        which = "" if version is None else f"/versions/{version}"
        return self.get(f"/v2/models/{model}{which}/ready") is not None

    def wait_until_ready(self, model: str, version: int | None = None, *, within_s: float = 30.0) -> None:
        """Wait until a model, or a version of it, is ready.

        Raises:
            RuntimeError: It is not in time, or the server ended.
        """
        end = time.monotonic() + within_s
        while time.monotonic() < end and self.is_alive:
            if self.is_ready(model, version):
                return
            time.sleep(0.02)
        msg = f"{model} is not ready:\n{self.last_words()}"
        raise RuntimeError(msg)

    def done(self) -> list[dict[str, object]]:
        """Return what the shadow's models did, in order."""
        return [json.loads(line) for line in self.events.read_text().splitlines()] if self.events.is_file() else []


def _ask(url: str, body: bytes | None) -> object | None:
    # Without the proxies of the environment: it is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data=body), timeout=60) as answer:  # noqa: S310 - the loopback
            found: object = json.loads(answer.read() or b"{}")
            return found
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()
