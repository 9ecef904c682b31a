"""A proxy on the loopback interface between a client and an S3 server: it cuts, delays and answers with errors."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# What happens to a request: it is handed on unless one of these is named.
FAULTS = ("cut request", "lose answer", "cut answer", "500", "503", "500 after")
_NO_BODY = frozenset({"transfer-encoding", "connection", "content-length"})


class Proxy:
    """Hands requests on to a server, and notes each as its method and path."""

    def __init__(self, upstream: str, fault: Callable[[str, int], str] | None = None) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.endpoint = ""
        # Of a request and its number from 0: one of `FAULTS`, `slow-SECONDS`, or nothing.
        self.fault = fault or (lambda _request, _number: "")
        self.requests: list[str] = []
        self._lock = threading.Lock()

    def note(self, request: str) -> str:
        """Note a request, and return what happens to it."""
        with self._lock:
            self.requests.append(request)
            return self.fault(request, len(self.requests) - 1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _hand_on(self) -> None:
        fault = self.proxy.note(f"{self.command} {self.path}")
        length = int(self.headers.get("content-length") or 0)
        if fault == "cut request":
            self.rfile.read(length // 2)
            self._cut()
            return
        body = self.rfile.read(length)
        if fault.startswith("slow-"):
            time.sleep(float(fault.partition("-")[2]))
        error = b"<Error><Code>InternalError</Code></Error>"
        if fault.isdecimal():
            self._answer(int(fault), {}, error)
            return
        status, headers, content = self._upstream(body)
        if fault == "500 after":
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {}, error)
        elif fault == "lose answer":
            self._cut()
        elif fault == "cut answer":
            self._answer(status, headers, content, cut_at=len(content) // 2)
        else:
            self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _hand_on  # noqa: N815 - names that Python calls

    def _upstream(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _NO_BODY}
            if self.command == "HEAD":
                headers["content-length"] = answer.getheader("content-length") or "0"
            return answer.status, headers, answer.read()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, cut_at: int | None = None) -> None:
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            if cut_at is not None:
                self.wfile.write(content[:cut_at])
                self._cut()
                return
            self.wfile.write(content)

    def _cut(self) -> None:
        """Reset the connection, as a network that breaks does."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:  # noqa: ANN401 - a client that went away
        """Say nothing."""


@contextlib.contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """Yield a proxy to a server, which at first hands everything on."""
    made = Proxy(upstream)
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": made})) as server:
        made.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
