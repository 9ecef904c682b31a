"""The Open Inference Protocol over gRPC: a server of it on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest

import paritygate as pg
from paritygate.validate.runners.endpoint.messages import SERVICE, messages

_X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
_WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"logits": np.tanh(inputs["x"] @ _WEIGHTS)}


class _Model:
    """What the server answers; `error` is added, and `refused` is a code of gRPC in place of an answer."""

    error = 0.0
    refused: grpc.StatusCode | None = None

    def handlers(self) -> dict[str, Any]:
        made = {}
        for method in ("ServerMetadata", "ModelMetadata", "ModelInfer"):
            request, response = (messages()[f"{method}{side}"] for side in ("Request", "Response"))
            made[method] = grpc.unary_unary_rpc_method_handler(
                getattr(self, method), request.FromString, response.SerializeToString
            )
        return made

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802, ARG002
        return messages()["ServerMetadataResponse"](name="tiny-server", version="3")

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        if request.name != "tiny":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
        tensor = {"datatype": "FP32", "shape": [-1, 3]}
        return messages()["ModelMetadataResponse"](
            name="tiny", inputs=[{"name": "x", **tensor}], outputs=[{"name": "logits", **tensor, "shape": [-1, 2]}]
        )

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        if self.refused is not None:
            context.abort(self.refused, "as it was told")
        x = np.frombuffer(request.raw_input_contents[0], dtype=np.float32).reshape(request.inputs[0].shape)
        y = np.tanh(x @ _WEIGHTS) + np.float32(self.error)
        return messages()["ModelInferResponse"](
            outputs=[{"name": "logits", "datatype": "FP32", "shape": y.shape}], raw_output_contents=[y.tobytes()]
        )


@pytest.fixture
def model() -> Iterator[tuple[_Model, str]]:
    """Yield what the server answers with, and its address."""
    told = _Model()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, told.handlers()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield told, f"grpc://127.0.0.1:{port}/tiny"
    server.stop(grace=None).wait()


def compare(url: str) -> pg.Comparison:
    return pg.compare(
        original, url, samples={"x": _X}, probes=["batches"], endpoint={"requests_per_second": 1e5, "timeout_s": 5}
    )


def test_a_server_that_answers_as_the_original_passes(model: tuple[_Model, str]) -> None:
    result = compare(model[1])

    assert result.verdict == "pass", str(result)
    assert (result.candidate.runtime, result.candidate.version) == ("tiny-server", "3")


def test_a_server_that_answers_otherwise_fails(model: tuple[_Model, str]) -> None:
    model[0].error = 0.01

    assert compare(model[1]).verdict == "fail"


@pytest.mark.parametrize(
    ("code", "verdict", "words"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "fail", "the server answered INVALID_ARGUMENT: as it was told"),
        (grpc.StatusCode.UNAVAILABLE, "error", "does not answer: UNAVAILABLE: as it was told"),
    ],
)
def test_a_server_that_refuses_is_said_in_its_own_words(
    model: tuple[_Model, str], code: grpc.StatusCode, verdict: str, words: str
) -> None:
    model[0].refused = code

    result = compare(model[1])

    assert (result.verdict, words in str(result)) == (verdict, True), str(result)


def test_a_model_that_the_server_does_not_have(model: tuple[_Model, str]) -> None:
    assert "NOT_FOUND: no model other" in str(compare(model[1].replace("/tiny", "/other")))
