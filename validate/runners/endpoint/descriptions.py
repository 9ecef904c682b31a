"""A server's description of itself and its model: each part is checked to be of its kind before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from paritygate.errors import BackendError
from paritygate.signature import Signature, TensorSpec
from paritygate.utf8 import is_utf8
from paritygate.validate.runners.endpoint.json_values import shown
from paritygate.validate.runners.endpoint.words import in_short

# More and longer names than any model has: a table of all would help nobody.
_MOST_TENSORS, _MOST_AXES, _LONGEST_NAME = 10_000, 32, 1000
_LARGEST = 2**63 - 1


def refuse_description(what: str, found: object) -> NoReturn:
    """Raise the BackendError of a part of a description that is not of its kind."""
    msg = f"the server's description of the model cannot be read: {what} (got {shown(found)})"
    raise BackendError(msg, hint="check the address of the model, and the model's configuration")


def mapping_in(said: object, what: str) -> Mapping[str, Any]:
    """Return an object of JSON, empty where there is none; raise BackendError for anything else."""
    if said is None:
        return {}
    if not isinstance(said, dict):
        refuse_description(f"{what} has to be an object", said)
    return said


def text_in(said: Mapping[str, Any], key: str) -> str:
    """Return a text, or a number as one; empty where there is none."""
    value = said.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not is_utf8(str(value)):
        refuse_description(f"{key} has to be a text", value)
    return in_short(str(value))


def texts_in(said: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts, or of numbers as such; empty where there is none. BackendError is raised for others."""
    values = said.get(key)
    if not isinstance(values, list | None) or len(values or ()) > _MOST_TENSORS:
        refuse_description(f"{key} has to be a list of at most {_MOST_TENSORS} texts", values)
    return tuple(text_in({key: item}, key) for item in values or ())


def batch_size_in(said: Mapping[str, Any], key: str) -> int | None:
    """Return the most rows of a request; None where it is missing or 0, where no dim counts rows."""
    size = said.get(key)
    if size is not None and (type(size) is not int or not 0 <= size <= _LARGEST):
        refuse_description(f"{key} has to be an integer from 0 on", size)
    return size or None


def signature_in(said: Mapping[str, Any], spec_of: Callable[[Any], TensorSpec]) -> Signature | None:
    """Return the inputs and outputs that are described; None where one of the two is not.

    `spec_of` reads one of them, and raises any error of a wrong kind of value.
    """
    sides = [_tensors(said.get(side), side, spec_of) for side in ("inputs", "outputs")]
    return Signature(inputs=sides[0], outputs=sides[1]) if all(sides) else None


def _tensors(said: object, side: str, spec_of: Callable[[Any], TensorSpec]) -> tuple[TensorSpec, ...]:
    if said is None:
        return ()
    if not isinstance(said, Sequence) or isinstance(said, str):
        refuse_description(f"{side} have to be a list", said)
    if len(said) > _MOST_TENSORS:
        msg = f"the server describes {len(said)} {side} of the model (allowed: {_MOST_TENSORS})"
        raise BackendError(msg, hint="check the model's configuration on the server")
    specs = {}
    for item in said:
        try:
            spec = spec_of(item)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            refuse_description(f"{side} have to be tensors, each with name, datatype and shape", item)
        _check_spec(spec, item)
        if spec.name in specs:
            refuse_description(f"{side} have to have names of their own", spec.name)
        specs[spec.name] = spec
    return tuple(specs.values())


def _check_spec(spec: TensorSpec, item: object) -> None:
    if not 0 < len(spec.name) <= _LONGEST_NAME or not is_utf8(spec.name):
        refuse_description(f"a name has to be a text of 1 to {_LONGEST_NAME} characters", spec.name)
    dims = spec.shape or ()
    if len(dims) > _MOST_AXES or any(isinstance(dim, int) and dim > _LARGEST for dim in dims):
        refuse_description(f"a shape has to be a list of at most {_MOST_AXES} sizes", item)
