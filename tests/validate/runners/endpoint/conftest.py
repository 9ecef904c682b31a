"""A server on the loopback interface that answers for one function, as it is told to, also wrongly or never."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.loopback import QuietHandler, serving

WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


def answers(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what the model behind the server answers: `logits` of `x`, float32[?, 3]."""
    found: np.ndarray[Any, Any] = np.tanh(x @ WEIGHTS)
    return found


@dataclass
class Server:
    """What the server does, and what it was asked."""

    url: str = ""
    name: str = "tiny-server"
    version: str = "1.2"
    extensions: list[str] = field(default_factory=list)
    is_described: bool = True
    # Of the request, counted from 0: what is to happen instead of the right answer.
    instead: Callable[[int], Any] = lambda _: None
    asked: list[str] = field(default_factory=list)
    dtype: str = "FP32"
    datatype_said: str = "FP32"
    versions: list[str] = field(default_factory=list)
    # How many rows it takes at once, as its extension says; 0 where that has none.
    largest_batch: int = 0
    # Set when the test is over: until then, a server that hangs does.
    over: threading.Event = field(default_factory=threading.Event)
    # How it answers of a version that it lacks.
    of_no_version: int = 400
    # Of the answer, counted from 0: the version that it says it is of.
    answered_as: Callable[[int], str | None] = lambda _: None

    @property
    def model(self) -> str:
        return f"{self.url}/v2/models/tiny"


def _of_version(version: str) -> str:
    return f"/v2/models/tiny/versions/{version}"


def pages_of(server: Server) -> dict[str, Any]:
    """Return what it says of itself and of its model, by address."""
    tensors = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
               "outputs": [{"name": "logits", "datatype": server.datatype_said, "shape": [-1, 2]}]}  # fmt: skip
    spec = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "3"}]}}
    out = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "2"}]}}
    known = {"serving_default": {"inputs": {"x": spec}, "outputs": {"logits": out}}}
    pages: dict[str, Any] = {
        "/v2": {"name": server.name, "version": server.version, "extensions": server.extensions},
        "/v1/models/tiny/metadata": {"metadata": {"signature_def": {"signature_def": known}}},
    }
    model = {"name": "tiny", "versions": server.versions, **(tensors if server.is_described else {})}
    if server.largest_batch:
        pages["/v2/models/tiny/config"] = {"name": "tiny", "max_batch_size": server.largest_batch}
    pages |= dict.fromkeys(("/v2/models/tiny", *map(_of_version, server.versions)), model)
    return pages


def handler_of(server: Server) -> type[QuietHandler]:
    """Return what answers as the server is told."""

    class Handler(QuietHandler):
        def get(self) -> None:
            pages = pages_of(server)
            if "/versions/" in self.path and self.path not in pages:
                # As Triton says it.
                self.send(b'{"error": "Request for unknown model: \'tiny\' is not found"}', server.of_no_version)
                return
            self.send_page(pages)

        def post(self) -> None:
            body = self.body()
            server.asked.append(self.path)
            if "/models/tiny" not in self.path:
                self.send(b"{}", 404)
                return
            wrong = server.instead(len(server.asked) - 1)
            if wrong == "vanish":
                # A close alone waits for what else reads from it.
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if wrong == "hang":
                server.over.wait(600)
                self.close_connection = True
                return
            if isinstance(wrong, tuple):
                self.send(wrong[1], wrong[0])
                return
            if self.path == "/v1/models/tiny:predict":
                x = np.asarray(json.loads(body)["inputs"]["x"], dtype=np.float32)
                self.send(json.dumps({"outputs": answers(x).tolist()}).encode())
                return
            length = int(self.headers.get("Inference-Header-Content-Length") or len(body))
            asked = json.loads(body[:length])["inputs"][0]
            flat = asked["data"] if "data" in asked else np.frombuffer(body[length:], dtype=np.float32)
            y = answers(np.asarray(flat, dtype=np.float32).reshape(asked["shape"]))
            y = wrong(y) if callable(wrong) else y
            output: dict[str, Any] = {"name": "logits", "datatype": server.dtype, "shape": list(y.shape)}
            raw = b""
            if "data" in asked:
                output["data"] = y.ravel().tolist()
            else:
                raw = y.astype(np.float32).tobytes()
                output["parameters"] = {"binary_data_size": len(raw)}
            version = server.answered_as(len(server.asked) - 1)
            said = {} if version is None else {"model_version": version}
            head = json.dumps({"model_name": "tiny", **said, "outputs": [output]}).encode()
            extra = {"Inference_Header_Content_Length": str(len(head))} if raw else {}
            self.send(head + raw, **extra)

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server that answers rightly, until it is told otherwise."""
    told = Server()
    with serving(handler_of(told)) as told.url:
        yield told
        told.over.set()
