"""The REST API of TensorFlow Serving, in its column form: `inputs` and `outputs` by name.

Source: the description of the RESTful API in the documentation of TensorFlow Serving.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError
from paritygate.models.endpoint import Endpoint, EndpointLimits
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.tensors import is_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TensorFlowServing"]

DEFAULT_SIGNATURE = "serving_default"
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
    """One model of TensorFlow Serving, asked by REST."""

    server = "tensorflow-serving"
    # It does not say which it is.
    version = "unknown"
    transport = "HTTP with JSON"
    # Its answers do not say of which version they are.
    versions: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, limits: EndpointLimits, signature_key: str | None) -> None:
        """Prepare to ask; nothing is sent.

        Args:
            endpoint: Where the model is.
            limits: How often it may be asked.
            signature_key: The signature that is meant; `serving_default` if None.
        """
        self._client = HttpClient(endpoint.host, limits)
        self._path = endpoint.path
        self._key = signature_key or DEFAULT_SIGNATURE

    def signature(self) -> Signature | None:
        """Return what the server says of the model.

        Raises:
            MeasurementError: It does not answer.
            BackendError: There is no such model or signature, or its description cannot be read.
        """
        said = self._client.get(f"{self._path}/metadata")
        if said is None:
            msg = f"the server at {self._client.host} has no model at {self._path}"
            raise BackendError(msg, hint="check the model's name and version, and that it is loaded")
        try:
            known = said["metadata"]["signature_def"]["signature_def"]
            if self._key not in known:
                msg = f"the model on the server has no signature {self._key!r} (it has: {', '.join(known)})"
                raise BackendError(msg, hint="name one with --signature candidate=NAME")
            sides = (known[self._key].get("inputs") or {}, known[self._key].get("outputs") or {})
            inputs, outputs = (tuple(_spec(name, info) for name, info in side.items()) for side in sides)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            msg = f"what the server says of the model cannot be read: {type(err).__name__}: {err}"
            raise BackendError(msg, hint=f"look at {self._client.host}{self._path}/metadata") from err
        return Signature(inputs=inputs, outputs=outputs)

    def largest_batch(self) -> None:
        """Return None: it does not say how many rows it takes at once."""

    def ask(
        self, feed: Mapping[str, NDArray[np.generic]], outputs: Sequence[TensorSpec]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name.

        Raises:
            MeasurementError: The server does not answer.
            BackendError: It refuses the inputs, or what it answers cannot be read.
        """
        inputs = {name: _values(array) for name, array in feed.items()}
        asked = {"signature_name": self._key, "inputs": inputs}
        headers = {"Content-Type": "application/json"}
        said = as_json(self._client.post(f"{self._path}:predict", json.dumps(asked).encode(), headers)[1])
        try:
            found = said["outputs"]
            # A single output comes without its name.
            named = found if len(outputs) > 1 or (isinstance(found, dict) and "b64" not in found) else None
            by_name = {outputs[0].name: found} if named is None else named
            return {spec.name: _array(by_name[spec.name], spec.dtype) for spec in outputs}
        except (KeyError, TypeError, ValueError) as err:
            msg = f"the answer of the server cannot be read: {type(err).__name__}: {err}"
            raise BackendError(msg, hint="outputs are expected by name, as the metadata of the model has them") from err


def _spec(name: str, info: Mapping[str, Any]) -> TensorSpec:
    shape = info.get("tensor_shape") or {}
    dims = None
    if not shape.get("unknown_rank"):
        dims = tuple(None if int(dim["size"]) < 0 else int(dim["size"]) for dim in shape.get("dim") or ())
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


def _array(found: Any, dtype: str) -> NDArray[np.generic]:  # noqa: ANN401 - JSON data
    if dtype == "bfloat16":
        import ml_dtypes

        return np.asarray(found, dtype=ml_dtypes.bfloat16)
    if dtype != "string":
        return np.asarray(found, dtype=dtype)
    return np.asarray(_texts(found), dtype=object)


def _texts(found: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(found, list):
        return [_texts(item) for item in found]
    return base64.b64decode(found["b64"]) if isinstance(found, dict) else found
