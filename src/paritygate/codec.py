"""Turn objects into JSON data and back, for files and child processes."""

from __future__ import annotations

import functools
import inspect
import json
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    overload,
)

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.files import corrupt_errors, digest_of_json, json_of

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]

_SCALARS = frozenset({str, bool, int, float, type(None)})
# The most characters shown of a wrong value.
_SHOWN = 60
# What is needed instead of a wrong value, by the type in JSON.
_NEEDED = {
    bool: "a boolean",
    dict: "a mapping",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "text",
    type(None): "null",
}


class UnreadError(Exception):
    """The data do not fit their type; `places` lead to the wrong value."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.places: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.places)) or 'what it holds'} {self.args[0]}"


_S = TypeVar("_S", bound=Struct)


@overload
def to_data(value: Struct) -> dict[str, Any]: ...
@overload
def to_data(value: object) -> Any: ...  # noqa: ANN401 - JSON data
def to_data(value: object) -> Any:
    """Return the value as JSON data: dictionaries, lists, texts, numbers, booleans and None alone.

    A Struct becomes a dictionary of its fields except those that it names in `unwritten`, an enumeration or a path its
    text, a set a sorted list. An array becomes nested lists, with None for values that are not finite.

    Raises:
        TypeError: It holds something else.
    """
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    data: Any = value
    written = _written_names(kind)
    if written is not None:
        data = {name: to_data(getattr(value, name)) for name in written}
    elif isinstance(value, Mapping):
        data = {str(key): to_data(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        # For language models, such a list has a number for each word.
        data = [item if type(item) in _SCALARS else to_data(item) for item in value]
    elif isinstance(value, set | frozenset):
        data = sorted(to_data(item) for item in value)
    elif isinstance(value, Path | Enum):
        data = str(value)
    elif hasattr(value, "tolist"):
        data = data.tolist() if _is_finite(data) else _finite_or_none(data.tolist())
    elif not isinstance(value, str | int | float | None):
        raise TypeError(f"{type(value).__name__} has no JSON data")
    return data


@functools.cache
def _written_names(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a Struct in its JSON data; None for another type."""
    if not issubclass(kind, Struct):
        return None
    unwritten: Collection[str] = getattr(kind, "unwritten", ())
    return tuple(name for name in kind.__struct_fields__ if name not in unwritten)


def with_fields_of(kind: type[_S], source: object, /, **own: object) -> _S:
    """Return a Struct with the fields that another object has as well, except its own ones."""
    shared = (name for name in kind.__struct_fields__ if name not in own and hasattr(source, name))
    return kind(**{name: getattr(source, name) for name in shared}, **own)


def from_data(kind: type[_T], data: object) -> _T:
    """Return the object of a Struct, or of another annotated type, that `to_data` wrote.

    Only types that JSON lacks are converted, so a text is not a number. Unknown fields are ignored, because a later
    version may have written them.

    Raises:
        ValueError: The data do not fit; the message names the first wrong field.
        ParitygateError: The object itself refuses its values.
    """
    # Encoding half of a surrogate pair, which is not text, is a ValueError.
    return from_json(kind, json.loads(json.dumps(data, ensure_ascii=False).encode()))


def from_json(kind: type[_T], data: object) -> _T:
    """Return and raise as `from_data`, for data that `json_of` returned: long lists of numbers are not copied first."""
    return cast("_T", read_as(kind, data))


def schema_of(kind: type, *, title: str) -> dict[str, Any]:
    """Return the JSON Schema of the data that `to_data` writes for a Struct."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for struct in _structs_in(kind, set()):
        parts[struct.__name__]["description"] = inspect.getdoc(struct)
        for name in parts[struct.__name__]["properties"].keys() - {*(_written_names(struct) or ())}:
            del parts[struct.__name__]["properties"][name]
    whole = parts.pop(kind.__name__)
    # A default that is a tuple is a list in JSON.
    schema = msgspec.json.decode(msgspec.json.encode({**whole, "$defs": parts, "title": title}))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _structs_in(kind: Any, found: set[type]) -> set[type]:  # noqa: ANN401 - a type
    """Add a type to those found if it is a Struct, with those of its fields and arguments."""
    parts = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct) and kind not in found:
        found.add(kind)
        parts = tuple(part.type for part in fields(kind))
    for part in parts:
        _structs_in(part, found)
    return found


def digest_of(value: object) -> str:
    """Return the digest of the value's JSON data, the same for equal values."""
    return digest_of_json(to_data(value))


def sealed(data: Mapping[str, Any], *, version: int) -> dict[str, Any]:
    """Return JSON data with the version of their format and their own digest, which detects edits by hand."""
    whole = {"format": version, **data}
    return {**whole, "digest": digest_of_json(whole)}


