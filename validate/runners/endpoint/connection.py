"""One exchange over HTTP, within a deadline and a size.

The limits of urllib3 and requests are on one read each, which a server that sends a byte a second never exceeds. They
also read and unpack a body whole before its size is known.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import select
import socket
import ssl
import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct, field

# Reasons why an exchange ended, as the end of a message.
CLOSED = "it closed the connection without an answer"
CUT_OFF = "it closed the connection in the middle of an answer"
_PART = 1 << 16
# All headers together, with what the buffer reads beyond them.
_HEAD = 5 * _PART
# A path is quoted already where it has to be.
_KEPT = "/%:@!$&'()*+,;=~?"
_PORTS = {"http": 80, "https": 443}
# The window of zlib for each packing of a body.
_PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class TooLargeError(Exception):
    """An answer is larger than is allowed."""


class NoConnectionError(Exception):
    """There is no connection: no host of the name (`is_no_host`), or nothing that accepts connections."""

    def __init__(self, *, is_no_host: bool) -> None:
        super().__init__()
        self.is_no_host = is_no_host


class BrokenAnswerError(Exception):
    """The connection ended before the answer did (`is_gone`), or it is not HTTP; the message ends a sentence."""

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request to send."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """An answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """Connections to one server, which are reused while it keeps them open."""

    def __init__(self, address: str, *, most: int, resent_after_s: float = 0.0) -> None:
        """Prepare; nothing is connected."""
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._most, self._resent_after_s = most, resent_after_s
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._idle)

    def exchange(self, request: HttpRequest, *, seconds: float, most: int) -> HttpAnswer:
        """Return the answer to one request.

        It is sent once more where the server had closed a connection that was idle for `resent_after_s`, which it may
        do at any time. `seconds` limit all steps together: connecting, sending, waiting and reading. `most` limits the
        unpacked bytes of the body.

        Raises:
            TimeoutError: It took longer.
            NoConnectionError: There is no connection.
            TooLargeError: The answer is larger.
            BrokenAnswerError: The answer is none of HTTP, or ends early.
        """
        end = time.monotonic() + seconds
        idle = self._kept()
        if idle is None:
            return self._exchanged(self._opened(end), request, end=end, most=most)
        is_long_idle = time.monotonic() - idle.idle_since >= self._resent_after_s
        try:
            return self._exchanged(idle, request, end=end, most=most)
        except BrokenAnswerError as err:
            if not err.is_gone or str(err) != CLOSED or not is_long_idle:
                raise
            try:
                opened = self._opened(end)
            except NoConnectionError:
                # It did not close this connection alone.
                raise err from None
            return self._exchanged(opened, request, end=end, most=most)

    def _exchanged(self, connection: _Connection, request: HttpRequest, *, end: float, most: int) -> HttpAnswer:
        is_done = False
        try:
            answer = _exchanged(connection, request, end=end, most=most)
            is_done = True
        except TimeoutError:
            raise
        except http.client.RemoteDisconnected as err:
            raise BrokenAnswerError(CLOSED, is_gone=True) from err
        except http.client.IncompleteRead as err:
            raise BrokenAnswerError(CUT_OFF, is_gone=True) from err
        except (http.client.HTTPException, ValueError) as err:
            raise BrokenAnswerError(f"the server's response is not HTTP ({type(err).__name__})") from err
        except ssl.SSLError as err:
            raise BrokenAnswerError(_words_of(err)) from err
        except OSError as err:
            words = CLOSED if isinstance(err, ConnectionError) else _words_of(err)
            raise BrokenAnswerError(words, is_gone=True) from err
        finally:
            self._put_back(connection, is_done=is_done)
        return answer

    def _kept(self) -> _Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _is_quiet(connection.sock):
                return connection
            connection.close()

    def _put_back(self, connection: _Connection, *, is_done: bool) -> None:
        connection.idle_since = time.monotonic()
        with self._lock:
            # Without a socket the server announced that it closes it.
            if is_done and connection.sock is not None and len(self._idle) < self._most:
                self._idle.append(connection)
                return
        # The rest of an answer that was not read to its end is closed already.
        with contextlib.suppress(ValueError):
            connection.close()

    def _opened(self, end: float) -> _Connection:
        connection = _Connection(self._host, self._port)
        # Connected here, because `connect` allows each address of a host the time for all of them.
        connection.sock = self._connected(end)
        return connection

    def _connected(self, end: float) -> socket.socket:
        try:
            places = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as err:
            raise NoConnectionError(is_no_host=True) from err
        failed: Exception | None = None
        for family, kind, protocol, _, place in places:
            opened = socket.socket(family, kind, protocol)
            try:
                opened.settimeout(_left(end))
                opened.connect(place)
                # A request is sent in two parts, and the second must not wait for an answer to the first.
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return opened if self._tls is None else self._tls.wrap_socket(opened, server_hostname=self._host)
            except TimeoutError:
                opened.close()
                raise
            except ssl.SSLError as err:
                opened.close()
                raise BrokenAnswerError(_words_of(err)) from err
            except OSError as err:
                opened.close()
                failed = err
        raise NoConnectionError(is_no_host=False) from failed


