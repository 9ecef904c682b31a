"""Parse the address of a model on a server, and the limits on requests to it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from paritygate.addresses import shown_address
from paritygate.errors import UsageError
from paritygate.models.json_mapping import EXAMPLE
from paritygate.text import StrEnum, in_full, nearest_first

_SCHEMES = ("http", "https", "grpc")
_OPEN_INFERENCE = re.compile(r"^(?P<prefix>.*)/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?:/infer)?$")
_TENSORFLOW = re.compile(
    r"^(?P<prefix>.*)/v1/models/(?P<model>[^/:]+)(?:/(?:versions|labels)/(?P<version>[^/:]+))?(?::predict)?$"
)
_GRPC = re.compile(r"^(?P<prefix>)/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?$")
_ALLOWED = (
    "http://HOST:PORT/v2/models/NAME of Triton, KServe or MLServer, grpc://HOST:PORT/NAME of the same, "
    "http://HOST:PORT/v1/models/NAME of TensorFlow Serving"
)


class Protocol(StrEnum):
    """The protocol of a model server.

    `open-inference` is version 2 of the Open Inference Protocol over HTTP, as in Triton, KServe and MLServer.
    `tensorflow-serving` is TensorFlow Serving's REST API. `json` is any other JSON over HTTP, by a mapping.
    """

    OPEN_INFERENCE = "open-inference"
    OPEN_INFERENCE_GRPC = "open-inference-grpc"
    TENSORFLOW_SERVING = "tensorflow-serving"
    JSON = "json"


class EndpointLimits(Struct, frozen=True, kw_only=True):
    """Limits on the requests of one process, so that a comparison is not an attack on the server."""

    requests: float = 100_000
    requests_per_second: float = 200
    timeout_s: float = 30  # of one answer, up to its last byte
    max_answer_mb: float = 256  # MiB of an answer whose size no reference shows
    trials: float = 0  # 1 allows trials, which look for the cause of a failure


class Endpoint(Struct, frozen=True, kw_only=True):
    """The address of a model on a server."""

    protocol: Protocol
    host: str  # with the scheme, such as `http://127.0.0.1:8000`; without one for gRPC
    path: str  # of the model and its version, if one is named; empty for gRPC
    prefix: str  # before the protocol's own paths
    model: str
    version: str = ""  # or its label; empty for the server's choice


def is_url(text: str) -> bool:
    """Return whether a model is named by an address."""
    return "://" in text


def parse_endpoint(text: str, *, is_mapped: bool = False) -> Endpoint:
    """Return the address of a model; `is_mapped` allows other protocols, because a mapping describes the JSON.

    Raises:
        UsageError: No known protocol has such an address, and it is not HTTP with a mapping.
    """
    parts = _parts_of(text)
    if parts is not None:
        endpoint = _by_protocol(parts)
        if endpoint is not None:
            return endpoint
        if is_mapped and parts.scheme != "grpc":
            path = parts.path or "/"
            model = unquote(path.rstrip("/").rpartition("/")[2]) or parts.netloc
            host = f"{parts.scheme}://{parts.netloc}"
            return Endpoint(protocol=Protocol.JSON, host=host, path=path, prefix="", model=model)
    allowed = f"allowed: {_ALLOWED}, any other http:// with --endpoint-json"
    msg = f"{shown_address(text)} is not an address of a model on a server ({allowed})"
    hint = "write for example http://127.0.0.1:8000/v2/models/NAME"
    if "@" in text or "?" in text:
        hint += ", without a user, a password and a query: they are not sent"
    if text.startswith(("http://", "https://")):
        hint += f"; a server of another kind needs --endpoint-json FILE, which holds for example {EXAMPLE}"
    raise UsageError(msg, hint=hint)


def _parts_of(text: str) -> SplitResult | None:
    """Return the parts of an address; None if it is none, or has more than scheme, host, port and path."""
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # The port is not a number, or the brackets hold no IPv6 address.
        return None
    more = parts.query or parts.fragment or "@" in parts.netloc or any(ch.isspace() for ch in text)
    return parts if is_one and text.isprintable() and not more else None


def _by_protocol(parts: SplitResult) -> Endpoint | None:
    patterns = {Protocol.OPEN_INFERENCE: _OPEN_INFERENCE, Protocol.TENSORFLOW_SERVING: _TENSORFLOW}
    if parts.scheme == "grpc":
        patterns = {Protocol.OPEN_INFERENCE_GRPC: _GRPC}
    for protocol, pattern in patterns.items():
        match = pattern.match(parts.path.rstrip("/"))
        if match:
            is_grpc = protocol is Protocol.OPEN_INFERENCE_GRPC
            return Endpoint(
                protocol=protocol,
                host=parts.netloc if is_grpc else f"{parts.scheme}://{parts.netloc}",
                path="" if is_grpc else parts.path.rstrip("/").removesuffix("/infer").removesuffix(":predict"),
                prefix=match["prefix"],
                model=unquote(match["model"]),
                version=unquote(match["version"] or ""),
            )
    return None


def limits_of(given: Mapping[str, float]) -> EndpointLimits:
    """Return the limits, given by the names of `EndpointLimits`.

    Raises:
        UsageError: A name is unknown, or a limit is not above 0.
    """
    names = list(EndpointLimits.__struct_fields__)
    for name, value in given.items():
        if name not in names:
            msg = f"endpoint limit {name!r} is not known (allowed: {', '.join(nearest_first(name, names))})"
            raise UsageError(msg, hint="write for example requests_per_second=50")
        if not (0 < value < math.inf or value == getattr(EndpointLimits(), name)):
            msg = f"endpoint limit {name}={value:g} is not allowed (allowed: above 0)"
            raise UsageError(msg, hint=f"write for example {name}={in_full(getattr(EndpointLimits(), name))}")
    return replace(EndpointLimits(), **given)
