"""A FastAPI server with a tokenizer calls a real Triton; both are compared with the source and its own tokenizer."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.processes import wait_until

import paritygate as pg

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_WORDS = ["", "a", "good", "bad", "film", "long", "plot"]
_WEIGHTS = np.arange(len(_WORDS), dtype=np.float32) / 8
_CONFIG = """
name: "films"
backend: "python"
max_batch_size: 16
input { name: "input_ids" data_type: TYPE_INT64 dims: [-1] }
output { name: "logits" data_type: TYPE_FP32 dims: [1] }
instance_group { kind: KIND_CPU }
"""
_MODEL = """
import os
import sys

sys.path[:0] = os.environ["PARITYGATE_SHADOW_PATH"].split(os.pathsep)
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(r, "input_ids").as_numpy()) for r in requests]

    def answer(self, ids):
        logits = (ids.astype(np.float32) / 8).sum(axis=1, keepdims=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor("logits", logits)])
"""
_APP = f"""
import json
import urllib.request

from fastapi import FastAPI

WORDS = {_WORDS!r}
app = FastAPI()


@app.post("/tokenize")
def tokenize(request: dict) -> dict:
    rows = [[WORDS.index(word) for word in text.lower().split()][:MOST] for text in request["texts"]]
    return {{"ids": [row + [0] * (max(map(len, rows)) - len(row)) for row in rows]}}


@app.post("/predict")
def predict(request: dict) -> dict:
    ids = tokenize(request)["ids"]
    tensor = {{"name": "input_ids", "datatype": "INT64", "shape": [len(ids), len(ids[0])], "data": ids}}
    body = json.dumps({{"inputs": [tensor]}}).encode()
    with urllib.request.urlopen(urllib.request.Request("TRITON", body)) as answer:
        scores = json.load(answer)["outputs"][0]["data"]
    return {{"scores": scores, "labels": ["good" if score > 1 else "bad" for score in scores]}}
"""
_TOKENS = {
    "request": {"inputs": {"text": "texts"}},
    "response": {"outputs": {"input_ids": "ids"}, "dtypes": {"input_ids": "int64"}},
}
_WHOLE = {
    "request": {"inputs": {"text": "texts"}},
    "response": {"outputs": {"label": "labels", "score": "scores"}, "dtypes": {"label": "string"}},
}


def _tokens(arrays: dict[str, Any]) -> dict[str, Any]:
    rows = [[_WORDS.index(word) for word in str(text).lower().split()][:8] for text in arrays["text"]]
    return {"input_ids": np.asarray([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])}


def _model(arrays: dict[str, Any]) -> dict[str, Any]:
    return {"logits": _WEIGHTS[arrays["input_ids"]].sum(axis=1, keepdims=True)}


def _label(arrays: dict[str, Any]) -> dict[str, Any]:
    scores = arrays["logits"][:, 0]
    return {"label": np.where(scores > 1, "good", "bad"), "score": scores}


@contextlib.contextmanager
def _in_front(place: Path, folder: Path, triton: str, most: int, ports: Callable[[int], list[int]]) -> Iterator[str]:
    """Yield the address of the tokenizer server, which cuts texts after so many tokens."""
    folder.mkdir()
    app = _APP.replace("TRITON", f"http://{triton}/v2/models/films/infer").replace("MOST", str(most))
    (folder / "app.py").write_text(app, encoding="utf-8")
    (port,) = ports(1)
    command = [str(place / "bin/python"), "-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: _listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_truncation_in_front_of_a_real_triton_fails_and_is_named(
    tmp_path: Path, place: Path, servers: ModuleType, start: Callable[..., Any]
) -> None:
    model = tmp_path / "shadow/films/1"
    model.mkdir(parents=True)
    (model.parent / "config.pbtxt").write_text(_CONFIG)
    (model / "model.py").write_text(_MODEL)
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["A", *_WORDS[1:]], size=int(random.integers(2, 9)))) for _ in range(60)]
    options: dict[str, Any] = {"samples": {"text": np.asarray(texts)}, "probes": "none"}
    trained = [("tokenize", _tokens), ("model", _model), ("label", _label)]
    found = {}

    with start() as triton:
        triton.wait_until_ready("films")
        for most in (8, 5):
            with _in_front(place, tmp_path / f"front-{most}", triton.http, most, servers.free_ports) as url:
                address = f"http://{triton.http}/v2/models/films"
                served = [("tokenize", f"{url}/tokenize", _TOKENS), ("model", address), ("label", _label)]
                whole = pg.compare(trained, f"{url}/predict", endpoint_json=_WHOLE, **options)
                found[most] = pg.compare(trained, served, **options), whole

    assert [str(result.verdict) for result in found[8]] == ["pass", "pass"]
    assert [str(result.verdict) for result in found[5]] == ["fail", "fail"]
    (cause,) = found[5][0].causes
    assert [words.values["name"] for words in cause.words if words.key == "stage.differs"] == ["tokenize"]
    assert cause.words[-1].key == "cause.proven"
