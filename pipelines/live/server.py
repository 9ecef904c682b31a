"""Connect to the server that is loaded, and compare its description with the release."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.models.endpoint import Endpoint, EndpointLimits, parse_endpoint
from paritygate.models.endpoint import Protocol as ServerProtocol
from paritygate.models.json_mapping import JsonMapping
from paritygate.signature import Signature, TensorSpec, rename_signature
from paritygate.validate.runners.endpoint.client import HttpClient
from paritygate.validate.runners.endpoint.json_fields import JsonFields
from paritygate.validate.runners.endpoint.open_inference import Answer, Asked, OpenInference
from paritygate.validate.runners.endpoint.runner import Server, open_server

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

# Requests for the server's description of itself, beside those that are counted.
_DESCRIPTIONS = 100
# A server may close a connection that was idle for so long. A request on any other one is lost.
_RESENT_AFTER_S = 1.0
_ID_HEADER = "X-Request-Id"


class LoadedServer(Protocol):
    """The calls of a server that is loaded: requests are made before the load, and answers are read after it.

    `send` and `read` raise MeasurementError where the server does not answer, and BackendError for an error or an
    answer that cannot be read.
    """

    @property
    def described(self) -> Server:
        """Return what describes itself and its model."""

    def asked(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> Any:  # noqa: ANN401 - of each protocol
        """Return the request of some inputs, which may be sent more than once."""

    def send(self, asked: Any, name: str) -> Hashable:  # noqa: ANN401 - as above
        """Return the answer to a request with an id, not read yet."""

    def read(self, answer: Any) -> Arrays:  # noqa: ANN401 - as above
        """Return the outputs of an answer by name."""

    def size(self, answer: Any) -> int:  # noqa: ANN401 - as above
        """Return the bytes of an answer in memory."""


class _OverHttp(Struct, frozen=True, kw_only=True):
    """A server of the Open Inference Protocol over HTTP: bytes are made before, and read after the load."""

    described: OpenInference

    def asked(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> Asked:
        return self.described.asked(feed, outputs)

    def send(self, asked: Asked, name: str) -> Answer:
        # Servers and proxies write this header into their logs.
        return self.described.send(replace(asked, headers={**asked.headers, _ID_HEADER: name}))

    def read(self, answer: Answer) -> Arrays:
        return self.described.read(answer)

    def size(self, answer: Answer) -> int:
        return len(answer.content)


class _Outputs(Struct, frozen=True, kw_only=True, eq=False):
    """Outputs as they were read; each is equal to itself alone."""

    arrays: Arrays

    @property
    def digest(self) -> bytes:
        """Return what tells it apart from other answers."""
        found = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            values = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            found.update(repr((name, array.dtype, array.shape, len(values))).encode() + values)
        return found.digest()


class _OfAnyProtocol(Struct, frozen=True, kw_only=True):
    """A server of another protocol, whose requests are made and read while it is loaded."""

    described: Server

    def asked(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> tuple[Arrays, Sequence[TensorSpec]]:
        return feed, outputs

    def send(self, asked: tuple[Arrays, Sequence[TensorSpec]], name: str) -> _Outputs:
        del name
        return _Outputs(arrays=self.described.ask(*asked))

    def read(self, answer: _Outputs) -> Arrays:
        return answer.arrays

    def size(self, answer: _Outputs) -> int:
        return sum(array.nbytes for array in answer.arrays.values())


def check_host(url: str, allowed: str | None, *, is_mapped: bool) -> Endpoint:
    """Return the address of a model that may be loaded.

    Raises:
        UsageError: It is malformed, or its host is another machine that was not named.
    """
    endpoint = parse_endpoint(url, is_mapped=is_mapped)
    host = urlsplit(endpoint.host if "://" in endpoint.host else f"//{endpoint.host}").hostname or ""
    if _is_loopback(host) or host == allowed:
        return endpoint
    msg = f"{host} is another machine, and load can stop a service (got {url}, expected a server on this machine)"
    raise UsageError(msg, hint=f"if you may load it, add --i-may-load {host}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def connect(endpoint: Endpoint, limits: EndpointLimits, mapping: JsonMapping | None, *, callers: int) -> LoadedServer:
    """Return a server, once it has described itself; `mapping` is for one of no known protocol.

    Raises:
        MeasurementError: It does not answer.
        BackendError: It answers with an error.
    """
    limits = replace(limits, requests=limits.requests + _DESCRIPTIONS)
    if endpoint.protocol is ServerProtocol.JSON and mapping is not None:
        return _OfAnyProtocol(described=JsonFields(endpoint, limits, mapping))
    if endpoint.protocol is not ServerProtocol.OPEN_INFERENCE:
        return _OfAnyProtocol(described=open_server(endpoint, limits))
    client = HttpClient(endpoint.host, limits, connections=callers, resent_after_s=_RESENT_AFTER_S)
    return _OverHttp(described=OpenInference(endpoint, limits, client=client))


def served_names(described: Signature | None, released: Signature) -> Signature:
    """Return the signature of a release under the names of a server.

    Triton names the inputs and outputs of TorchScript by their position, such as `x__0`.
    """
    sides = (released.inputs, released.outputs)
    by_position = rename_signature(
        released, {spec.name: f"{spec.name}__{at}" for side in sides for at, spec in enumerate(side)}
    )
    names = {spec.name for spec in described.inputs} if described is not None else set()
    return by_position if names == {spec.name for spec in by_position.inputs} else released


def check_mapping(mapping: JsonMapping | None, released: Signature) -> None:
    """Raise UsageError for a mapping of JSON that names another input, or lacks an output."""
    if mapping is None:
        return
    sides = (("input", mapping.inputs, released.inputs), ("output", mapping.outputs, released.outputs))
    for what, mapped, specs in sides:
        names = {spec.name for spec in specs}
        if mapped.keys() != names:
            msg = f"--endpoint-json has other {what}s (got {', '.join(mapped)}, expected {', '.join(sorted(names))})"
            raise UsageError(msg, hint=f"name the {what}s of the release in the mapping")


def description_differences(described: Signature | None, released: Signature) -> tuple[str, ...]:
    """Return how a server's description of the model differs from the release; empty where it describes nothing."""
    if described is None:
        return ()
    return (*_sides("input", described.inputs, released.inputs), *_sides("output", described.outputs, released.outputs))


def _sides(what: str, described: Sequence[TensorSpec], released: Sequence[TensorSpec]) -> Iterator[str]:
    by_name = {spec.name: spec for spec in described}
    for spec in released:
        other = by_name.pop(spec.name, None)
        if other is None:
            yield f"{what} {spec.name} is missing (the server has: {', '.join(each.name for each in described)})"
        elif other.dtype != spec.dtype or not _is_same_shape(other, spec):
            yield f"{what} {spec.name} is described as {other}, and released as {spec}"
    if what == "input":
        # More outputs harm no client, and one more input does.
        yield from (f"input {name} is not in the release" for name in by_name)


def _is_same_shape(described: TensorSpec, released: TensorSpec) -> bool:
    if described.shape is None or released.shape is None:
        return True
    sizes = zip(described.shape, released.shape, strict=False)
    is_same = all(not (isinstance(a, int) and isinstance(b, int)) or a == b for a, b in sizes)
    return len(described.shape) == len(released.shape) and is_same
