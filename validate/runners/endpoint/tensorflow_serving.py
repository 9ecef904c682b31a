"""The REST API of TensorFlow Serving, in its column form: `inputs` and `outputs` by name.

Source: the description of the RESTful API in the documentation of TensorFlow Serving.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import BackendError
from paritygate.models.endpoint import Endpoint, EndpointLimits
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.descriptions import mapping_in, refuse_description, signature_in
from paritygate.validate.runners.endpoint.json_values import array_of, shown
from paritygate.validate.runners.endpoint.tensors import dim_of, is_text
from paritygate.validate.runners.endpoint.words import in_short

DEFAULT_SIGNATURE = "serving_default"
_HINT = "outputs are expected by name, as the metadata of the model has them"
# Names of dtypes in the protocol buffer `DataType` that REST can carry.
_DTYPES = {
    "DT_BOOL": "bool",
    "DT_HALF": "float16",
    "DT_BFLOAT16": "bfloat16",
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_INT8": "int8",
    "DT_INT16": "int16",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
    "DT_UINT8": "uint8",
    "DT_UINT16": "uint16",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
    "DT_STRING": "string",
}


class TensorFlowServing:
    """One model of TensorFlow Serving, reached by REST; its signature is `serving_default` unless another is named."""

    server = "tensorflow-serving"
    # The server does not name its version.
    version = "unknown"
    transport = "HTTP with JSON"
    # Its answers do not name the model's version.
    versions: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, limits: EndpointLimits, signature_key: str | None) -> None:
        self._client = HttpClient(endpoint.host, limits)
        self._path = endpoint.path
        self._key = signature_key or DEFAULT_SIGNATURE

    def signature(self) -> Signature | None:
        """Return the server's description of the model.

        BackendError is raised where there is no such model or signature, or its description cannot be read.
        """
        description = self._client.get(f"{self._path}/metadata")
        if description is None:
            msg = f"the server at {self._client.host} has no model at {self._path}"
            raise BackendError(msg, hint="check the model's name and version, and that the server has loaded it")
        try:
            signatures = description["metadata"]["signature_def"]["signature_def"]
            described = signatures.get(self._key)
        except (KeyError, TypeError, AttributeError):
            refuse_description("it has to hold metadata.signature_def.signature_def", description)
        if described is None:
            msg = f"the model on the server has no signature {self._key!r} (it has: {in_short(', '.join(signatures))})"
            raise BackendError(msg, hint="name one with --signature candidate=NAME")
        named = mapping_in(described, f"the signature {self._key}")
        sides = {side: list(mapping_in(named.get(side), side).items()) for side in ("inputs", "outputs")}
        result = signature_in(sides, _spec)
        if result is None:
            refuse_description(f"the signature {self._key} has to have inputs and outputs", described)
        return result

    def largest_batch(self) -> None:
        """Return None: the server does not limit the rows of a request."""

    def ask(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name."""
        inputs = {name: _values(array) for name, array in feed.items()}
        request = {"signature_name": self._key, "inputs": inputs}
        headers = {"Content-Type": "application/json"}
        content = as_json(self._client.post(f"{self._path}:predict", json.dumps(request).encode(), headers)[1])
        return self._read(content, outputs)

    def _read(self, said: object, outputs: Sequence[TensorSpec]) -> dict[str, NDArray[np.generic]]:
        results = said.get("outputs") if isinstance(said, dict) else None
        # A single output comes without its name.
        is_named = len(outputs) > 1 or (isinstance(results, dict) and results.keys() != {"b64"})
        by_name = results if is_named else {outputs[0].name: results}
        if results is None or not isinstance(by_name, dict):
            raise BackendError(f"the answer of the server has no outputs by name (it is: {shown(said)})", hint=_HINT)
        arrays = {}
        for spec in outputs:
            if spec.name not in by_name:
                has = in_short(", ".join(map(str, by_name)))
                msg = f"the server did not answer {spec.name} (it answered: {has or 'nothing'})"
                raise BackendError(msg, hint=_HINT)
            try:
                arrays[spec.name] = array_of(by_name[spec.name], spec.dtype)
            except ValueError as err:
                msg = f"the answer of the server cannot be read: {in_short(spec.name)} holds {err}"
                raise BackendError(msg, hint=_HINT) from err
        return arrays


def _spec(said: tuple[str, Mapping[str, Any]]) -> TensorSpec:
    name, info = said
    shape = mapping_in(info.get("tensor_shape"), "tensor_shape")
    dims = None
    if not shape.get("unknown_rank"):
        dims = tuple(dim_of(dim["size"]) for dim in shape.get("dim") or ())
    return TensorSpec(name=name, dtype=_DTYPES[info["dtype"]], shape=dims)


def _values(array: NDArray[np.generic]) -> Any:  # noqa: ANN401 - JSON data
    if not is_text(array):
        return array.tolist()
    texts = np.empty(array.shape, dtype=object)
    for at in np.ndindex(array.shape):
        value: object = array[at]
        raw = value if isinstance(value, bytes) else str(value).encode()
        texts[at] = {"b64": base64.b64encode(raw).decode()}
    return texts.tolist()
