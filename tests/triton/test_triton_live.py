"""`make live-demo`: a real Triton, a real proxy and a wrong file; and no process stays behind, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.processes import is_alive, wait_until
from tests.triton.conftest import GOLDEN

from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.pipelines.live.metrics.triton_page import MetricsPage
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.validate.runners.endpoint.client import Pace
from paritygate.validate.runners.endpoint.open_inference import OpenInference

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_ROOT = Path(__file__).resolve().parents[2]
_LIMITS = EndpointLimits(requests_per_second=100_000)


def _demo(place: Path, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(_ROOT / "benchmarks/triton/live_demo.py"), str(place)], cwd=folder)


@pytest.fixture(scope="module")
def demonstrated(place: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return the folder of a whole demo, in which its release is, and its exit code."""
    folder = tmp_path_factory.mktemp("demo")
    with _demo(place, folder) as process:
        return folder, process.wait()


def test_the_released_file_is_promoted_and_a_wrong_one_is_rolled_back(demonstrated: tuple[Path, int]) -> None:
    assert demonstrated[1] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_process_stays_behind(
    demonstrated: tuple[Path, int], place: Path, number: signal.Signals, code: int
) -> None:
    with _demo(place, demonstrated[0]) as process:
        wait_until(lambda: {"tritonserver", "traefik"} <= set(_below(process.pid).values()))
        started = _below(process.pid)
        process.send_signal(number)
        assert process.wait() == code
    wait_until(lambda: not any(map(is_alive, started)))


def _below(pid: int) -> dict[int, str]:
    """Return the names of the processes below a process, by their id."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(path.parent.name)], names[int(path.parent.name)] = int(rest.split()[1]), name
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {each: names[each] for each in found - {pid, os.getpid()}}


def test_the_servers_own_counts_are_read_from_its_metrics(
    start: Callable[..., Any], publish: Callable[..., TritonView]
) -> None:
    publish(1)
    with start() as server:
        server.wait_until_ready("answers", 1)
        url = f"http://{server.metrics}/metrics"
        page = MetricsPage(url, _LIMITS, Pace(_LIMITS, url))
        before = page.counts("answers")
        client = OpenInference(parse_endpoint(f"http://{server.http}/v2/models/answers"), _LIMITS)
        for _ in range(3):
            assert np.isfinite(client.ask({"x": GOLDEN}, ())["y"]).all()
        after = page.counts("answers")
        assert before is not None
        assert after is not None
        counted = after.since(before)
        assert (counted.requests, counted.rows) == (3, 3 * len(GOLDEN))
        assert counted.compute_ms is not None
        assert counted.compute_ms > 0
        assert page.counts("another") is None
