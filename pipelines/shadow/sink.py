"""Capture live traffic: take copies of requests, let a server answer them, and write both to a file.

A copy is accepted at once, so that a proxy which waits for it loses nothing, however slow the server is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from msgspec import Struct

from paritygate.errors import MeasurementError, StorageError, UsageError, ZeroRowsError
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.shadow.events import Events
from paritygate.pipelines.shadow.sending import (
    LOOK_S,
    MIB,
    MOST_BODY,
    CaptureRequest,
    CaptureResult,
    Copy,
    Ended,
    Senders,
    Written,
)
from paritygate.text import counted

# Whoever connects and sends nothing holds a thread.
_IDLE_S = 60.0
_MOST_CONNECTIONS = 1000
_MOST_RECEIVING_BYTES = 256 * MIB
_THIS_MACHINE = {"127.0.0.1", "0.0.0.0", "localhost"}  # noqa: S104 - nothing is bound here
_MOST_DIGITS = 10  # of a length
_ACCEPTED, _NOTHING, _TOO_LARGE, _NO_LENGTH, _BUSY = 202, 204, 413, 411, 503


def capture(
    request: CaptureRequest,
    *,
    progress: Progress = lambda *_: None,
    began: Callable[[str], object] = lambda _: None,
) -> CaptureResult:
    """Take copies of requests until a limit or Ctrl-C, and write each with its answer.

    `began` gets the address once it takes requests.

    Raises:
        UsageError: The file exists or cannot be made, nothing can listen at the address, or the server is this capture.
        StorageError: The disk is full.
        ZeroRowsError: No request came.
    """
    _check_server(request)
    try:
        # Requests may be confidential.
        opened = os.open(request.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as err:
        msg = f"{request.out} exists, so nothing was captured"
        raise UsageError(msg, hint="name another file with --out") from err
    except OSError as err:
        if err.errno in {errno.ENOSPC, errno.EDQUOT}:
            msg = f"the disk is full: {request.out} cannot be written"
            raise StorageError(msg, hint="free space there, or name another file with --out") from err
        msg = f"{request.out} cannot be written: {err.strerror}"
        raise UsageError(msg, hint="name a file in a folder that exists with --out") from err
    try:
        with os.fdopen(opened, "wb", buffering=0) as stream:
            return _captured(request, stream, progress, began)
    finally:
        if not request.out.stat().st_size:
            request.out.unlink()


def _check_server(request: CaptureRequest) -> None:
    """Raise UsageError for a server that is this capture, which would send each copy to itself."""
    if request.server is None:
        return
    parts = urlsplit(request.server)
    is_here = parts.hostname == request.host or {parts.hostname, request.host} <= _THIS_MACHINE
    if is_here and (parts.port or {"http": 80, "https": 443}[parts.scheme]) == request.port:
        msg = f"--send-to names the address that capture listens at ({request.host}:{request.port})"
        raise UsageError(msg, hint="name the model's server with --send-to, or another port with --listen")


def _captured(
    request: CaptureRequest, stream: BinaryIO, progress: Progress, began: Callable[[str], object]
) -> CaptureResult:
    written = Written(stream=stream, request=request)
    senders = Senders(request.server, written, request.answer_s) if request.server else None
    events = Events()
    http = _listening(request, _Taker(written=written, senders=senders, events=events, room=_Room()))
    server = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": LOOK_S}, daemon=True)
    server.start()
    address = f"http://{request.host}:{http.server_address[1]}"
    began(address)
    end = time.monotonic() + request.seconds
    ended: Ended = "seconds"
    try:
        while not written.done.wait(LOOK_S) and time.monotonic() < end:
            progress(f"listening at {address}", written.captured, request.most)
    except KeyboardInterrupt:
        ended = "interrupted"
    written.done.set()
    http.shutdown()
    http.server_close()
    with written.lock:
        if written.failed is not None:
            msg = f"{request.out} cannot be written: {written.failed.strerror}"
            lines = f"its {counted(written.captured, 'line')} can be judged"
            hint = lines if written.captured else "name another file with --out"
            raise StorageError(msg, hint=hint) from written.failed
        result = CaptureResult(
            captured=written.captured,
            unanswered=written.unanswered,
            lost=written.lost + (senders.left() if senders else 0),
            unreadable=written.unreadable,
            unpaired=events.unpaired,
            size_bytes=written.size_bytes,
            ended_by=written.ended_by or ended,
            out=str(request.out),
        )
    if not result.captured:
        raise _nothing(result, address)
    return result


def _nothing(result: CaptureResult, address: str) -> MeasurementError:
    seen = [f"{count} {what}" for what in ("lost", "unreadable", "unpaired") if (count := getattr(result, what))]
    msg = f"no request was captured at {address} ({', '.join(seen) or 'none came'})"
    return ZeroRowsError(msg, hint="let a proxy mirror requests to this address: see docs/shadow.md")


class _Room:
    """Room for bodies that are being received; several threads take of it."""

    def __init__(self) -> None:
        self._left = _MOST_RECEIVING_BYTES
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Return whether there is room, and take it."""
        with self._lock:
            is_room = size <= self._left
            self._left -= size if is_room else 0
        return is_room

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class _Taker(Struct, frozen=True, kw_only=True):
    """Takes what was sent, and returns the status to answer with."""

    written: Written
    senders: Senders | None
    events: Events
    room: _Room

    def take(self, copy: Copy) -> int:
        if "ce-id" in copy.headers:
            try:
                line = self.events.add(copy)
            except ValueError:
                self.written.count("unreadable")
                return _ACCEPTED
            if line is not None:
                self.written.add(line, is_answered=isinstance(line["response"], dict))
            return _ACCEPTED
        if self.senders is None:
            self.written.count("unreadable")
            return _ACCEPTED
        if self.senders.take(copy):
            return _ACCEPTED
        self.written.count("lost")
        return _BUSY


