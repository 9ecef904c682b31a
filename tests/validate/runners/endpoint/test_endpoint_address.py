"""Addresses of models, and how often a server may be asked."""

from __future__ import annotations

import re

import pytest
import yaml

from paritygate.errors import UsageError
from paritygate.models.endpoint import Endpoint, EndpointLimits, Protocol, limits_of, parse_endpoint
from paritygate.models.json_mapping import json_mapping_of


@pytest.mark.parametrize(
    ("text", "protocol", "path", "model", "version"),
    [
        ("http://h:8000/v2/models/m", Protocol.OPEN_INFERENCE, "/v2/models/m", "m", ""),
        ("http://h:8000/v2/models/m/", Protocol.OPEN_INFERENCE, "/v2/models/m", "m", ""),
        ("http://h/v2/models/m/versions/3/infer", Protocol.OPEN_INFERENCE, "/v2/models/m/versions/3", "m", "3"),
        ("https://h/in/front/v2/models/m", Protocol.OPEN_INFERENCE, "/in/front/v2/models/m", "m", ""),
        ("http://[::1]:8501/v1/models/m:predict", Protocol.TENSORFLOW_SERVING, "/v1/models/m", "m", ""),
        (
            "http://h/v1/models/m/labels/canary",
            Protocol.TENSORFLOW_SERVING,
            "/v1/models/m/labels/canary",
            "m",
            "canary",
        ),
        ("grpc://h:8001/m", Protocol.OPEN_INFERENCE_GRPC, "", "m", ""),
        ("grpc://h:8001/m/versions/2", Protocol.OPEN_INFERENCE_GRPC, "", "m", "2"),
    ],
)
def test_an_address_says_how_the_model_is_asked(
    text: str, protocol: Protocol, path: str, model: str, version: str
) -> None:
    found = parse_endpoint(text)

    assert isinstance(found, Endpoint)
    assert (found.protocol, found.path, found.model, found.version) == (protocol, path, model, version)


@pytest.mark.parametrize(
    "text",
    [
        "http://h:8000",
        "http://h:8000/models/m",
        "http:///v2/models/m",
        "ftp://h/v2/models/m",
        "http://h/v2/models/m?x=1",
        "http://user:secret@h/v2/models/m",
        "grpc://h:8001",
        "grpc://h:8001/v2/models/m",
    ],
)
def test_what_is_no_address_of_a_model_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address of a model on a server \\(allowed: http://HOST:PORT/v2"):
        parse_endpoint(text)


def test_an_address_of_no_known_protocol_is_answered_with_the_mapping_that_it_needs() -> None:
    with pytest.raises(UsageError) as caught:
        parse_endpoint("http://127.0.0.1:8000/predict")

    said, _, example = caught.value.hint.partition(", which holds for example ")
    assert said.endswith("; a server of another kind needs --endpoint-json FILE")
    # What the hint says to write is what a file may hold.
    mapping = json_mapping_of(yaml.safe_load(example))
    assert (mapping.inputs, mapping.outputs) == ({"x": "features"}, {"logits": "scores"})


def test_limits_are_set_by_name() -> None:
    assert limits_of({"requests": 5}) == EndpointLimits(requests=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"request": 5}, "endpoint limit 'request' is not known (allowed: requests, "),
        ({"timeout_s": 0}, "endpoint limit timeout_s=0 is not allowed (allowed: above 0)"),
        ({"requests_per_second": float("nan")}, "is not allowed"),
    ],
)
def test_a_limit_that_is_none_is_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        limits_of(given)
