"""CloudEvents of KServe's logger: a request and its answer come apart, with one id.

Source: KServe's documentation of its inference logger, and CloudEvents 1.0, HTTP protocol binding, binary mode.
"""

from __future__ import annotations

import threading
from typing import Any

from paritygate.pipelines.shadow.capture import UNREADABLE, check_request
from paritygate.pipelines.shadow.payload import HEADER_LENGTH, as_data
from paritygate.pipelines.shadow.sending import MIB, Copy

_KINDS = {"inference.request": "request", "inference.response": "response"}
_MOST_PENDING = 10_000
_MOST_PENDING_BYTES = 256 * MIB


class Events:
    """The events whose other half did not come yet; several threads add to them."""

    def __init__(self) -> None:
        """Begin without any."""
        self.unpaired = 0  # events without the other half
        # Bodies as they came: as data, they would take several times the memory.
        self._pending: dict[str, tuple[str, Copy]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, copy: Copy) -> dict[str, Any] | None:
        """Return a line to write where an event completes a pair; raise ValueError for what `shadow` cannot read."""
        name = copy.headers.get("ce-type", "")
        kind = next((kind for end, kind in _KINDS.items() if name.endswith(end)), None)
        if kind is None:
            msg = f"an event of the type {name!r}"
            raise ValueError(msg)
        data = _data(kind, copy)
        if kind == "request":
            check_request(data)
        with self._lock:
            first = self._paired(copy.headers["ce-id"], kind, copy)
        if first is None:
            return None
        return {first[0]: _data(*first), kind: data}

    def _paired(self, name: str, kind: str, copy: Copy) -> tuple[str, Copy] | None:
        """Return the other half, or keep this one."""
        self.unpaired += 1
        first = self._pending.pop(name, None)
        if first is None:
            kept = {key: value for key, value in copy.headers.items() if key == HEADER_LENGTH}
            self._keep(name, kind, Copy(copy.path, kept, copy.body))
            return None
        self._bytes -= _size(name, first[1])
        if {first[0], kind} == {*_KINDS.values()}:
            self.unpaired -= 2
            return first
        # With two requests under one id, nobody knows whose answer comes: no event with this id is written.
        self._keep(name, "", Copy("", {}, b""))
        return None

    def _keep(self, name: str, kind: str, copy: Copy) -> None:
        self._pending[name] = kind, copy
        self._bytes += _size(name, copy)
        while len(self._pending) > _MOST_PENDING or self._bytes > _MOST_PENDING_BYTES:
            oldest = next(iter(self._pending))
            self._bytes -= _size(oldest, self._pending.pop(oldest)[1])


def _data(kind: str, copy: Copy) -> Any:  # noqa: ANN401 - JSON data
    """Return the body as data; UNREADABLE for an answer that nobody can read, because that is a fault of the server."""
    try:
        return as_data(copy.body, copy.headers)
    except ValueError:
        if kind == "request":
            raise
        return UNREADABLE


def _size(name: str, copy: Copy) -> int:
    return len(name) + len(copy.path) + len(copy.body)