class _Server(ThreadingHTTPServer):
    """Has a limit of connections, and ends them when it ends, so that no thread waits for the rest of a body."""

    daemon_threads = True

    def __init__(self, place: tuple[str, int], handler: type[_Handler]) -> None:
        self._written = handler.takes.written
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(place, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002 - as its base has it
        with self._lock:
            is_room = len(self._open) < _MOST_CONNECTIONS
        if not is_room:
            self._written.count("lost")
        return is_room

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as its base has it
        # A client that goes away is not an error.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as its base has it
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as its base has it
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    # The answer to a copy that was taken may still be on its way.
                    connection.shutdown(socket.SHUT_RD)


def _listening(request: CaptureRequest, taker: _Taker) -> _Server:
    class Handler(_Handler):
        takes = taker

    try:
        return _Server((request.host, request.port), Handler)
    except (OSError, OverflowError) as err:
        msg = f"nothing can listen at {request.host}:{request.port}: {getattr(err, 'strerror', None) or err}"
        raise UsageError(msg, hint="name another port with --listen") from err


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _IDLE_S
    takes: _Taker

    def log_message(self, *args: object) -> None:
        """Print nothing: a request may be confidential."""

    def do_GET(self) -> None:
        """Answer what a proxy asks to see whether anybody is there."""
        self._end(_NOTHING)

    def do_HEAD(self) -> None:
        """Answer as a GET: neither has a body."""
        self._end(_NOTHING)

    def do_POST(self) -> None:
        """Take a copy."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._refuse(_NO_LENGTH)
        elif len(length) > _MOST_DIGITS or int(length) > MOST_BODY:
            self._refuse(_TOO_LARGE)
        elif not self.takes.room.take(int(length)):
            self._refuse(_BUSY)
        else:
            try:
                self._take(int(length))
            finally:
                self.takes.room.give_back(int(length))

    def _take(self, length: int) -> None:
        body = b""
        with contextlib.suppress(OSError):
            body = self.rfile.read(length)
        if len(body) < length:
            self.takes.written.count("lost")
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._end(self.takes.take(Copy(self.path, headers, body)))

    def _refuse(self, status: int) -> None:
        self.takes.written.count("lost")
        self._end(status, is_last=True)

    def _end(self, status: int, *, is_last: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if is_last:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
