"""Read a server's counts of a model: rows, calls, waiting and computing times of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_MS = 1e6


class ServerCounts(Struct, frozen=True, kw_only=True):
    """A server's counts since it loaded the model, or between two such counts."""

    rows: int
    calls: int  # of the model, each with one or more requests
    requests: int = 0
    queue_ns: int = 0  # waiting time of all requests
    compute_ns: int = 0  # with inputs and outputs
    cache_hits: int = 0  # requests answered from a cache

    def since(self, before: ServerCounts) -> ServerCounts:
        """Return the counts between an earlier time and this one."""
        names = list(self.__struct_fields__)
        return ServerCounts(**{name: getattr(self, name) - getattr(before, name) for name in names})

    @property
    def rows_per_call(self) -> float | None:
        """Rows of one call; None where there was none."""
        return self.rows / self.calls if self.calls > 0 else None

    @property
    def queue_ms(self) -> float | None:
        """Mean waiting time of a request in milliseconds; None without requests."""
        return self.queue_ns / self.requests / _MS if self.requests > 0 else None

    @property
    def compute_ms(self) -> float | None:
        """Mean computing time of a request in milliseconds; None without requests."""
        return self.compute_ns / self.requests / _MS if self.requests > 0 else None


def counts_in(said: Mapping[str, Any]) -> ServerCounts:
    """Return the counts of a version, by the names of Triton's statistics extension.

    Raises:
        KeyError: One is missing.
        TypeError: One is not a number; also ValueError.
    """
    parts = said.get("inference_stats") or {}

    def of(name: str, field: str) -> int:
        return int((parts.get(name) or {}).get(field, 0))

    return ServerCounts(
        rows=int(said["inference_count"]),
        calls=int(said["execution_count"]),
        requests=of("success", "count"),
        queue_ns=of("queue", "ns"),
        compute_ns=sum(of(name, "ns") for name in ("compute_input", "compute_infer", "compute_output")),
        cache_hits=of("cache_hit", "count"),
    )
