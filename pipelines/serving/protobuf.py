"""Make protobuf messages of servers' configurations from tables, and read and write protobuf's text format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paritygate.text import first_line

_FIELD = re.compile(r"(?P<name>\w+) (?P<number>\d+) (?:(?P<key>\w+)>)?(?P<type>\w+)(?P<star>\*?)(?: \|(?P<oneof>\w+))?")
# A mistake in our own table, which the first test finds.
_BAD_FIELD = "no field of the form NAME NUMBER TYPE"


class ConfigError(ValueError):
    """Protobuf's complaint about a configuration: place, field, reason."""


def message_class(package: str, root: str, messages: Mapping[str, str], enums: Mapping[str, Sequence[str]]) -> Any:  # noqa: ANN401 - a class that protobuf makes
    """Return the class of the message `root` in a package.

    `messages` has fields by message as `NAME NUMBER TYPE`, with commas in between. A `*` marks a repeated field, `K>V`
    a map, and `|NAME` at the end a oneof. `enums` has values by enum, numbered from 0.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"paritygate/{root}.proto", package=package, syntax="proto3")
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    kinds = dict.fromkeys(messages, True) | dict.fromkeys(enums, False)
    for name, fields in messages.items():
        _add_message(file.message_type.add(name=name), f".{package}.", fields, kinds)
    # A separate pool, because a client of the server in this process has messages of these names too.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root}"))


def _add_message(message: Any, package: str, fields: str, kinds: Mapping[str, bool]) -> None:  # noqa: ANN401 - protobuf's
    oneofs: dict[str, int] = {}
    for text in filter(None, fields.split(", ")):
        match = _FIELD.fullmatch(text)
        if match is None:
            raise AssertionError(text, _BAD_FIELD)
        is_map = match["key"] is not None
        field = message.field.add(name=match["name"], number=int(match["number"]))
        field.label = field.LABEL_REPEATED if is_map or match["star"] else field.LABEL_OPTIONAL
        if is_map:
            # In protobuf, a map is a repeated message of key and value.
            entry = message.nested_type.add(name=f"{match['name'].title().replace('_', '')}Entry")
            entry.options.map_entry = True
            for number, (part, kind) in enumerate((("key", match["key"]), ("value", match["type"])), start=1):
                _set_type(entry.field.add(name=part, number=number, label=field.LABEL_OPTIONAL), package, kind, kinds)
            field.type, field.type_name = field.TYPE_MESSAGE, f"{package}{message.name}.{entry.name}"
        else:
            _set_type(field, package, match["type"], kinds)
        if match["oneof"]:
            if match["oneof"] not in oneofs:
                oneofs[match["oneof"]] = len(oneofs)
                message.oneof_decl.add(name=match["oneof"])
            field.oneof_index = oneofs[match["oneof"]]


def _set_type(field: Any, package: str, kind: str, kinds: Mapping[str, bool]) -> None:  # noqa: ANN401 - protobuf's
    if kind in kinds:
        field.type = field.TYPE_MESSAGE if kinds[kind] else field.TYPE_ENUM
        field.type_name = f"{package}{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")


def message_of(data: Mapping[str, Any], kind: Any) -> Any:  # noqa: ANN401 - a message of protobuf
    """Return a message from JSON or YAML data under the names of its fields.

    Raises:
        ConfigError: A field is not known, or a value is not of its type.
    """
    from google.protobuf import json_format

    try:
        return json_format.ParseDict(dict(data), kind())
    except json_format.ParseError as err:
        raise ConfigError(_in_words(err)) from err


def data_of(message: Any) -> dict[str, Any]:  # noqa: ANN401 - a message of protobuf
    """Return a message as JSON data, under the names of its fields; whole numbers of 64 bits are texts."""
    from google.protobuf import json_format

    data: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return data


def text_of(message: Any) -> str:  # noqa: ANN401 - a message of protobuf
    """Return a message in protobuf's text format."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message)
    return text


def parse_message(text: str, kind: Any) -> Any:  # noqa: ANN401 - a message of protobuf
    """Return the message in a text; raise ConfigError, which begins with line and column, if it is malformed."""
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, kind())
    except text_format.ParseError as err:
        raise ConfigError(_in_words(err)) from err


def _in_words(err: Exception) -> str:
    first = first_line(err)
    # Without the package, which the user did not write.
    return re.sub(r'"\w+(\.\w+)*\.(?=\w+")', '"', first.removeprefix("Failed to parse "))
