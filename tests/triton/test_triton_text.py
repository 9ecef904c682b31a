"""A real Triton that takes raw text and splits it into words itself, held against a model of tensors."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paritygate as pg
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.validate.runners.endpoint.grpc import OpenInferenceGrpc
from paritygate.validate.runners.endpoint.open_inference import OpenInference

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_WORDS = ["", "a", "good", "bad", "film", "żółw", "long", "plot"]
_WEIGHTS = np.arange(len(_WORDS), dtype=np.float32) / 8
_ROWS = 60
_CONFIG = """
name: "films"
backend: "python"
max_batch_size: 16
input { name: "text" data_type: TYPE_STRING dims: [1] }
output { name: "logits" data_type: TYPE_FP32 dims: [1] }
output { name: "first" data_type: TYPE_STRING dims: [1] }
instance_group { kind: KIND_CPU }
"""
_MODEL = f"""
import os
import sys

sys.path[:0] = os.environ["PARITYGATE_SHADOW_PATH"].split(os.pathsep)
import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = {_WORDS!r}


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(r, "text").as_numpy()) for r in requests]

    def answer(self, array):
        rows = [text.decode().split()[:8] for text in array.ravel()]
        logits = np.array([[sum(WORDS.index(word) for word in row) / 8] for row in rows], dtype=np.float32)
        first = np.array([[row[0].encode()] for row in rows], dtype=object)
        outputs = [pb_utils.Tensor("logits", logits), pb_utils.Tensor("first", first)]
        return pb_utils.InferenceResponse(outputs)
"""


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return what the model answers to tensors: a sum of weights, and the first word as text."""
    ids = inputs["input_ids"]
    return {
        "logits": _WEIGHTS[ids].sum(axis=1, keepdims=True),
        "first": np.asarray([[_WORDS[row[0]]] for row in ids]),
    }


def samples(kind: str) -> dict[str, np.ndarray]:
    """Return texts, as text or as byte strings, and what they are as tensors."""
    random = np.random.default_rng(0)
    words = [list(random.choice(_WORDS[1:], size=int(random.integers(6, 9)))) for _ in range(_ROWS)]
    ids = [[_WORDS.index(word) for word in row] + [0] * (8 - len(row)) for row in words]
    texts = [[" ".join(row)] for row in words]
    return {"text": np.char.encode(texts, "utf-8") if kind == "S" else np.asarray(texts), "input_ids": np.asarray(ids)}


def write(tmp_path: Path, most: int) -> None:
    folder = tmp_path / "shadow/films/1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(_CONFIG)
    (folder / "model.py").write_text(textwrap.dedent(_MODEL).replace("[:8]", f"[:{most}]"))


@pytest.mark.parametrize(("most", "verdict"), [(8, "pass"), (5, "fail")])
def test_raw_text_is_judged_with_the_servers_own_preparation(
    tmp_path: Path, start: Callable[..., Any], most: int, verdict: str
) -> None:
    write(tmp_path, most)
    verdicts = {}

    with start() as server:
        server.wait_until_ready("films")
        for address in (f"grpc://{server.grpc}/films", f"http://{server.http}/v2/models/films"):
            for kind in "SU":
                given = samples(kind)
                assert given["text"].dtype.kind == kind
                found = pg.compare(original, address, samples=given, takes={"candidate": "text"})
                assert found.rows == _ROWS
                assert found.outputs["first"].mismatches == 0
                verdicts[address, kind] = str(found.verdict)

    assert set(verdicts.values()) == {verdict}
    assert len(verdicts) == 4


def test_text_goes_and_comes_back_over_three_transports(tmp_path: Path, start: Callable[..., Any]) -> None:
    write(tmp_path, 8)
    limits = EndpointLimits(requests_per_second=100_000)
    texts = [["żółw a"], ["good film"]]
    kinds = {
        "text": np.asarray(texts),
        "byte strings": np.char.encode(texts, "utf-8"),
        "objects": np.asarray([[text.encode()] for (text,) in texts], dtype=object),
    }

    with start() as server:
        server.wait_until_ready("films")
        binary, plain = (OpenInference(parse_endpoint(f"http://{server.http}/v2/models/films"), limits) for _ in "ab")
        plain._is_binary = False
        clients = [binary, plain, OpenInferenceGrpc(parse_endpoint(f"grpc://{server.grpc}/films"), limits)]
        for client in clients:
            for array in kinds.values():
                answer = client.ask({"text": array}, ())
                first = [word.decode() if isinstance(word, bytes) else word for word in answer["first"].ravel()]
                assert first == ["żółw", "good"]
                np.testing.assert_allclose(answer["logits"].ravel(), [6 / 8, 6 / 8])

    assert {client.transport for client in clients} == {"HTTP with bytes", "HTTP with JSON", "gRPC with bytes"}
