"""A server on the loopback interface for tests: what it answers is for its handler to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["QuietHandler", "serving"]

# A server ends at the next look; Python looks every half a second unless told otherwise.
_LOOK_EVERY_S = 0.01


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections open, and says nothing on the terminal; a server of a test says what `get` and `post` do."""

    protocol_version = "HTTP/1.1"
    # An answer in two parts is not to wait for anything between them.
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer a GET."""
        self.get()

    def do_POST(self) -> None:
        """Answer a POST."""
        self.post()

    def get(self) -> None:
        """Answer a GET; there is nothing unless a server says otherwise."""
        self.send(b"{}", 404)

    def post(self) -> None:
        """Answer a POST; there is nothing unless a server says otherwise."""
        self.send(b"{}", 404)

    def body(self) -> bytes:
        """Return what was sent with the request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Answer with a body and headers, whose names have underscores for dashes."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def send_page(self, pages: dict[str, Any]) -> None:
        """Answer with the page of the path, as JSON; 404 where there is none."""
        found = pages.get(self.path)
        self.send(json.dumps(found).encode() if found else b"{}", 200 if found else 404)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Many clients may connect at once.
    request_queue_size = 1024


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the address of a server that answers by a handler."""
    http = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": _LOOK_EVERY_S}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
