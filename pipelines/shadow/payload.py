"""Bodies of the Open Inference Protocol as JSON: values that were sent as bytes become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.errors import BackendError
from paritygate.files import parse_json
from paritygate.validate.runners.endpoint.json_values import shape_of
from paritygate.validate.runners.endpoint.tensors import as_json_values, from_bytes, name_and_dtype

HEADER_LENGTH = "inference-header-content-length"


def as_data(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return a body as JSON data; the names of `headers` are in lower case.

    Raises:
        ValueError: The body is not a JSON mapping, or its bytes are not those that it declares.
    """
    try:
        length = int(headers.get(HEADER_LENGTH, len(body)))
        said = parse_json(body[:length].decode())
        if not isinstance(said, dict) or not 0 <= length <= len(body):
            msg = "the body is not a JSON mapping"
            raise ValueError(msg)
        if length == len(body):
            return said
        rest = body[length:]
        for key in ("inputs", "outputs"):
            said[key], rest = _with_values(said.get(key) or [], rest)
        if rest:
            msg = f"{len(rest)} bytes more than its tensors have"
            raise ValueError(msg)
    except (BackendError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as err:
        raise ValueError(str(err)) from err
    return said


def _with_values(tensors: list[Any], rest: bytes) -> tuple[list[Any], bytes]:
    written = []
    for tensor in tensors:
        parameters = dict(tensor.get("parameters") or {})
        size = parameters.pop("binary_data_size", None)
        if size is None:
            written.append(tensor)
            continue
        if type(size) is not int or not 0 <= size <= len(rest):
            msg = f"{len(rest)} bytes of values, and fewer than a tensor declares"
            raise ValueError(msg)
        values = from_bytes(rest[:size], name_and_dtype(tensor)[1], shape_of(tensor.get("shape")) or ())
        written.append({**tensor, "parameters": parameters, "data": as_json_values(values)})
        rest = rest[size:]
    return written, rest
