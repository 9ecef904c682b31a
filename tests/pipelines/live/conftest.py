"""A server of a released model on the loopback interface, with faults that a test plants."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from tests.loopback import QuietHandler, serving

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

    Interrupted = Callable[..., tuple[int, dict[str, Any]]]


@dataclass
class Served:
    """The server's state: what it answers, and what it was asked. `tiny` takes x[?, 4] and answers logits[?, 3]."""

    model: Path
    url: str = ""
    # What it says of its output.
    datatype: str = "FP32"
    # Of the request, counted from 0, and of those at work: seconds that it takes.
    takes: Callable[[int, int], float] = lambda *_: 0.0
    # Likewise: a status, or `drop`, in place of an answer.
    instead: Callable[[int, int], Any] = lambda *_: None
    # Of the request and its logits: other logits.
    changed: Callable[[int, Any], Any] = lambda _, logits: logits
    # Whether two requests at work at once get each other's answer, of the request.
    swaps: Callable[[int], bool] = lambda _: False
    # Of one request; more are refused.
    most_rows: int = 1024
    asked: int = 0
    at_work: int = 0
    ids: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    other: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.url}/v2/models/tiny"


def _pages(served: Served) -> dict[str, Any]:
    tensors = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "logits", "datatype": served.datatype, "shape": [-1, 3]}],
    }
    sides = ({"x": 4}, {"logits": 3})
    inputs, outputs = (
        {
            name: {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": f"{width}"}]}}
            for name, width in side.items()
        }
        for side in sides
    )
    signatures = {"signature_def": {"serving_default": {"inputs": inputs, "outputs": outputs}}}
    return {
        "/v1/models/tiny/metadata": {"metadata": {"signature_def": signatures}},
        "/v2": {"name": "test-server", "version": "1.0", "extensions": []},
        "/v2/models/tiny": {"name": "tiny", "versions": ["1"], **tensors},
    }


def _handler(served: Served) -> type[QuietHandler]:
    session = onnxruntime.InferenceSession(str(served.model))

    class Handler(QuietHandler):
        def get(self) -> None:
            self.send_page(_pages(served))

        def post(self) -> None:
            asked = json.loads(self.body())
            if self.path not in {"/v2/models/tiny/infer", "/v1/models/tiny:predict", "/predict"}:
                self.send(b'{"error": "no such model"}', 404)
                return
            tensor = asked["inputs"][0] if self.path.endswith("/infer") else None
            x = np.asarray(
                tensor["data"] if tensor else asked.get("features") or asked["inputs"]["x"], dtype=np.float32
            )
            x = x.reshape(tensor["shape"]) if tensor else x
            with served.lock:
                number, served.asked = served.asked, served.asked + 1
                served.at_work += 1
                at_work = served.at_work
                served.ids.append(self.headers.get("X-Request-Id", ""))
            time.sleep(served.takes(number, at_work))
            logits = served.changed(number, session.run(None, {"x": x})[0])
            instead = served.instead(number, at_work)
            with served.lock:
                served.at_work -= 1
                if at_work > 1 and served.swaps(number) and served.other:
                    logits = served.other[-1]
                served.other.append(logits)
            if len(x) > served.most_rows:
                instead = 400
            if instead == "drop":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if instead is not None:
                self.send(b'{"error": "secret-input is too much"}', instead)
                return
            if not tensor:
                key = "scores" if self.path == "/predict" else "outputs"
                self.send(json.dumps({key: logits.tolist()}).encode())
                return
            output: dict[str, Any] = {
                "name": "logits",
                "datatype": "FP32",
                "shape": list(logits.shape),
                "data": logits.ravel().tolist(),
            }
            self.send(json.dumps({"model_version": "1", "outputs": [output]}).encode())

    return Handler


@pytest.fixture
def served(finished: Desk) -> Iterator[Served]:
    """Yield a server that answers rightly, until it is told otherwise."""
    told = Served(model=finished.folder / "model.onnx")
    with serving(_handler(told)) as told.url:
        yield told


@pytest.fixture
def load(finished: Desk, served: Served) -> Callable[..., Called]:
    """Return a function that calls `load` on the server."""

    def call(*more: str) -> Called:
        return finished.json("load", served.address, "--against", "tiny@prod", "--samples", "inputs.npz", *more)

    return call


@pytest.fixture
def interrupted(finished: Desk, served: Served) -> Interrupted:
    """Return a function that calls a command by itself, and sends it SIGINT while the server answers a request.

    It takes the number of that request, what the server answers, and the words of the command. It returns the exit code
    and the JSON.
    """

    def call(at: int, answer: Callable[[int, Any], Any], command: str, *given: str) -> tuple[int, dict[str, Any]]:
        processes: list[subprocess.Popen[bytes]] = []

        def changed(number: int, logits: Any) -> Any:  # noqa: ANN401 - as the server has it
            if number == at:
                processes[0].send_signal(signal.SIGINT)
            return answer(number, logits)

        served.changed = changed
        words = [command, served.address, "--against", "tiny@prod", "--samples", "inputs.npz", *given]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "paritygate", *words, "--json", "interrupted.json"],
                cwd=finished.folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        code = processes[0].wait(600)
        data: dict[str, Any] = json.loads((finished.folder / "interrupted.json").read_text(encoding="utf-8"))
        return code, data

    return call
