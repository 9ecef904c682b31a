"""The Open Inference Protocol, version 2, over HTTP: Triton, KServe, MLServer.

Values go as bytes where the server takes them so, else as JSON, because MLServer refuses bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct

from paritygate.batch import Arrays
from paritygate.errors import BackendError, MeasurementError, ParitygateError
from paritygate.models.endpoint import Endpoint, EndpointLimits
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.descriptions import batch_size_in, mapping_in, signature_in, text_in, texts_in
from paritygate.validate.runners.endpoint.json_values import array_of, shape_of, shown
from paritygate.validate.runners.endpoint.tensors import (
    as_bytes,
    as_json_values,
    datatype_of,
    from_bytes,
    name_and_dtype,
    spec_of,
)
from paritygate.validate.runners.endpoint.versions import AnsweredVersions, no_such_version
from paritygate.validate.runners.endpoint.words import in_short

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BINARY, CONFIGURATION = "binary_tensor_data", "model_configuration"
_HEADER_LENGTH = "Inference-Header-Content-Length"
_KSERVE_VERSION = re.compile(r"(\d+)\.(\d+)")
_KSERVE_TAKES_BYTES = (0, 14)
# No length of bytes has more digits.
_DIGITS = 20
_HINT = "the protocol is the Open Inference Protocol, version 2"


class Asked(Struct, frozen=True, kw_only=True):
    """A request as it is sent."""

    body: bytes
    headers: Mapping[str, str]


class Answer(Struct, frozen=True, kw_only=True):
    """An answer as received: JSON of some length, followed by bytes."""

    length: int
    content: bytes

    @property
    def digest(self) -> tuple[int, bytes]:
        """Return what tells it apart from other answers."""
        return self.length, hashlib.sha256(self.content).digest()


class OpenInference:
    """One model of a server, reached over HTTP with a client of its own if None is given."""

    def __init__(self, endpoint: Endpoint, limits: EndpointLimits, *, client: HttpClient | None = None) -> None:
        """Read the server's description of itself.

        Raises:
            MeasurementError: It does not answer.
            BackendError: It answers with an error.
        """
        self._client = client or HttpClient(endpoint.host, limits)
        self._endpoint, self._path = endpoint, endpoint.path
        self._versions = AnsweredVersions(endpoint)
        server = mapping_in(self._client.get(f"{quote(endpoint.prefix)}/v2"), "what it says of the server")
        self.server = text_in(server, "name") or "unknown"
        self.version = text_in(server, "version") or "unknown"
        self._extensions = texts_in(server, "extensions")
        self._is_binary = _BINARY in self._extensions or _takes_bytes_unsaid(self.server, self.version)

    @property
    def transport(self) -> str:
        """Return the form in which values are sent."""
        return f"HTTP with {'bytes' if self._is_binary else 'JSON'}"

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions of its answers so far."""
        return self._versions.found

    def signature(self) -> Signature | None:
        """Return the server's description of the model; None where it lacks inputs or outputs.

        A server that only runs the model describes nothing, so its requests show whether the model is there.
        BackendError is raised where the description cannot be read, or lacks the requested version.
        """
        return signature_in(mapping_in(self._described(), "what it says of the model"), spec_of)

    def largest_batch(self) -> int | None:
        """Return the most rows of a request, by Triton's extension; None where it is missing or needless."""
        if CONFIGURATION not in self._extensions:
            return None
        configuration = self._client.get(f"{self._path}/config")
        return batch_size_in(mapping_in(configuration, "the model's configuration"), "max_batch_size")

    def _described(self) -> Any:  # noqa: ANN401 - JSON data
        if not self._endpoint.version:
            return self._client.get(self._path)
        try:
            description = self._client.get(self._path)
        except (BackendError, MeasurementError) as err:
            # Triton calls a version that it never had a wrong request, and is unavailable for one that it unloaded.
            self._check_version(str(err).partition("\n")[0], err)
            raise
        if description is None:
            self._check_version("")
        return description

    def _check_version(self, answer: str, err: ParitygateError | None = None) -> None:
        model = mapping_in(self._client.get(self._path.partition("/versions/")[0]), "what it says of the model")
        has = texts_in(model, "versions")
        if has and self._endpoint.version not in has:
            raise no_such_version(self._endpoint, has, answer) from err

    def ask(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name; all that the server has where none are named."""
        return self.read(self.send(self.asked(feed, outputs)))

    def asked(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> Asked:
        """Return the request of some inputs, which may be sent more than once."""
        bodies, inputs = [], []
        for name, array in feed.items():
            entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype_of(array)}
            if self._is_binary:
                bodies.append(as_bytes(array))
                entry["parameters"] = {"binary_data_size": len(bodies[-1])}
            else:
                entry["data"] = as_json_values(array)
            inputs.append(entry)
        request: dict[str, Any] = {"inputs": inputs}
        # Each output needs it too, because KServe returns those that are named as JSON otherwise.
        as_values = {"parameters": {"binary_data": True}} if self._is_binary else {}
        if self._is_binary:
            request["parameters"] = {"binary_data_output": True}
        if outputs:
            request["outputs"] = [{"name": spec.name, **as_values} for spec in outputs]
        header = json.dumps(request).encode()
        headers = {"Content-Type": "application/json"}
        if self._is_binary:
            headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(len(header))}
        return Asked(body=header + b"".join(bodies), headers=headers)

    def send(self, asked: Asked) -> Answer:
        """Return the answer to a request, not read yet.

        MeasurementError is raised where the server does not answer, BackendError where it refuses the inputs.
        """
        answered, content = self._client.post(f"{self._path}/infer", asked.body, asked.headers)
        length = answered.get(_HEADER_LENGTH.lower(), str(len(content)))
        is_number = length.isascii() and length.isdecimal() and len(length) <= _DIGITS
        if not is_number or int(length) > len(content):
            msg = f"the server returned {len(content)} bytes, but declares {in_short(length)} bytes of JSON"
            raise BackendError(msg, hint=_HINT)
        return Answer(length=int(length), content=content)

    def read(self, answer: Answer) -> dict[str, NDArray[np.generic]]:
        """Return the outputs of an answer by name; raise BackendError where it cannot be read."""
        content = as_json(answer.content[: answer.length])
        if not isinstance(content, dict) or not isinstance(content.get("outputs"), list):
            raise BackendError(f"the answer of the server has no list of outputs (it is: {shown(content)})", hint=_HINT)
        arrays = _outputs(content["outputs"], answer.content[answer.length :])
        self._versions.add(content.get("model_version"))
        return arrays


def _takes_bytes_unsaid(server: str, version: str) -> bool:
    """Return whether a server takes bytes without listing it: KServe, since 0.14."""
    match = _KSERVE_VERSION.match(version)
    return server == "kserve" and match is not None and (int(match[1]), int(match[2])) >= _KSERVE_TAKES_BYTES


def _outputs(said: Sequence[Any], raw: bytes) -> dict[str, NDArray[np.generic]]:
    """Return the outputs of an answer by name; `raw` holds their bytes in order.

    BackendError is raised where one cannot be read or is there twice, or bytes are left over.
    """
    arrays: dict[str, NDArray[np.generic]] = {}
    at = 0
    for output in said:
        name, array, at = _output(output, raw, at)
        if name in arrays:
            raise BackendError(f"the server answered the output {in_short(name)} twice", hint=_HINT)
        arrays[name] = array
    if at != len(raw):
        raise BackendError(f"the server answered {len(raw)} bytes of values, but its outputs have {at}", hint=_HINT)
    return arrays


def _output(said: Any, raw: bytes, begin: int) -> tuple[str, NDArray[np.generic], int]:  # noqa: ANN401 - JSON data
    """Return name and values of one output, and where the bytes of the next one begin."""
    try:
        name, dtype = name_and_dtype(said)
        size = (said.get("parameters") or {}).get("binary_data_size")
    except (TypeError, AttributeError) as err:
        raise BackendError(f"the answer of the server cannot be read: an output is {shown(said)}", hint=_HINT) from err
    end = begin if size is None else _end(begin, size, raw)
    try:
        shape = shape_of(said.get("shape"))
        if size is None:
            return name, array_of(said.get("data"), dtype, shape), end
        return name, from_bytes(raw[begin:end], dtype, shape), end
    except (ValueError, OverflowError) as err:
        msg = f"the answer of the server cannot be read: {in_short(name)} holds {err}"
        raise BackendError(msg, hint=_HINT) from err


def _end(at: int, size: object, raw: bytes) -> int:
    if type(size) is not int or not 0 <= size <= len(raw) - at:
        msg = f"the server returned {len(raw)} bytes of values, but an output needs {shown(size)} from {at} on"
        raise BackendError(msg, hint=_HINT)
    return at + size
