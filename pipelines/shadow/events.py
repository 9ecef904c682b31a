"""CloudEvents of KServe's logger: a request and its answer come apart, with one id.

Source: KServe's documentation of its inference logger, and CloudEvents 1.0, HTTP protocol binding, binary mode.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

_REQUEST, _RESPONSE = "inference.request", "inference.response"
_MOST_PENDING = 10_000


class Events:
    """The events whose other half did not come yet; several threads add to them."""

    def __init__(self) -> None:
        """Begin without any."""
        self._pending: dict[str, dict[str, Any]] = {}
        self._dropped = 0
        self._lock = threading.Lock()

    @property
    def unpaired(self) -> int:
        """The number of events without the other half."""
        return self._dropped + len(self._pending)

    def add(self, headers: Mapping[str, str], data: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a line to write where an event completes a pair; raise ValueError for an event of another type."""
        kind = headers.get("ce-type", "")
        key = next((key for end, key in ((_REQUEST, "request"), (_RESPONSE, "response")) if kind.endswith(end)), None)
        if key is None:
            msg = f"an event of the type {kind!r}"
            raise ValueError(msg)
        with self._lock:
            pair = {**self._pending.pop(headers["ce-id"], {}), key: data}
            if len(pair) > 1:
                return pair
            if len(self._pending) == _MOST_PENDING:
                self._pending.pop(next(iter(self._pending)))
                self._dropped += 1
            self._pending[headers["ce-id"]] = pair
        return None
