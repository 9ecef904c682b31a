"""Map the inputs and outputs of a model to fields in the JSON of a custom server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct, field

from paritygate.errors import InputFileError, UsageError
from paritygate.text import first_line, nearest_first

# Names a whole body or row.
BODY = "."
_REQUEST, _RESPONSE = ("inputs", "rows", "constants"), ("outputs", "rows", "dtypes")
_DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "string",
)  # fmt: skip
# The request's field features is the input x, and the answer's field scores is the output logits.
EXAMPLE = "{request: {inputs: {x: features}}, response: {outputs: {logits: scores}}}"
_HINT = f"write a mapping of the model's names to the server's fields, such as {EXAMPLE} (docs/endpoints.md)"


class JsonMapping(Struct, frozen=True, kw_only=True):
    """The fields of the inputs in a server's requests, and of the outputs in its answers.

    A field is a name, or several joined by dots, each within the one before; `.` is the whole.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    dtypes: Mapping[str, str] = field(default_factory=dict)  # of outputs, because JSON has none; default float32
    request_rows: str | None = None  # a list with one object a row; None if each input lists all rows
    response_rows: str | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)  # more values to send, by field
    file: str = ""  # empty for a mapping from Python

    def dtype(self, output: str) -> str:
        """Return the dtype of an output."""
        return self.dtypes.get(output, "float32")


def read_json_mapping(path: Path) -> JsonMapping:
    """Return the mapping in a YAML or JSON file.

    Raises:
        InputFileError: It cannot be read.
        UsageError: It is not a mapping of this form.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        reason = err.strerror if isinstance(err, OSError) else ""
        reason = reason or first_line(err)
        raise InputFileError(f"the mapping {path} cannot be read: {reason}", hint=_HINT) from err
    return json_mapping_of(data, where=str(path))


def json_mapping_of(data: object, *, where: str = "") -> JsonMapping:
    """Return the mapping of data under the keys `request` and `response`; `where` is the file, empty for Python.

    Raises:
        UsageError: A key is unknown or missing, or a value is not of its kind.
    """
    what = f"the mapping {where}" if where else "the mapping"
    whole = _keys(data, ("request", "response"), what)
    request = _keys(whole.get("request"), _REQUEST, f"request of {what}")
    response = _keys(whole.get("response"), _RESPONSE, f"response of {what}")
    dtypes = _fields(response.get("dtypes", {}), f"response.dtypes of {what}")
    mapping = JsonMapping(
        inputs=_fields(request.get("inputs"), f"request.inputs of {what}"),
        outputs=_fields(response.get("outputs"), f"response.outputs of {what}"),
        dtypes=dtypes,
        request_rows=_field(request.get("rows"), f"request.rows of {what}"),
        response_rows=_field(response.get("rows"), f"response.rows of {what}"),
        constants=_keys(request.get("constants", {}), None, f"request.constants of {what}"),
        file=where,
    )
    for side, names in (("request.inputs", mapping.inputs), ("response.outputs", mapping.outputs)):
        if not names:
            _refuse(f"{side} of {what} names nothing")
    for name, dtype in dtypes.items():
        if name not in mapping.outputs or dtype not in _DTYPES:
            allowed = f"outputs: {', '.join(mapping.outputs)}; dtypes: {', '.join(nearest_first(dtype, _DTYPES))}"
            _refuse(f"response.dtypes of {what} says {name}: {dtype} (allowed {allowed})")
    _check_apart(mapping, what)
    return mapping


def _check_apart(mapping: JsonMapping, what: str) -> None:
    """Check that no two fields of a request are in the same place, or one within the other."""
    inputs = dict(mapping.inputs)
    constants = {f"the constant {path}": path for path in mapping.constants}
    places = [{**inputs, **constants}]
    if mapping.request_rows is not None:
        places = [inputs, {**constants, "the rows": mapping.request_rows}]
    pairs = [(one, other) for sent in places for one in sent.items() for other in sent.items()]
    for (name, path), (other, place) in pairs:
        if name != other and (BODY in {path, place} or f"{place}.".startswith(f"{path}.")):
            _refuse(f"{what} puts {name} and {other} into one place: {path} and {place}")


def _keys(data: object, allowed: tuple[str, ...] | None, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        _refuse(f"{what} is {data!r}, not a mapping" if data is not None else f"{what} is missing")
    for name in data:
        if not isinstance(name, str) or (allowed is not None and name not in allowed):
            names = ", ".join(nearest_first(str(name), allowed or ()))
            _refuse(f"{what} has the key {name!r} (allowed: {names or 'texts'})")
    return dict(data)


def _fields(data: object, what: str) -> dict[str, str]:
    paths = _keys(data, None, what)
    for name, path in paths.items():
        _field(path, f"{name} in {what}")
        if path is None:
            _refuse(f"{name} in {what} is empty")
    return paths


def _field(path: object, what: str) -> str | None:
    if path is None:
        return None
    if not isinstance(path, str) or not path or (path != BODY and not all(path.split("."))):
        _refuse(f"{what} is {path!r}, not a field (such as scores, result.scores, or . for all of it)")
    return path


def _refuse(words: str) -> NoReturn:
    raise UsageError(words, hint=_HINT)
