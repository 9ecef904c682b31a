"""Promote and rollback while 200 requests a second are answered: none is lost where the server is told to load."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.triton.conftest import GOLDEN, right_answer

from paritygate.errors import ParitygateError
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.validate.runners.endpoint.grpc import OpenInferenceGrpc

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_PER_SECOND = 200
_THREADS = 8
_WITHIN_S = 30.0


class Traffic:
    """Requests at a steady rate, and what came of each: the version that answered, or why none did."""

    def __init__(self, server: Any) -> None:  # noqa: ANN401 - a server of a script
        self._done = threading.Event()
        self._clients = [
            OpenInferenceGrpc(
                parse_endpoint(f"grpc://{server.grpc}/answers"), EndpointLimits(requests_per_second=100_000)
            )
            for _ in range(_THREADS)
        ]
        self.outcomes: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(client,)) for client in self._clients]

    def __enter__(self) -> Traffic:  # noqa: PYI034 - Self is of Python 3.11
        self._begin = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        self.rate = sum(self.outcomes.values()) / (time.monotonic() - self._begin)

    def _ask(self, client: OpenInferenceGrpc) -> None:
        at = time.monotonic()
        while not self._done.is_set():
            try:
                answer = client.ask({"x": GOLDEN}, ())["y"]
                fits = [v for v in (1, 2) if np.allclose(answer, right_answer(GOLDEN, v), atol=1e-5)]
                outcome = f"version {fits[0]}" if fits else "a wrong answer"
            except ParitygateError as err:
                outcome = f"lost: {err}"
            with self._lock:
                self.outcomes[outcome] += 1
            at += _THREADS / _PER_SECOND
            time.sleep(max(0.0, at - time.monotonic()))

    def wait_for(self, version: int) -> None:
        """Wait until some answers are of a version."""
        name, end = f"version {version}", time.monotonic() + _WITHIN_S
        before = self.outcomes[name]
        while time.monotonic() < end:
            if self.outcomes[name] > before + _PER_SECOND // 4:
                return
            time.sleep(0.02)
        pytest.fail(f"no answer of version {version} within {_WITHIN_S} s: {dict(self.outcomes)}")

    @property
    def lost(self) -> int:
        """How many requests no version answered right."""
        return sum(count for name, count in self.outcomes.items() if not name.startswith("version "))


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_promote_and_rollback_under_load(
    mode: str,
    start: Callable[..., Any],
    publish: Callable[..., TritonView],
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(1)
    arguments = {
        "explicit": ["--model-control-mode=explicit", "--load-model=answers"],
        "poll": ["--model-control-mode=poll", "--repository-poll-secs=1"],
    }[mode]

    with start(*arguments) as server:
        server.wait_until_ready("answers", 1)
        with Traffic(server) as traffic:
            traffic.wait_for(1)
            # Promote, then rollback.
            for version in (2, 1):
                publish(version)
                if mode == "explicit":
                    assert server.post("/v2/repository/models/answers/load", {}) is not None
                traffic.wait_for(version)

    total = sum(traffic.outcomes.values())
    with capsys.disabled():
        said = f"{traffic.lost} of {total} requests lost at {traffic.rate:.0f} a second: {dict(traffic.outcomes)}"
        sys.stdout.write(f"\n{mode}: {said}\n")
    assert not any(name == "a wrong answer" for name in traffic.outcomes)
    if mode == "explicit":
        assert traffic.lost == 0