def read_sealed(path: Path, content: bytes, *, version: int, again: str) -> dict[str, Any]:
    """Return the data of a file's content that `sealed` made, without their digest; `again` makes the file again.

    Raises:
        InputFileError: It is no such file, or of another version.
        ArtifactIntegrityError: It was changed after it was written.
    """
    with corrupt_errors(path, hint=again):
        data = dict(json_of(content.decode()))
        its_version, digest = data["format"], data.pop("digest", None)
    if its_version != version:
        raise InputFileError(f"{path} has format {its_version} (allowed: {version})", hint=again)
    if digest is None:
        raise InputFileError(f"{path} is corrupt: its digest is missing", hint=again)
    if digest != digest_of_json(data):
        raise ArtifactIntegrityError(f"{path} is corrupt: digest mismatch", hint=again)
    return data


class Floats:
    """Marks a field whose lists of numbers, written from a float64 array, are read as an array again.

    None becomes infinity, which no limit on a difference allows.
    """

    reads = list[float | None]

    @staticmethod
    def read(values: list[float | None]) -> Any:  # noqa: ANN401 - numpy is imported where an array is read
        """Return the array."""
        import numpy as np

        return np.array([math.inf if value is None else value for value in values], dtype=np.float64)


def finite_or_none(value: float | None) -> float | None:
    """Return a number for JSON: None in place of NaN and infinity."""
    return None if value is None or not math.isfinite(value) else float(value)


def with_finite(value: _S) -> _S:
    """Return a Struct with None in each written field that holds NaN or infinity."""
    values = {name: getattr(value, name) for name in _written_names(type(value)) or ()}
    odd = [name for name, number in values.items() if isinstance(number, float) and not math.isfinite(number)]
    return replace(value, **dict.fromkeys(odd)) if odd else value


def _is_finite(array: Any) -> bool:  # noqa: ANN401 - an array or a number of NumPy
    """Return whether no number of an array is NaN or infinite; of no floats, also False."""
    is_float = getattr(getattr(array, "dtype", None), "kind", "") == "f" and array.size > 0
    return is_float and math.isfinite(array.min()) and math.isfinite(array.max())


def _finite_or_none(data: Any) -> Any:  # noqa: ANN401 - nested lists of numbers
    if isinstance(data, list):
        return [_finite_or_none(item) for item in data]
    return finite_or_none(data) if isinstance(data, float) else data


def read_as(kind: Any, data: Any) -> Any:  # noqa: ANN401 - a type, and what `json.loads` returned
    """Return the object of a type that the data describe, read by its annotations.

    Raises:
        ValueError: They do not fit; the message names the first wrong field.
        TypeError: The type is none of those that are read here.
    """
    try:
        return _reader_of(kind)(data)
    except UnreadError as err:
        raise ValueError(str(err)) from err
    except RecursionError as err:
        raise ValueError("the data have too many levels") from err


@functools.cache
def _reader_of(kind: Any) -> _Reader:  # noqa: ANN401 - a type
    """Return what reads a type; raise TypeError for a type that is unknown here."""
    make = _GENERIC.get(get_origin(kind))
    if make is not None:
        return make(get_args(kind))
    if kind in {Any, object}:
        return lambda value: value
    if kind in _SCALARS:
        return _number if kind is float else functools.partial(_exact, kind)
    if kind is Path:
        return lambda value: Path(_exact(str, value))
    if _is_enum(kind):
        return functools.partial(_one_of, {(str, item.value): item for item in kind})
    if isinstance(kind, type) and issubclass(kind, Struct):
        return functools.partial(_object, kind)
    raise TypeError(f"{kind} cannot be read from JSON data")


def _is_enum(kind: Any) -> bool:  # noqa: ANN401 - a type
    return isinstance(kind, type) and issubclass(kind, Enum) and all(type(item.value) is str for item in kind)


def _wrong(value: object, needed: str) -> UnreadError:
    seen = repr(value)
    return UnreadError(f"is {seen if len(seen) <= _SHOWN else f'{seen[:_SHOWN]}...'}{needed}")


def _exact(kind: type, value: Any) -> Any:  # noqa: ANN401 - JSON data
    if type(value) is not kind:
        raise _wrong(value, f", not {_NEEDED[kind]}")
    return value


def _number(value: Any) -> float:  # noqa: ANN401 - JSON data
    try:
        return float(value if type(value) is int else _exact(float, value))
    except OverflowError as err:
        raise _wrong(value, ", not a number of 64 bits") from err


def _one_of(allowed: Mapping[tuple[type, Any], Any], value: Any) -> Any:  # noqa: ANN401 - JSON data
    key = (type(value), value)
    if isinstance(value, dict | list) or key not in allowed:
        raise _wrong(value, f" (allowed: {', '.join(repr(known) for _, known in allowed)})")
    return allowed[key]


def _at(place: object, read: _Reader, value: object) -> Any:  # noqa: ANN401 - of the type that is read
    """Return what a part of the data describes; an error names its place."""
    try:
        return read(value)
    except UnreadError as err:
        err.places.append(str(place))
        raise


