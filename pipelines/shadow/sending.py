"""Captured requests on their way: copies wait, a server answers them, and both are written to a file."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from paritygate.pipelines.shadow.capture import OK, UNREADABLE, check_request
from paritygate.pipelines.shadow.payload import HEADER_LENGTH, as_data
from paritygate.validate.runners.endpoint.connection import (
    BrokenAnswerError,
    Connections,
    HttpRequest,
    NoConnectionError,
    TooLargeError,
)

MIB = 1 << 20
MOST_BODY = 64 * MIB
LOOK_S = 0.2
_MOST_WAITING = 1000
_MOST_WAITING_BYTES = 256 * MIB
_SENDERS = 4
_KEPT = ("content-type", HEADER_LENGTH)

Ended = Literal["requests", "seconds", "size", "interrupted"]


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """What is asked of `capture`."""

    host: str
    port: int  # 0 for any that is free
    server: str | None  # the address that answers the copies; None for events that hold answers
    out: Path
    most: int  # requests
    most_bytes: int
    seconds: float
    answer_s: float = 30.0  # for one answer


class CaptureResult(Struct, frozen=True, kw_only=True):
    """What was captured."""

    captured: int  # requests in the file
    unanswered: int  # of them, those without an answer, with an error, or with an answer that cannot be read
    lost: int  # copies that were dropped, or that the server had not answered at the end
    unreadable: int  # requests and answers that `shadow` could not read
    unpaired: int  # events without the other half
    size_bytes: int
    ended_by: Ended
    out: str

    @property
    def is_answered(self) -> bool:
        """Whether a request got an answer without an error."""
        return self.unanswered < self.captured


class Copy(Struct, frozen=True):
    """A copy of a request that waits."""

    path: str
    headers: Mapping[str, str]  # with names in lower case
    body: bytes


class Written(Struct, kw_only=True):
    """The file, and the counts: several threads add to both."""

    stream: BinaryIO  # without a buffer, because closing would write its rest behind the last whole line
    request: CaptureRequest
    captured: int = 0
    unanswered: int = 0
    lost: int = 0
    unreadable: int = 0
    size_bytes: int = 0
    ended_by: Ended | None = None
    failed: OSError | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    done: threading.Event = field(default_factory=threading.Event)

    def add(self, line: Mapping[str, Any], *, is_answered: bool) -> None:
        """Write one request with its answer, unless a limit is reached."""
        raw = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            if self.done.is_set():
                self.lost += 1
                return
            if self.size_bytes + len(raw) > self.request.most_bytes:
                self.lost += 1
                self._end("size")
                return
            try:
                self._write(raw)
            except OSError as err:
                self.failed = err
                self.done.set()
                return
            self.size_bytes += len(raw)
            self.captured += 1
            self.unanswered += not is_answered
            if self.captured == self.request.most:
                self._end("requests")

    def count(self, what: Literal["lost", "unreadable"]) -> None:
        """Count a request that is not in the file."""
        with self.lock:
            setattr(self, what, getattr(self, what) + 1)

    def _write(self, raw: bytes) -> None:
        rest = memoryview(raw)
        try:
            while rest:
                rest = rest[self.stream.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self.stream.truncate(self.size_bytes)
            raise

    def _end(self, by: Ended) -> None:
        self.ended_by = by
        self.done.set()


class Senders:
    """Threads that let a server answer copies; what comes while too much waits is lost."""

    def __init__(self, address: str, written: Written, seconds: float) -> None:
        """Begin; each answer may take so many seconds."""
        self._address, self._written, self._seconds = address.rstrip("/"), written, seconds
        self._has_path = bool(urlsplit(self._address).path)
        self._connections = Connections(address, most=_SENDERS)
        self._waiting: queue.Queue[Copy] = queue.Queue(_MOST_WAITING)
        self._held = self._held_bytes = 0  # accepted, and in no other count
        self._lock = threading.Lock()
        for _ in range(_SENDERS):
            threading.Thread(target=self._send_all, daemon=True).start()

    def take(self, copy: Copy) -> bool:
        """Return whether a copy waits to be answered."""
        with self._lock:
            if self._written.done.is_set() or self._held_bytes + len(copy.body) > _MOST_WAITING_BYTES:
                return False
            try:
                self._waiting.put_nowait(copy)
            except queue.Full:
                return False
            self._held += 1
            self._held_bytes += len(copy.body)
            return True

    def left(self) -> int:
        """Return how many copies wait, or are being answered; the caller holds the lock of the counts."""
        with self._lock:
            return self._held

    def _send_all(self) -> None:
        while not self._written.done.is_set():
            try:
                copy = self._waiting.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            line, is_answered = self._line(copy)
            # Both locks, so that a copy is at no time in two counts, or in none.
            with self._written.lock:
                if line is None:
                    self._written.count("unreadable")
                else:
                    self._written.add(line, is_answered=is_answered)
                with self._lock:
                    self._held -= 1
                    self._held_bytes -= len(copy.body)

    def _line(self, copy: Copy) -> tuple[dict[str, Any] | None, bool]:
        """Return what to write, and whether the server answered; None where nobody could read the request."""
        try:
            request = as_data(copy.body, copy.headers)
            check_request(request)
        except ValueError:
            return None, False
        status, response = self._answer(copy)
        line = {"request": request, "response": response, "status": status}
        return line, isinstance(response, dict) and status in OK

    def _answer(self, copy: Copy) -> tuple[int, Any]:
        """Return status and answer; 0 and None where there is none."""
        path = urlsplit(self._address).path if self._has_path else copy.path
        headers = {name: value for name, value in copy.headers.items() if name in _KEPT}
        asked = HttpRequest(method="POST", path=path, body=copy.body, headers=headers)
        try:
            answer = self._connections.exchange(asked, seconds=self._seconds, most=MOST_BODY)
            return answer.status, as_data(answer.body, answer.headers)
        except ValueError:
            return answer.status, UNREADABLE
        except (TimeoutError, NoConnectionError, BrokenAnswerError, TooLargeError, OSError):
            return 0, None
