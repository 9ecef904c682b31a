"""The Open Inference Protocol, version 2, over HTTP: Triton, KServe, MLServer.

Values go as bytes where the server takes them so, else as JSON: MLServer refuses bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from paritygate.errors import BackendError, MeasurementError, ParitygateError
from paritygate.models.endpoint import Endpoint, EndpointLimits
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.tensors import as_bytes, as_json_values, datatype_of, from_bytes, spec_of
from paritygate.validate.runners.endpoint.versions import AnsweredVersions, no_such_version

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONFIGURATION", "Answer", "Asked", "OpenInference"]

_BINARY, CONFIGURATION = "binary_tensor_data", "model_configuration"
_HEADER_LENGTH = "Inference-Header-Content-Length"
_KSERVE_VERSION = re.compile(r"(\d+)\.(\d+)")
_KSERVE_TAKES_BYTES = (0, 14)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request as it is sent."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer as it was received: JSON of some length, and the bytes behind it."""

    length: int
    content: bytes


class OpenInference:
    """One model of a server, asked over HTTP."""

    def __init__(self, endpoint: Endpoint, limits: EndpointLimits, *, client: HttpClient | None = None) -> None:
        """Ask the server what it is.

        Args:
            endpoint: Where the model is.
            limits: How often it may be asked.
            client: What asks it; one of its own within these limits if None.

        Raises:
            MeasurementError: It does not answer.
            BackendError: It answers with an error.
        """
        self._client = client or HttpClient(endpoint.host, limits)
        self._endpoint, self._path = endpoint, endpoint.path
        self._versions = AnsweredVersions(endpoint)
        server = self._client.get(f"{quote(endpoint.prefix)}/v2") or {}
        self.server = str(server.get("name") or "unknown")
        self.version = str(server.get("version") or "unknown")
        self._extensions = server.get("extensions") or ()
        self._is_binary = _BINARY in self._extensions or _takes_bytes_unsaid(self.server, self.version)

    @property
    def transport(self) -> str:
        """In which form values are sent."""
        return f"HTTP with {'bytes' if self._is_binary else 'JSON'}"

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that it answered as by now."""
        return self._versions.found

    def signature(self) -> Signature | None:
        """Return what the server says of the model; None where it says nothing of its inputs or outputs.

        A server that answers the model's requests alone says nothing either: whether the model is there shows then.

        Raises:
            BackendError: Its description cannot be read, or it has other versions than the one asked for.
        """
        said = self._described() or {}
        sides = [tuple(map(spec_of, said.get(side) or ())) for side in ("inputs", "outputs")]
        return Signature(inputs=sides[0], outputs=sides[1]) if all(sides) else None

    def largest_batch(self) -> int | None:
        """Return how many rows it takes at once, as Triton's extension says; None where nothing is said or needed."""
        if CONFIGURATION not in self._extensions:
            return None
        # Zero says that no dim counts rows.
        return (self._client.get(f"{self._path}/config") or {}).get("max_batch_size") or None

    def _described(self) -> Any:  # noqa: ANN401 - JSON data
        if not self._endpoint.version:
            return self._client.get(self._path)
        try:
            said = self._client.get(self._path)
        except (BackendError, MeasurementError) as err:
            # Triton calls a version that it never had a wrong request, and is unavailable for one that it unloaded.
            self._check_version(str(err).partition("\n")[0], err)
            raise
        if said is None:
            self._check_version("")
        return said

    def _check_version(self, answer: str, err: ParitygateError | None = None) -> None:
        model = self._client.get(self._path.rpartition("/versions/")[0]) or {}
        has = tuple(map(str, model.get("versions") or ()))
        if has and self._endpoint.version not in has:
            raise no_such_version(self._endpoint, has, answer) from err

    def ask(
        self, feed: Mapping[str, NDArray[np.generic]], outputs: Sequence[TensorSpec]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name; all that the server has where none are named.

        Raises:
            MeasurementError: The server does not answer.
            BackendError: It refuses the inputs, or what it answers cannot be read.
        """
        return self.read(self.send(self.asked(feed, outputs)))

    def asked(self, feed: Mapping[str, NDArray[np.generic]], outputs: Sequence[TensorSpec]) -> Asked:
        """Return the request of some inputs, which may be sent more than once."""
        bodies, inputs = [], []
        for name, array in feed.items():
            said: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype_of(array)}
            if self._is_binary:
                bodies.append(as_bytes(array))
                said["parameters"] = {"binary_data_size": len(bodies[-1])}
            else:
                said["data"] = as_json_values(array)
            inputs.append(said)
        asked: dict[str, Any] = {"inputs": inputs}
        # For each output as well: KServe answers those that are named as JSON otherwise.
        as_values = {"parameters": {"binary_data": True}} if self._is_binary else {}
        if self._is_binary:
            asked["parameters"] = {"binary_data_output": True}
        if outputs:
            asked["outputs"] = [{"name": spec.name, **as_values} for spec in outputs]
        header = json.dumps(asked).encode()
        headers = {"Content-Type": "application/json"}
        if self._is_binary:
            headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(len(header))}
        return Asked(body=header + b"".join(bodies), headers=headers)

    def send(self, asked: Asked) -> Answer:
        """Return the answer to a request, not read yet.

        Raises:
            MeasurementError: The server does not answer.
            BackendError: It refuses the inputs.
        """
        answered, content = self._client.post(f"{self._path}/infer", asked.body, asked.headers)
        return Answer(length=int(answered.get(_HEADER_LENGTH) or len(content)), content=content)

    def read(self, answer: Answer) -> dict[str, NDArray[np.generic]]:
        """Return the outputs of an answer by name.

        Raises:
            BackendError: It cannot be read.
        """
        said = as_json(answer.content[: answer.length])
        found = _outputs(said, answer.content[answer.length :])
        self._versions.add(said.get("model_version"))
        return found


def _takes_bytes_unsaid(server: str, version: str) -> bool:
    """Return whether a server takes bytes that does not list it: KServe, since 0.14."""
    found = _KSERVE_VERSION.match(version)
    return server == "kserve" and found is not None and (int(found[1]), int(found[2])) >= _KSERVE_TAKES_BYTES


def _outputs(said: Any, raw: bytes) -> dict[str, NDArray[np.generic]]:  # noqa: ANN401 - JSON data
    found: dict[str, NDArray[np.generic]] = {}
    at = 0
    try:
        for output in said["outputs"]:
            spec = spec_of(output)
            shape = tuple(int(size) for size in output["shape"])
            size = (output.get("parameters") or {}).get("binary_data_size")
            if size is None:
                kind = object if spec.dtype == "string" else np.dtype(_of_numpy(spec.dtype))
                found[spec.name] = np.asarray(output["data"], dtype=kind).reshape(shape)
            else:
                found[spec.name] = from_bytes(raw[at : at + size], spec.dtype, shape)
                at += size
            if found[spec.name].size != math.prod(shape):
                raise ValueError(spec.name)  # noqa: TRY301 - as every other answer that cannot be read
    except BackendError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        msg = f"the answer of the server cannot be read: {type(err).__name__}: {err}"
        raise BackendError(msg, hint="the protocol is the Open Inference Protocol, version 2") from err
    return found


def _of_numpy(dtype: str) -> Any:  # noqa: ANN401 - what NumPy takes as a dtype
    if dtype != "bfloat16":
        return dtype
    import ml_dtypes

    return ml_dtypes.bfloat16