def _literal(values: tuple[Any, ...]) -> _Reader:
    return functools.partial(_one_of, {(type(value), value): value for value in values})


def _annotated(arguments: tuple[Any, ...]) -> _Reader:
    mark = arguments[-1]
    if isinstance(mark, msgspec.Meta):
        return functools.partial(_in_bounds, Annotated[arguments])
    # As `Floats` of the codec.
    read = _reader_of(mark.reads)
    return lambda value: mark.read(read(value))


def _in_bounds(kind: Any, value: object) -> object:  # noqa: ANN401 - a type with bounds
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        raise _wrong(value, f": {err}") from err


def _list(make: Callable[[list[Any]], Any], arguments: tuple[Any, ...]) -> _Reader:
    read = _reader_of(arguments[0])
    # For language models, such a list has a number for each word.
    is_union = get_origin(arguments[0]) in {Union, types.UnionType}
    kinds = _SCALARS.intersection(get_args(arguments[0]) if is_union else arguments[:1])

    def read_list(value: object) -> object:
        items = _exact(list, value)
        if kinds.issuperset(map(type, items)):
            return make(items)
        return make([_at(place, read, item) for place, item in enumerate(items)])

    return read_list


def _tuple(arguments: tuple[Any, ...]) -> _Reader:
    if arguments[1:] == (...,):
        return _list(tuple, arguments)
    readers = tuple(map(_reader_of, arguments))

    def read(value: object) -> object:
        items = _exact(list, value)
        if len(items) != len(readers):
            raise _wrong(value, f", not a list of {len(readers)}")
        return tuple(_at(place, read, item) for place, (read, item) in enumerate(zip(readers, items, strict=True)))

    return read


def _mapping(arguments: tuple[Any, ...]) -> _Reader:
    read_name, read = map(_reader_of, arguments)
    return lambda value: {
        _at(name, read_name, name): _at(name, read, item) for name, item in _exact(dict, value).items()
    }


def _alternatives(kinds: tuple[Any, ...]) -> _Reader:
    """Return what reads one of several types, which must differ by their JSON types alone."""
    if Path in kinds and any(isinstance(kind, type) and issubclass(kind, str) for kind in {*kinds} - {str}):
        return _read_place
    readers = {_json_type(kind): _reader_of(kind) for kind in kinds}
    if len(readers) < len(kinds):
        raise TypeError(f"the type {kinds} is not certain in JSON data")
    if float in readers:
        readers.setdefault(int, readers[float])

    def read(value: object) -> object:
        reader = readers.get(type(value))
        if reader is None:
            raise _wrong(value, f", not {' or '.join(_NEEDED[known] for known in readers)}")
        return reader(value)

    return read


def _read_place(value: object) -> object:
    """Return a path or an address, which are both texts; raise UsageError for an address that is refused."""
    from paritygate.roots import root_of

    return root_of(_exact(str, value))


_GENERIC: Mapping[Any, Callable[[tuple[Any, ...]], _Reader]] = {
    Annotated: _annotated,
    Literal: _literal,
    Mapping: _mapping,
    Sequence: functools.partial(_list, list),
    Union: _alternatives,
    dict: _mapping,
    frozenset: functools.partial(_list, frozenset),
    list: functools.partial(_list, list),
    tuple: _tuple,
    types.UnionType: _alternatives,
}
_JSON_TYPES = {Mapping: dict, Sequence: list, dict: dict, frozenset: list, list: list, tuple: list}


def _json_type(kind: Any) -> type:  # noqa: ANN401 - a type
    """Return the type that JSON has for a type; raise TypeError if that is not certain."""
    if kind in _SCALARS:
        return kind  # type: ignore[no-any-return]  # it is a type
    if kind is Path or _is_enum(kind):
        return str
    if get_origin(kind) is Annotated:
        base, *_, mark = get_args(kind)
        return _json_type(getattr(mark, "reads", base))
    is_struct = isinstance(kind, type) and issubclass(kind, Struct)
    found = dict if is_struct else _JSON_TYPES.get(get_origin(kind))
    if found is None:
        raise TypeError(f"{kind} cannot be told from other types in JSON data")
    return found


@functools.cache
def _fields_of(kind: Any) -> tuple[tuple[str, _Reader, bool], ...]:  # noqa: ANN401 - a Struct
    """Return name and reader of each field of a Struct, and whether it is needed."""
    return tuple((part.name, _reader_of(part.type), part.required) for part in fields(kind))


def _object(kind: type, value: object) -> object:
    data, found = _exact(dict, value), {}
    for name, read, is_needed in _fields_of(kind):
        if name in data:
            found[name] = _at(name, read, data[name])
        elif is_needed:
            missing = UnreadError("is missing")
            missing.places.append(name)
            raise missing
    return kind(**found)
