"""Figures for Prometheus while a command runs, alerts on them, and the figures that a Triton server has of itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.loopback import QuietHandler, serving

from paritygate.errors import MissingBackendError, UsageError
from paritygate.pipelines.live.metrics.shown import ALERTS, Metrics, served
from paritygate.pipelines.live.metrics.triton_page import counts_in_page

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

PROMTOOL = shutil.which("promtool")


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _page(port: int) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def _values(page: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in page.splitlines() if line.startswith("paritygate_"))
    return {name: float(value) for name, _, value in lines}


@contextlib.contextmanager
def _reading(port: int) -> Iterator[list[str]]:
    """Yield the pages that somebody reads at a port all the time."""
    pages: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                pages.append(_page(port))
            time.sleep(0.02)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield pages
    finally:
        done.set()
        reader.join()


def _metrics() -> Metrics:
    metrics = Metrics(command="load", model="tiny", released=datetime.now(timezone.utc))
    metrics.add(300, 0, p50_ms=2.0, p99_ms=None)
    metrics.add(299, 1, p50_ms=3.0, p99_ms=8.0)
    return metrics


def test_the_figures_are_served_until_the_verdict_is_read() -> None:
    pytest.importorskip("prometheus_client")
    port, metrics = _port(), _metrics()
    with served(metrics, port):
        running = _values(_page(port))
        metrics.verdict = "pass"
        reader = threading.Thread(target=_page, args=(port,))
        reader.start()
    reader.join()

    of = 'command="load",model="tiny"'
    assert running[f"paritygate_rows_total{{{of}}}"] == 599
    assert running[f"paritygate_flips_total{{{of}}}"] == 1
    assert 1 / 599 < running[f"paritygate_flip_rate_bound{{{of}}}"] < 0.01
    assert running[f'paritygate_verdict{{{of},verdict="running"}}'] == 1
    assert 0 <= running[f"paritygate_evidence_age_seconds{{{of}}}"] < 3600
    assert running[f'paritygate_latency_seconds{{{of},quantile="0.99"}}'] == 0.008
    with pytest.raises(OSError, match="refused"):
        _page(port)


def test_a_port_that_is_taken_is_wrong_usage() -> None:
    pytest.importorskip("prometheus_client")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError),
        served(_metrics(), taken.getsockname()[1]),
    ):
        pytest.fail("nothing can be served there")


def test_without_the_package_nothing_is_served_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with served(_metrics(), None):
        pass
    with pytest.raises(MissingBackendError) as caught, served(_metrics(), _port()):
        pytest.fail("the package is missing")
    assert "metrics" in str(caught.value.next_step["command"])


def test_load_shows_its_verdict(load: Callable[..., Called]) -> None:
    pytest.importorskip("prometheus_client")
    port = _port()
    with _reading(port) as pages:
        called = load("--users", "1", "--seconds", "0.3", "--metrics", str(port))
    last = _values(pages[-1])
    assert called.code == 0, str(called)
    assert last['paritygate_verdict{command="load",model="tiny",verdict="pass"}'] == 1
    assert last['paritygate_rows_total{command="load",model="tiny"}'] == called.data["steps"][0]["answered"] > 0


class _Triton(QuietHandler):
    """A page of metrics on which each reading counts two more requests of 3 rows."""

    readings = 0

    def get(self) -> None:
        type(self).readings += 1
        requests = 2 * self.readings
        figures = {
            "nv_inference_request_success": requests,
            "nv_inference_count": 3 * requests,
            "nv_inference_exec_count": requests,
            "nv_inference_queue_duration_us": 1000 * requests,
            "nv_inference_compute_infer_duration_us": 4000 * requests,
        }
        lines = [f'{name}{{model="tiny",version="1"}} {value}' for name, value in figures.items()]
        lines += ['nv_inference_count{model="other",version="1"} 7', "nv_cpu_utilization 0.5"]
        self.send("\n".join(lines).encode())


def test_load_reports_the_figures_of_the_server_itself(load: Callable[..., Called]) -> None:
    with serving(_Triton) as url:
        called = load("--users", "1", "--seconds", "0.2", "--server-metrics", f"{url}/metrics")

    (step,) = called.data["steps"]
    assert (called.code, step["machine"]["cpu_share"]) == (0, 0.5), str(called)
    counted = step["server"]
    assert (counted["rows"], counted["calls"], counted["requests"]) == (6, 2, 2)
    assert (counted["queue_ns"], counted["compute_ns"]) == (2_000_000, 8_000_000)
    assert max(map(len, called.out.splitlines())) <= 80


def test_an_address_without_metrics_is_an_error_before_the_load(load: Callable[..., Called]) -> None:
    with serving(QuietHandler) as url:
        assert load("--users", "1", "--server-metrics", f"{url}/metrics").code not in {0, 1, 3}
    assert counts_in_page("nv_cpu_utilization 0.5", "tiny") is None


def test_alerts_name_figures_that_exist() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    named = set(re.findall(r"paritygate_\w+", " ".join(rule["expr"] for rule in rules)))
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(_metrics())
    shown = set(re.findall(r"^(paritygate_\w+)", prometheus.generate_latest(registry).decode(), re.MULTILINE))
    assert len(rules) >= 3
    assert named <= shown


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, and there is none on the path")
def test_promtool_accepts_the_alerts() -> None:
    subprocess.run([str(PROMTOOL), "check", "rules", str(ALERTS)], check=True, capture_output=True)


def test_shadow_shows_its_verdict(finished: Desk) -> None:
    pytest.importorskip("prometheus_client")
    line = {"inputs": {"x": "?"}, "status": 400}
    (finished.folder / "traffic.jsonl").write_text(json.dumps(line), encoding="utf-8")
    port = _port()
    with _reading(port) as pages:
        called = finished.call("shadow", "tiny", "--captured", "traffic.jsonl", "--metrics", str(port))
    assert called.code == 3
    assert _values(pages[-1])['paritygate_verdict{command="shadow",model="tiny",verdict="hold"}'] == 1
