"""OCI registries on this machine: a small one in this process, which can be made to fail, and Debian's own."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD, TOKEN = "robot", "password-of-this-test", "token-of-this-test"
LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
# Only a server that does not start takes so long.
_PATIENCE_S = 600.0


class SmallRegistry:
    """A registry in memory; `login` is what it demands, and `lists` whether it lists referrers itself."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str]] = []  # method, path and login
        self.login = ""  # `basic` or `bearer`
        self.lists = False
        self.names = False  # whether its answers have the digests that manifests had when they were written
        self.stored: dict[str, str] = {}
        self.page: tuple[int, bytes] | None = None  # what a web server that is no registry answers
        self.cut: set[str] = set()  # digests of blobs whose answers end early
        self.elsewhere = ""  # where blobs are, for a registry that redirects
        self.uploads = f"/v2/uploads/7?state={TOKEN}"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_", (_Handler,), {"registry": self}))
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.realm = f"http://{self.host}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def blob(self, digest: str) -> bytes:
        return self.blobs.get(digest) or self.manifests[digest]

    def change(self, digest: str, content: bytes | None) -> None:
        """Put other bytes under a digest, or remove it."""
        self.blobs.pop(digest)
        if content is not None:
            self.blobs[digest] = content


class _Handler(BaseHTTPRequestHandler):
    """Answers as the registry of its subclass."""

    protocol_version = "HTTP/1.1"
    registry: SmallRegistry

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self) -> None:
        registry, given = self.registry, self.headers.get("Authorization", "")
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        registry.requests.append((self.command, self.path, given))
        path, _, query = self.path.partition("?")
        wanted = {"basic": f"Basic {LOGIN}", "bearer": f"Bearer {TOKEN}"}.get(registry.login, given)
        kind, which = path.split("/")[-2:]
        if path == "/token":
            is_known = given == f"Basic {LOGIN}"
            self.answer(200 if is_known else 401, json.dumps({"token": TOKEN}).encode() if is_known else b"")
        elif given != wanted:
            realm = f'Bearer realm="{registry.realm}",service="small",scope="repository:x:pull"'
            self.answer(401, WWW_Authenticate='Basic realm="small"' if registry.login == "basic" else realm)
        elif registry.page is not None:
            self.answer(*registry.page, Content_Type="text/html")
        elif path == "/v2/":
            self.answer(200, b"{}")
        elif kind == "manifests":
            self.serve_manifest(which, content)
        elif self.command == "POST":
            self.answer(202, Location=registry.uploads)
        elif self.command == "PUT":
            digest = query.partition("digest=sha256%3A")[2]
            registry.blobs[f"sha256:{digest}"] = content
            self.answer(201 if hashlib.sha256(content).hexdigest() == digest else 400)
        else:
            self.serve_blob(which)

    def serve_manifest(self, which: str, content: bytes) -> None:
        registry = self.registry
        if self.command == "PUT":
            registry.manifests[which] = content
            if registry.names:
                registry.stored[which] = f"sha256:{hashlib.sha256(content).hexdigest()}"
            subject = json.loads(content).get("subject", {}).get("digest", "")
            self.answer(201, **({"OCI_Subject": subject} if subject and registry.lists else {}))
            return
        found = registry.manifests.get(which)
        digest = registry.stored.get(which)
        self.answer(
            404 if found is None else 200, found or b"", **({"Docker_Content_Digest": digest} if digest else {})
        )

    def serve_blob(self, digest: str) -> None:
        registry, found = self.registry, self.registry.blobs.get(digest)
        if registry.elsewhere and self.command == "GET":
            self.answer(307, Location=f"http://{registry.elsewhere}{self.path}")
        elif found is None:
            self.answer(404, b'{"errors": [{"code": "BLOB_UNKNOWN"}]}')
        elif digest in registry.cut:
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found[: len(found) // 2])
            self.close_connection = True
        else:
            self.answer(200, found)

    do_GET = do_HEAD = do_POST = do_PUT = serve  # noqa: N815 - the names of the server


class DebianRegistry:
    """The registry of the package docker-registry, which lists no referrers itself."""

    lists = False

    def __init__(self, host: str, folder: Path) -> None:
        self.host, self._folder = host, folder

    def _path(self, digest: str) -> Path:
        name = digest.removeprefix("sha256:")
        return self._folder / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"

    def blob(self, digest: str) -> bytes:
        return self._path(digest).read_bytes()

    def change(self, digest: str, content: bytes | None) -> None:
        """Put other bytes under a digest, or remove it."""
        self._path(digest).unlink()
        if content is not None:
            self._path(digest).write_bytes(content)

    @property
    def manifests(self) -> dict[str, bytes]:
        """Every manifest by its tag."""
        tags = self._folder.glob("docker/registry/v2/repositories/*/*/_manifests/tags/*/current/link")
        return {path.parts[-3]: self.blob(path.read_text()) for path in tags}


@contextlib.contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    registry = SmallRegistry()
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


def debian_program(folder: Path) -> Path:
    """Return the registry's program, unpacked below a folder and not installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("docker-registry is a package of Debian, and this is another system")
    got = subprocess.run(["apt-get", "download", "docker-registry"], cwd=folder, capture_output=True, check=False)
    packages = [*folder.glob("docker-registry_*.deb")]
    if got.returncode or not packages:
        pytest.skip(f"docker-registry could not be downloaded: {got.stderr.decode(errors='replace')[-200:].strip()}")
    subprocess.run(["dpkg-deb", "--extract", str(packages[0]), str(folder)], check=True)
    return folder / "usr/bin/docker-registry"


@contextlib.contextmanager
def debian_registry(program: Path, folder: Path) -> Iterator[DebianRegistry]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    config: dict[str, Any] = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(folder / "data")}}}
    config |= {"http": {"addr": host}, "log": {"level": "error"}}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([str(program), "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _answers(host):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail((folder / "registry.log").read_text())
            time.sleep(0.05)
        yield DebianRegistry(host, folder / "data")
    finally:
        process.kill()
        process.wait()


def _answers(host: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://{host}/v2/", timeout=10).close()
        return True
    return False
