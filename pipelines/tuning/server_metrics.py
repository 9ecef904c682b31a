"""Read the use of a server's processor, memory and GPUs from Triton's page of metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paritygate.errors import BackendError
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.validate.runners.endpoint.client import HttpClient, Pace

_OK = 200
_MIB = 1 << 20
_LINE = re.compile(r"^(nv_[a-z_]+)(?:\{[^}]*\})?[ \t]+(\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineUse:
    """The use of a server's machine; None where the server does not report it."""

    cpu_share: float | None = None  # of all processors, 0 to 1
    memory_mib: float | None = None
    gpu_share: float | None = None  # of the busiest GPU, 0 to 1
    gpu_memory_mib: float | None = None  # of all GPUs


class MetricsPage:
    """The page of metrics of a server."""

    def __init__(self, url: str, limits: EndpointLimits, pace: Pace) -> None:
        """Read it once.

        Raises:
            UsageError: The address is malformed.
            MeasurementError: Nothing answers there.
            BackendError: It is no page with such metrics.
        """
        endpoint = parse_endpoint(url, is_mapped=True)
        self._client = HttpClient(endpoint.host, limits, pace=pace)
        self._path = endpoint.path
        if self.read() is None:
            msg = f"{endpoint.host}{endpoint.path} is no page of metrics of a Triton server"
            raise BackendError(msg, hint="give for example --metrics http://127.0.0.1:8002/metrics, or leave it out")

    def read(self) -> MachineUse | None:
        """Return the current use, or None without such metrics."""
        status, _, body = self._client.exchange("GET", self._path, None, {})
        return use_in(body.decode(errors="replace")) if status == _OK else None


def use_in(page: str) -> MachineUse | None:
    """Return the use in a page in Prometheus's text format, or None without metrics of the machine."""
    values_by_name: dict[str, list[float]] = {}
    for name, text in _LINE.findall(page):
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            values_by_name.setdefault(name, []).append(value)
    use = MachineUse(
        cpu_share=_largest(values_by_name.get("nv_cpu_utilization", ())),
        memory_mib=_mib(values_by_name.get("nv_cpu_memory_used_bytes", ())),
        gpu_share=_largest(values_by_name.get("nv_gpu_utilization", ())),
        gpu_memory_mib=_mib(values_by_name.get("nv_gpu_memory_used_bytes", ())),
    )
    return None if use == MachineUse() else use


def _largest(values: Sequence[float]) -> float | None:
    return max(values, default=None)


def _mib(values: Sequence[float]) -> float | None:
    return sum(values) / _MIB if values else None
