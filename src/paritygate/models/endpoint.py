"""A model that a server answers for: its address, and how often it may be asked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from urllib.parse import SplitResult, unquote, urlsplit

from paritygate.addresses import shown_address
from paritygate.errors import UsageError
from paritygate.models.json_mapping import EXAMPLE
from paritygate.text import in_full, nearest_first

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


class Protocol(str, Enum):
    """How a server is asked.

    `open-inference` is the Open Inference Protocol, version 2, of Triton, KServe and MLServer, over HTTP;
    `open-inference-grpc` the same over gRPC; `tensorflow-serving` the REST API of TensorFlow Serving; `json` any other
    JSON over HTTP, by a mapping.
    """

    OPEN_INFERENCE = "open-inference"
    OPEN_INFERENCE_GRPC = "open-inference-grpc"
    TENSORFLOW_SERVING = "tensorflow-serving"
    JSON = "json"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointLimits:
    """How a server may be asked, so that a comparison is no attack on it.

    Attributes:
        requests: How many requests one process may send.
        requests_per_second: How many in one second.
        timeout_s: Seconds that one answer may take, from the request to the last byte.
        max_answer_mb: MiB that one answer may have where no reference says how large it should be.
        trials: 1 allows trials on it, which look for the cause of a failure.
    """

    requests: float = 100_000
    requests_per_second: float = 200
    timeout_s: float = 30
    max_answer_mb: float = 256
    trials: float = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """The address of a model on a server.

    Attributes:
        protocol: How it is asked.
        host: Scheme, host and port, such as `http://127.0.0.1:8000`; of gRPC host and port.
        path: The path of the model, and of its version where one is named; empty of gRPC.
        prefix: What stands before the protocol's own paths.
        model: The model's name.
        version: Its version or label; empty for what the server chooses.
    """

    protocol: Protocol
    host: str
    path: str
    prefix: str
    model: str
    version: str = ""


def is_url(text: str) -> bool:
    """Return whether a model is named by an address."""
    return "://" in text


def parse_endpoint(text: str, *, is_mapped: bool = False) -> Endpoint:
    """Return the address of a model.

    Args:
        text: The address.
        is_mapped: Whether a mapping says how it is asked where no known protocol does.

    Raises:
        UsageError: It is none that a known protocol has, nor one of HTTP with a mapping.
    """
    parts = _parts_of(text)
    if parts is not None:
        found = _by_protocol(parts)
        if found is not None:
            return found
        if is_mapped and parts.scheme != "grpc":
            path = parts.path or "/"
            model = unquote(path.rstrip("/").rpartition("/")[2]) or parts.netloc
            host = f"{parts.scheme}://{parts.netloc}"
            return Endpoint(protocol=Protocol.JSON, host=host, path=path, prefix="", model=model)
    allowed = f"allowed: {_ALLOWED}, any other http:// with --endpoint-json"
    msg = f"{shown_address(text)} is no address of a model on a server ({allowed})"
    hint = "write for example http://127.0.0.1:8000/v2/models/NAME"
    if "@" in text or "?" in text:
        hint += ", without a user, a password and a query: they are not sent"
    if text.startswith(("http://", "https://")):
        hint += f"; a server of another kind needs --endpoint-json FILE, which holds for example {EXAMPLE}"
    raise UsageError(msg, hint=hint)


def _parts_of(text: str) -> SplitResult | None:
    """Return the parts of an address; None of what is none, or holds more than scheme, host, port and path."""
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # A port that is no number, or brackets without an address of IPv6 in them.
        return None
    more = parts.query or parts.fragment or "@" in parts.netloc or any(ch.isspace() for ch in text)
    return parts if is_one and text.isprintable() and not more else None


def _by_protocol(parts: SplitResult) -> Endpoint | None:
    patterns = {Protocol.OPEN_INFERENCE: _OPEN_INFERENCE, Protocol.TENSORFLOW_SERVING: _TENSORFLOW}
    if parts.scheme == "grpc":
        patterns = {Protocol.OPEN_INFERENCE_GRPC: _GRPC}
    for protocol, pattern in patterns.items():
        found = pattern.match(parts.path.rstrip("/"))
        if found:
            is_grpc = protocol is Protocol.OPEN_INFERENCE_GRPC
            return Endpoint(
                protocol=protocol,
                host=parts.netloc if is_grpc else f"{parts.scheme}://{parts.netloc}",
                path="" if is_grpc else parts.path.rstrip("/").removesuffix("/infer").removesuffix(":predict"),
                prefix=found["prefix"],
                model=unquote(found["model"]),
                version=unquote(found["version"] or ""),
            )
    return None


def limits_of(given: Mapping[str, float]) -> EndpointLimits:
    """Return how a server may be asked, by the names of `EndpointLimits`.

    Raises:
        UsageError: A name is none of them, or a limit is not above 0.
    """
    known = [item.name for item in fields(EndpointLimits)]
    for name, value in given.items():
        if name not in known:
            msg = f"endpoint limit {name!r} is not known (allowed: {', '.join(nearest_first(name, known))})"
            raise UsageError(msg, hint="write for example requests_per_second=50")
        if not (0 < value < math.inf or value == getattr(EndpointLimits(), name)):
            msg = f"endpoint limit {name}={value:g} is not allowed (allowed: above 0)"
            raise UsageError(msg, hint=f"write for example {name}={in_full(getattr(EndpointLimits(), name))}")
    return replace(EndpointLimits(), **given)
