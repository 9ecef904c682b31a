"""Turn objects into JSON data and back, for files and child processes."""

from __future__ import annotations

import functools
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.files import corrupt_errors, digest_of_json, json_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]

_SCALARS = frozenset({str, bool, int, float, type(None)})
# The most characters shown of a wrong value.
_SHOWN = 60
# Pydantic's names of problems, and the type that is needed.
_NEEDED = {
    "bool_type": "a boolean",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "float_type": "a number",
    "frozen_set_type": "a list",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "path_type": "text",
    "string_type": "text",
    "tuple_type": "a list",
}

# Pydantic's key in the metadata of a field.
_EXCLUDED = "exclude"


class UnreadError(Exception):
    """The data do not fit, or the type is none of those that are read here."""


_UNREAD = (AssertionError, NameError, OverflowError, RecursionError, TypeError, UnreadError, ValueError)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


_D = TypeVar("_D", bound=_Dataclass)


@overload
def to_data(value: _Dataclass) -> dict[str, Any]: ...
@overload
def to_data(value: object) -> Any: ...  # noqa: ANN401 - JSON data
def to_data(value: object) -> Any:
    """Return the value as JSON data: dictionaries, lists, texts, numbers, booleans and None alone.

    A dataclass becomes a dictionary of its fields except `unwritten` ones, an enumeration or a path its text, a set a
    sorted list. An array becomes nested lists, with None for values that are not finite.

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
    """Return the fields of a dataclass in its JSON data; None for another type."""
    if not is_dataclass(kind):
        return None
    return tuple(item.name for item in fields(kind) if _EXCLUDED not in item.metadata)


def unwritten(*, default: Any) -> Any:  # noqa: ANN401 - of the type of the field, as `dataclasses.field` has it
    """Return a field of a dataclass that JSON data leave out, because only the process needs it."""
    return field(default=default, metadata={_EXCLUDED: True})


def with_fields_of(kind: type[_T], source: object, /, **own: object) -> _T:
    """Return an object of a dataclass with the fields that another object has as well, except its own ones."""
    shared = (item.name for item in fields(cast("Any", kind)) if item.name not in own and hasattr(source, item.name))
    return kind(**{name: getattr(source, name) for name in shared}, **own)


def from_data(kind: type[_T], data: object) -> _T:
    """Return the object of a dataclass, or of another annotated type, that `to_data` wrote.

    Only types that JSON lacks are converted, so a text is not a number. Unknown fields are ignored, because a later
    version may have written them.

    Raises:
        ValueError: The data do not fit; the message names the first wrong field.
        ParitygateError: The object itself refuses its values.
    """
    # Encoding half of a surrogate pair, which is not text, is a ValueError.
    text = json.dumps(data, ensure_ascii=False).encode()
    try:
        return cast("_T", read_as(kind, json.loads(text)))
    except _UNREAD:
        # Pydantic reads more types, and names the wrong field.
        return _validated(kind, text)


def from_json(kind: type[_T], data: object) -> _T:
    """Return and raise as `from_data`, for data that `json_of` returned: long lists of numbers are not copied first."""
    try:
        return cast("_T", read_as(kind, data))
    except _UNREAD:
        return from_data(kind, data)


def _validated(kind: type[_T], text: bytes) -> _T:
    from pydantic import ValidationError

    try:
        value: _T = _adapter(cast("Any", kind)).validate_json(text, strict=True)
    except ValidationError as err:
        more = f" (and {err.error_count() - 1} more)" if err.error_count() > 1 else ""
        raise ValueError(f"{_in_words(err.errors(include_url=False)[0])}{more}") from err
    return value


def _in_words(problem: Mapping[str, Any]) -> str:
    place = ".".join(map(str, problem["loc"])) or "what it holds"
    if problem["type"] == "missing":
        return f"{place} is missing"
    seen = repr(problem["input"])
    seen = seen if len(seen) <= _SHOWN else f"{seen[:_SHOWN]}..."
    if problem["type"] in _NEEDED:
        return f"{place} is {seen}, not {_NEEDED[problem['type']]}"
    if problem["type"] == "enum":
        return f"{place} is {seen} (allowed: {problem['ctx']['expected']})"
    own = problem["msg"].removeprefix("Value error, ")
    return own if own != problem["msg"] else f"{place} is {seen}: {own}"


def schema_of(kind: type, *, title: str) -> dict[str, Any]:
    """Return the JSON Schema of the data that `to_data` writes for a dataclass."""
    # The schema for reading would name fields that are not written.
    schema = _adapter(kind).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


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

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:  # noqa: ANN401 - as pydantic calls it
        """Return the schema of a list of numbers that becomes an array."""
        from pydantic import AfterValidator

        return AfterValidator(cls.read).__get_pydantic_core_schema__(cls.reads, handler)

    @staticmethod
    def read(values: list[float | None]) -> Any:  # noqa: ANN401 - numpy is imported where an array is read
        """Return the array."""
        import numpy as np

        return np.array([math.inf if value is None else value for value in values], dtype=np.float64)


def finite_or_none(value: float | None) -> float | None:
    """Return a number for JSON: None in place of NaN and infinity."""
    return None if value is None or not math.isfinite(value) else float(value)


def with_finite(value: _D) -> _D:
    """Return a dataclass with None in each field that holds NaN or infinity; `unwritten` fields stay."""
    values = {item.name: getattr(value, item.name) for item in fields(value) if _EXCLUDED not in item.metadata}
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


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_as(kind: Any, data: Any) -> Any:  # noqa: ANN401 - a type, and what `json.loads` returned
    """Return the object of a type that the data describe, read by its annotations.

    Building a schema of pydantic takes longer than the reading. Data that fit are read as strict pydantic reads them.

    Raises:
        UnreadError: They do not fit, or the type is unknown here.
    """
    return _reader_of(kind)(data)


@functools.cache
def _reader_of(kind: Any) -> _Reader:  # noqa: ANN401 - a type
    """Return what reads a type; raise UnreadError for a type that is unknown here."""
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
    if isinstance(kind, type) and is_dataclass(kind):
        return functools.partial(_object, kind)
    raise UnreadError


def _is_enum(kind: Any) -> bool:  # noqa: ANN401 - a type
    return isinstance(kind, type) and issubclass(kind, Enum) and all(type(item.value) is str for item in kind)


def _exact(kind: type, value: Any) -> Any:  # noqa: ANN401 - JSON data
    if type(value) is not kind:
        raise UnreadError
    return value


def _number(value: Any) -> float:  # noqa: ANN401 - JSON data
    return float(value if type(value) is int else _exact(float, value))


def _one_of(allowed: Mapping[tuple[type, Any], Any], value: Any) -> Any:  # noqa: ANN401 - JSON data
    key = (type(value), value)
    if isinstance(value, dict | list) or key not in allowed:
        raise UnreadError
    return allowed[key]


def _literal(values: tuple[Any, ...]) -> _Reader:
    return functools.partial(_one_of, {(type(value), value): value for value in values})


def _annotated(arguments: tuple[Any, ...]) -> _Reader:
    # As `Floats` of the codec.
    mark = arguments[-1]
    if not hasattr(mark, "reads"):
        raise UnreadError
    read = _reader_of(mark.reads)
    return lambda value: mark.read(read(value))


def _list(make: Callable[[list[Any]], Any], arguments: tuple[Any, ...]) -> _Reader:
    read = _reader_of(arguments[0])
    # For language models, such a list has a number for each word.
    is_union = get_origin(arguments[0]) in {Union, types.UnionType}
    kinds = _SCALARS.intersection(get_args(arguments[0]) if is_union else arguments[:1])

    def read_list(value: object) -> object:
        items = _exact(list, value)
        return make(items if kinds.issuperset(map(type, items)) else [read(item) for item in items])

    return read_list


def _tuple(arguments: tuple[Any, ...]) -> _Reader:
    if arguments[1:] == (...,):
        return _list(tuple, arguments)
    readers = tuple(map(_reader_of, arguments))

    def read(value: object) -> object:
        if len(_exact(list, value)) != len(readers):
            raise UnreadError
        return tuple(read(item) for read, item in zip(readers, _exact(list, value), strict=True))

    return read


def _mapping(arguments: tuple[Any, ...]) -> _Reader:
    if _json_type(arguments[0]) is not str:
        raise UnreadError
    read_name, read = map(_reader_of, arguments)
    return lambda value: {read_name(name): read(item) for name, item in _exact(dict, value).items()}


def _alternatives(kinds: tuple[Any, ...]) -> _Reader:
    """Return what reads one of several types, which must differ by their JSON types alone."""
    if Path in kinds and any(isinstance(kind, type) and issubclass(kind, str) for kind in {*kinds} - {str}):
        return _read_place
    readers = {_json_type(kind): _reader_of(kind) for kind in kinds}
    if len(readers) < len(kinds):
        raise UnreadError
    if float in readers:
        readers.setdefault(int, _number)

    def read(value: object) -> object:
        reader = readers.get(type(value))
        if reader is None:
            raise UnreadError
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
    Union: _alternatives,
    dict: _mapping,
    frozenset: functools.partial(_list, frozenset),
    list: functools.partial(_list, list),
    tuple: _tuple,
    types.UnionType: _alternatives,
}
_JSON_TYPES = {Mapping: dict, dict: dict, frozenset: list, list: list, tuple: list}


def _json_type(kind: Any) -> type:  # noqa: ANN401 - a type
    """Return the type that JSON has for a type; raise UnreadError if that is not certain."""
    if kind in _SCALARS:
        return kind  # type: ignore[no-any-return]  # it is a type
    if kind is Path or _is_enum(kind):
        return str
    found = dict if is_dataclass(kind) else _JSON_TYPES.get(get_origin(kind))
    if found is None:
        raise UnreadError
    return found


@functools.cache
def _fields_of(kind: Any) -> tuple[tuple[str, _Reader, bool], ...]:  # noqa: ANN401 - a dataclass
    """Return name and reader of each field of a dataclass, and whether it is needed."""
    hints, parts = get_type_hints(kind, include_extras=True), fields(kind)
    if not all(part.init for part in parts):
        raise UnreadError
    return tuple(
        (part.name, _reader_of(hints[part.name]), part.default is MISSING and part.default_factory is MISSING)
        for part in parts
    )


def _object(kind: type, value: object) -> object:
    data, found = _exact(dict, value), {}
    for name, read, is_needed in _fields_of(kind):
        if name in data:
            found[name] = read(data[name])
        elif is_needed:
            raise UnreadError
    return kind(**found)