def _close_all(connections: list[_Connection]) -> None:
    for connection in connections:
        connection.close()


def _words_of(err: Exception) -> str:
    return " ".join(f"{type(err).__name__}: {err}".split())


def _is_quiet(kept: socket.socket) -> bool:
    """Return whether a connection is still open, and no unexpected bytes came."""
    watched = select.poll()
    watched.register(kept, select.POLLIN)
    return not watched.poll(0)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Bounded(io.RawIOBase):
    """Bytes received from a socket until a deadline, and no more than so many."""

    def __init__(self, source: socket.socket, end: float, most: int) -> None:
        self._socket, self._end, self._most = source, end, most
        # It keeps the socket open when the connection is closed, because servers may close it with the answer.
        self._raw = source.makefile("rb", buffering=0)

    def allow(self, most: int) -> None:
        """Allow so many bytes more."""
        self._most += most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - what io calls a buffer
        self._socket.settimeout(_left(self._end))
        count = self._raw.readinto(buffer)
        self._most -= count or 0
        if self._most < 0:
            raise TooLargeError
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of this: `HTTPResponse` gets this in place of a socket."""
        del mode
        return io.BufferedReader(self)


class _Connection(http.client.HTTPConnection):
    """A connection that sends until a deadline: a socket with TLS allows each of its records the time for all."""

    end = 0.0
    idle_since = 0.0

    def send(self, data: Any) -> None:  # noqa: ANN401 - as the class has it; here it is always bytes
        rest = memoryview(data)
        while rest:
            self.sock.settimeout(_left(self.end))
            rest = rest[self.sock.send(rest[:_PART]) :]


def _exchanged(connection: _Connection, request: HttpRequest, *, end: float, most: int) -> HttpAnswer:
    connection.end = end
    # A server may answer before it reads all, for example that a body is too large.
    with contextlib.suppress(BrokenPipeError):
        connection.request(
            request.method, quote(request.path, safe=_KEPT), body=request.body, headers=dict(request.headers)
        )
    source = _Bounded(connection.sock, end, _HEAD)
    connection.response_class = functools.partial(_response, source)  # type: ignore[assignment] # it is called only
    try:
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        # Chunks come with their lengths; one with a wrong length is not read on for ever.
        source.allow(2 * most + _HEAD)
        body = _joined(_unpacked(_parts(answer), headers.get("content-encoding", ""), most), most)
    except BaseException:
        source.close()
        raise
    return HttpAnswer(status=answer.status, headers=headers, body=body)


def _response(source: _Bounded, sock: object, method: str) -> http.client.HTTPResponse:
    del sock
    return http.client.HTTPResponse(source, method=method)  # type: ignore[arg-type] # all that it calls is makefile


def _joined(parts: Iterator[bytes], most: int) -> bytes:
    pieces, size = [], 0
    for part in parts:
        size += len(part)
        if size > most:
            raise TooLargeError
        pieces.append(part)
    return b"".join(pieces)


def _parts(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    wanted, got = answer.length, 0
    while part := answer.read(_PART):
        got += len(part)
        yield part
    if wanted is not None and got < wanted:
        raise BrokenAnswerError(CUT_OFF, is_gone=True)


def _unpacked(parts: Iterator[bytes], packed: str, most: int) -> Iterator[bytes]:
    """Yield a body unpacked, in parts that are each no larger than all may be."""
    how = packed.strip().lower()
    if how in {"", "identity"}:
        yield from parts
        return
    if how not in _PACKED:
        raise BrokenAnswerError("the body is packed in a way that was not requested")
    unpacker = zlib.decompressobj(_PACKED[how])
    # An empty body is empty when packed, too.
    is_whole = True
    for part in parts:
        rest = part
        while rest:
            if is_whole:
                # A file of gzip may be several in a row.
                unpacker, is_whole = zlib.decompressobj(_PACKED[how]), False
            try:
                yield unpacker.decompress(rest, most + 1)
            except zlib.error as err:
                raise BrokenAnswerError(f"the body is not {how}, as its header declares") from err
            is_whole = unpacker.eof
            rest = unpacker.unused_data if is_whole else unpacker.unconsumed_tail
    if not is_whole:
        raise BrokenAnswerError(CUT_OFF, is_gone=True)
