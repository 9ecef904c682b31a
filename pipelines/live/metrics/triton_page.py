"""Read a server's counts of a model, and the use of its processor, memory and GPUs, from Triton's page of metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from paritygate.errors import BackendError, MeasurementError
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.pipelines.live.metrics.server_counts import ServerCounts
from paritygate.validate.runners.endpoint.client import HttpClient, Pace

_OK = 200
_MIB = 1 << 20
_LINE = re.compile(r"^(nv_[a-z_]+)(?:\{([^}]*)\})?[ \t]+(\S+)", re.MULTILINE)
_NS = 1000


class MachineUse(Struct, frozen=True, kw_only=True):
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
            BackendError: It is not a page with such metrics.
        """
        endpoint = parse_endpoint(url, is_mapped=True)
        self._client = HttpClient(endpoint.host, limits, pace=pace)
        self._path = endpoint.path
        if self.read() is None:
            msg = f"{endpoint.host}{endpoint.path} is not a page of metrics of a Triton server"
            raise BackendError(msg, hint="write for example http://127.0.0.1:8002/metrics, or leave the option out")

    def read(self) -> MachineUse | None:
        """Return the current use, or None without such metrics."""
        return use_in(self._page())

    def counts(self, model: str) -> ServerCounts | None:
        """Return the counts of all versions of a model, or None without them or an answer."""
        try:
            return counts_in_page(self._page(), model)
        except (BackendError, MeasurementError):
            return None

    def _page(self) -> str:
        status, _, body = self._client.exchange("GET", self._path, None, {})
        return body.decode(errors="replace") if status == _OK else ""


def use_in(page: str) -> MachineUse | None:
    """Return the use in a page in Prometheus's text format, or None without metrics of the machine."""
    values_by_name = _values(page, "")
    use = MachineUse(
        cpu_share=_largest(values_by_name.get("nv_cpu_utilization", ())),
        memory_mib=_mib(values_by_name.get("nv_cpu_memory_used_bytes", ())),
        gpu_share=_largest(values_by_name.get("nv_gpu_utilization", ())),
        gpu_memory_mib=_mib(values_by_name.get("nv_gpu_memory_used_bytes", ())),
    )
    return None if use == MachineUse() else use


def counts_in_page(page: str, model: str) -> ServerCounts | None:
    """Return the counts of a model in a page, or None without them."""
    found = {name.removeprefix("nv_"): int(sum(each)) for name, each in _values(page, f'model="{model}"').items()}
    if "inference_count" not in found or "inference_exec_count" not in found:
        return None
    computed = (f"inference_compute_{part}_duration_us" for part in ("input", "infer", "output"))
    return ServerCounts(
        rows=found["inference_count"],
        calls=found["inference_exec_count"],
        requests=found.get("inference_request_success", 0),
        queue_ns=_NS * found.get("inference_queue_duration_us", 0),
        compute_ns=_NS * sum(found.get(name, 0) for name in computed),
        cache_hits=found.get("cache_num_hits_per_model", 0),
    )


def _values(page: str, label: str) -> dict[str, list[float]]:
    """Return the finite values by name, of the lines with a label."""
    values_by_name: dict[str, list[float]] = {}
    for name, labels, text in _LINE.findall(page):
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value) and (not label or label in labels.split(",")):
            values_by_name.setdefault(name, []).append(value)
    return values_by_name


def _largest(values: Sequence[float]) -> float | None:
    return max(values, default=None)


def _mib(values: Sequence[float]) -> float | None:
    return sum(values) / _MIB if values else None
