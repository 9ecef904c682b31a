"""Servers as processes of their own: CPU and memory are theirs, and a leak is found."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

    Served = Callable[..., contextlib.AbstractContextManager[str]]

_SCRIPT = Path(__file__).with_name("leaking_server.py")
_AGAINST = ("--against", "tiny@prod", "--samples", "inputs.npz")


@pytest.fixture
def served(finished: Desk) -> Served:
    """Return a function that starts a server, with a leak in MiB a minute and a request that answers drift from."""

    @contextlib.contextmanager
    def start(*, leak: float = 0.0, drift: int = 0) -> Iterator[str]:
        command = [sys.executable, str(_SCRIPT), str(finished.folder / "model.onnx"), str(leak), str(drift)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield f"http://127.0.0.1:{int(process.stdout.readline())}/v2/models/tiny"
            finally:
                process.kill()

    return start


def test_cpu_and_memory_are_those_of_the_process_that_listens(finished: Desk, served: Served) -> None:
    with served() as url:
        called = finished.json("load", url, *_AGAINST, "--users", "2", "--seconds", "1.5")

    (step,) = called.data["steps"]
    assert (called.code, called.data["not_watched"]) == (0, ""), str(called)
    assert 10 < step["memory"] < 2000
    assert step["cpu"] > 0


@pytest.mark.slow
@pytest.mark.thorough
def test_a_leak_and_a_drift_are_found_in_90_seconds(finished: Desk, served: Served) -> None:
    with served(leak=5.0, drift=5000) as url:
        called = finished.json("endurance", url, *_AGAINST, "--minutes", "1.5", "--rate", "100")

    data = called.data
    assert (called.code, data["verdict"], len(data["reasons"]), data["wrong"]) == (1, "fail", 2, 0), str(called)
    assert data["memory"]["low"] > 1
    assert 2 < data["memory"]["per_minute"] < 8
    assert data["drift"]["last"] - data["drift"]["first"] > 0.1
    assert data["drift"]["request"] > 4500


@pytest.mark.slow
@pytest.mark.thorough
def test_the_same_server_without_either_passes(finished: Desk, served: Served) -> None:
    with served() as url:
        called = finished.json("endurance", url, *_AGAINST, "--minutes", "1.5", "--rate", "100")

    assert (called.code, called.data["reasons"]) == (0, []), str(called)
