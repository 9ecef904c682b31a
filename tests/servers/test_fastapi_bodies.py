"""A real FastAPI application that declares another body than is sent answers 422: what `compare` says then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import paritygate as pg

if TYPE_CHECKING:
    from tests.servers.conftest import Server

pytestmark = [pytest.mark.servers, pytest.mark.thorough]
_X = np.random.default_rng(5).standard_normal((40, 3)).astype(np.float32)
_APP = """
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Rows(BaseModel):
    features: list[list[float]]


@app.post("/predict")
@app.post("/v2/models/sums/infer")
def infer(rows: Rows) -> dict:
    return {"scores": [sum(row) for row in rows.features]}
"""
_MAPPING: Mapping[str, Any] = {
    "request": {"inputs": {"x": "features"}},
    "response": {"outputs": {"scores": "scores"}},
}


def sums(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"scores": inputs["x"].sum(axis=1)}


def test_a_body_that_is_declared_otherwise_is_said_field_by_field_and_a_mapping_helps(
    serve_files: Callable[..., AbstractContextManager[Server]],
) -> None:
    command = "uvicorn app:app --host 127.0.0.1 --port 8000"
    with serve_files("fastapi", {"app.py": _APP}, command) as server:
        server.wait_until_it_listens()
        address = server.with_ports("http://127.0.0.1:8000")
        refused = pg.compare(sums, f"{address}/v2/models/sums", samples={"x": _X})
        mapped = pg.compare(sums, f"{address}/predict", samples={"x": _X}, endpoint_json=_MAPPING)

    assert refused.error is not None
    assert refused.error.message == (
        "the server answered HTTP 422, since the body that was sent is not as the server declares it: "
        "body.features: Field required"
    )
    assert "--endpoint-json FILE" in refused.error.hint
    assert mapped.verdict == "pass", str(mapped)
