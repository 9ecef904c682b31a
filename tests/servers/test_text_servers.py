"""Real servers that take raw text and split it into words themselves, held against a model of tensors."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import paritygate as pg

if TYPE_CHECKING:
    from tests.servers.conftest import Server

pytestmark = [pytest.mark.servers, pytest.mark.thorough]
_WORDS = ["", "a", "good", "bad", "film", "żółw", "long", "plot"]
_WEIGHTS = np.arange(len(_WORDS), dtype=np.float32) / 8
_ROWS = 60
# What both servers do; a test replaces 8 words at most by 5, and sees that this fails.
_MODEL = f"""
import numpy as np

WORDS = {_WORDS!r}
WEIGHTS = np.arange(len(WORDS), dtype=np.float32) / 8


def scores(texts):
    return [float(sum(WEIGHTS[WORDS.index(word)] for word in text.split()[:8])) for text in texts]
"""
_FASTAPI = """
from fastapi import FastAPI
from model import scores

app = FastAPI()


@app.post("/predict")
def predict(request: dict) -> dict:
    return {"scores": scores(request["texts"])}


@app.post("/v2/models/films/infer")
def infer(request: dict) -> dict:
    (asked,) = request["inputs"]
    found = scores(asked["data"])
    output = {"name": "logits", "datatype": "FP32", "shape": [len(found)], "data": found}
    return {"model_name": "films", "outputs": [output]}
"""
_MLSERVER = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse, MetadataTensor
from model import scores


class Films(MLModel):
    async def load(self) -> bool:
        self.inputs = [MetadataTensor(name="text", datatype="BYTES", shape=[-1])]
        self.outputs = [MetadataTensor(name="logits", datatype="FP32", shape=[-1])]
        return True

    async def predict(self, payload):
        found = np.asarray(scores(StringCodec.decode_input(payload.inputs[0])), dtype=np.float32)
        output = NumpyCodec.encode_output("logits", found)
        output.shape = [len(found)]
        return InferenceResponse(model_name=self.name, outputs=[output])
"""


@dataclass(frozen=True)
class TextServer:
    """A server of texts: the files that it reads and the command that starts it, on the ports 8000 to 8002.

    Attributes:
        name: Its environment.
        files: What it reads, by name.
        command: What starts it.
        paths: Where it is asked, and by which mapping if by any.
    """

    name: str
    files: Mapping[str, str]
    command: str
    paths: Mapping[str, Mapping[str, Any] | None]


_SERVERS = {
    "fastapi": TextServer(
        "fastapi",
        {"app.py": _FASTAPI},
        "uvicorn app:app --host 127.0.0.1 --port 8000",
        {
            "http://127.0.0.1:8000/predict": {
                "request": {"inputs": {"text": "texts"}},
                "response": {"outputs": {"logits": "scores"}},
            },
            "http://127.0.0.1:8000/v2/models/films": None,
        },
    ),
    "mlserver": TextServer(
        "mlserver",
        {
            "films.py": _MLSERVER,
            "model-settings.json": json.dumps({"name": "films", "implementation": "films.Films"}),
            "settings.json": json.dumps(
                {"host": "127.0.0.1", "http_port": 8000, "grpc_port": 8001, "metrics_port": 8002, "parallel_workers": 0}
            ),
        },
        "mlserver start .",
        {"http://127.0.0.1:8000/v2/models/films": None, "grpc://127.0.0.1:8001/films": None},
    ),
}


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return what the model answers to tensors."""
    return {"logits": _WEIGHTS[inputs["input_ids"]].sum(axis=1)}


def samples(kind: str) -> dict[str, np.ndarray]:
    """Return texts, as text or as byte strings, and what they are as tensors."""
    random = np.random.default_rng(0)
    words = [list(random.choice(_WORDS[1:], size=int(random.integers(6, 9)))) for _ in range(_ROWS)]
    ids = [[_WORDS.index(word) for word in row] + [0] * (8 - len(row)) for row in words]
    texts = [" ".join(row) for row in words]
    return {"text": np.asarray([text.encode() for text in texts] if kind == "S" else texts), "input_ids": np.array(ids)}


@pytest.mark.parametrize("server_of_texts", list(_SERVERS))
def test_raw_text_is_judged_with_the_servers_own_preparation(
    server_of_texts: str, serve_files: Callable[..., AbstractContextManager[Server]]
) -> None:
    asked = _SERVERS[server_of_texts]
    verdicts: dict[tuple[int, str, str], str] = {}
    for most in (8, 5):
        files = {**asked.files, "model.py": textwrap.dedent(_MODEL).replace("[:8]", f"[:{most}]")}
        with serve_files(asked.name, files, asked.command) as server:
            server.wait_until_it_listens()
            for address, mapping in asked.paths.items():
                for kind in "SU":
                    given = samples(kind)
                    assert given["text"].dtype.kind == kind
                    found = pg.compare(
                        original,
                        server.with_ports(address),
                        samples=given,
                        takes={"candidate": "text"},
                        endpoint_json=mapping,
                    )
                    assert found.rows == _ROWS
                    verdicts[most, address, kind] = str(found.verdict)

    wanted = {8: "pass", 5: "fail"}
    assert verdicts == {key: wanted[key[0]] for key in verdicts}
    assert len(verdicts) == 2 * 2 * len(asked.paths)
