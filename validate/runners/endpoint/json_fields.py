"""A server of one's own that answers JSON: a mapping names the field of each input and output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import BackendError
from paritygate.models.endpoint import Endpoint, EndpointLimits
from paritygate.models.json_mapping import BODY, JsonMapping
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.json_values import array_of, shown
from paritygate.validate.runners.endpoint.tensors import as_json_values, is_text
from paritygate.validate.runners.endpoint.words import in_short


class JsonFields:
    """One address, with a mapping of fields."""

    server = "HTTP server"
    # The server does not name its version.
    version = "unknown"
    transport = "HTTP with JSON by a mapping"
    # A mapping names no field of it.
    versions: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, limits: EndpointLimits, mapping: JsonMapping) -> None:
        """Prepare; nothing is sent."""
        self._client = HttpClient(endpoint.host, limits)
        self._path = endpoint.path
        self._mapping = mapping

    def signature(self) -> Signature | None:
        """Return None: nothing describes the model."""
        return None

    def largest_batch(self) -> None:
        """Return None: the server does not limit the rows of a request."""

    def ask(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs that the mapping names; `outputs` are not sent."""
        del outputs
        body = json.dumps(self._request(feed)).encode()
        content = as_json(self._client.post(self._path, body, {"Content-Type": "application/json"})[1])
        rows = len(next(iter(feed.values())))
        try:
            return {name: self._output(name, content, rows) for name in self._mapping.outputs}
        except ValueError as err:
            mapping = self._mapping.file or "in your code"
            raise BackendError(str(err), hint=f"correct the mapping {mapping}, or the server") from err

    def _request(self, feed: Arrays) -> Any:  # noqa: ANN401 - JSON data
        mapping = self._mapping
        values = {name: _plain(feed[name]) for name in mapping.inputs}
        body: Any = {}
        for path, value in mapping.constants.items():
            body = _put(body, path, value)
        if mapping.request_rows is None:
            for name, path in mapping.inputs.items():
                body = _put(body, path, values[name])
            return body
        rows: list[Any] = [{} for _ in next(iter(values.values()))]
        for name, path in mapping.inputs.items():
            rows = [_put(row, path, value) for row, value in zip(rows, values[name], strict=True)]
        return _put(body, mapping.request_rows, rows)

    def _output(self, name: str, said: Any, rows: int) -> NDArray[np.generic]:  # noqa: ANN401 - JSON data
        """Return an output; raise ValueError where the answer does not have it."""
        mapping, path = self._mapping, self._mapping.outputs[name]
        if mapping.response_rows is None:
            return _array(name, _get(name, said, path), mapping.dtype(name))
        items = _get(name, said, mapping.response_rows)
        if not isinstance(items, list) or len(items) != rows:
            seen = f"a list of {len(items)}" if isinstance(items, list) else shown(items)
            raise ValueError(f"the server answered {seen} in {mapping.response_rows!r} to {rows} rows")
        return _array(name, [_get(name, item, path) for item in items], mapping.dtype(name))


def _plain(array: NDArray[np.generic]) -> Any:  # noqa: ANN401 - JSON data
    if is_text(array):
        texts = np.empty(array.shape, dtype=object)
        texts.ravel()[:] = as_json_values(array)
        return texts.tolist()
    return array.astype(_wide(array)).tolist()


def _wide(array: NDArray[np.generic]) -> Any:  # noqa: ANN401 - what NumPy takes as a dtype
    # BF16 has no numbers of Python's own.
    return np.float32 if array.dtype.kind == "V" else array.dtype


def _put(body: Any, path: str, value: Any) -> Any:  # noqa: ANN401 - JSON data
    if path == BODY:
        return value
    name, _, rest = path.partition(".")
    inner = _put(body.get(name, {}), rest, value) if rest else value
    return {**body, name: inner}


def _get(output: str, body: Any, path: str) -> Any:  # noqa: ANN401 - JSON data
    """Return the value at a field; raise ValueError where there is no such field."""
    if path == BODY:
        return body
    value = body
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            has = in_short(", ".join(value)) if isinstance(value, dict) else shown(value)
            msg = f"the answer has no field {path!r}, which the mapping names for {output} (it has: {has or 'nothing'})"
            raise ValueError(msg)
        value = value[name]
    return value


def _array(output: str, found: Any, dtype: str) -> NDArray[np.generic]:  # noqa: ANN401 - JSON data
    try:
        return array_of(found, dtype)
    except ValueError as err:
        raise ValueError(f"the response cannot be read: {output} is {dtype} by the mapping, but has {err}") from err
