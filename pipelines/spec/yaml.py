"""Read the YAML of a spec as plain data, with a bounded size, unique text keys, and no surprising types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from paritygate.errors import UsageError
from paritygate.text import one_line

# A spec has some hundred entries in five levels. Larger ones may exhaust time or memory: with aliases, ten short
# lines can expand to a billion entries.
MOST_BYTES = 1 << 18
_MOST_LEVELS = 20
_MOST_ENTRIES = 20_000
# The range of int64 and uint64: no key takes a larger number, and no such number has more characters.
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_MOST_DIGITS = 70
_SHOWN = 40
# Line breaks and tabs are text. Other control characters and lone surrogates are in no name and no path.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
# Names of YAML's types, for messages.
_KINDS = {
    f"{_TAG}null": "nothing",
    f"{_TAG}bool": "a truth value",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}timestamp": "a date",
    f"{_TAG}value": "a sign of YAML's own",
    _MERGE: "a sign of YAML's own",
    f"{_TAG}seq": "a list",
    f"{_TAG}map": "a mapping",
}
_QUOTES = "put it in quotes where it is meant as text"


class _RefusedError(Exception):
    """Something that a spec must not have, with its line."""

    def __init__(self, node: yaml.Node | yaml.Event, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.line = _line(node)
        self.hint = hint


def load_yaml(text: str, *, origin: str) -> Any:  # noqa: ANN401 - plain data of any kind
    """Return the data in a YAML text.

    Raises:
        UsageError: It is not YAML, or is larger, deeper or longer than a spec. Or it has a key twice, a key that is no
            text, a date, a number beyond 64 bits, a tag, or a control character.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        msg = f"spec {origin} has {size} bytes (allowed: {MOST_BYTES})"
        raise UsageError(msg, hint="put data into other files, and name them in the spec")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(loader, node, (), set())
        return loader.construct_document(node)
    except _RefusedError as err:
        raise UsageError(f"spec {origin}, line {err.line}: {err}", hint=err.hint) from err
    except yaml.reader.ReaderError as err:
        msg = f"spec {origin}, line {text.count(chr(10), 0, err.position) + 1} holds the control character {_code(err)}"
        raise UsageError(msg, hint="write it as text in UTF-8, without control characters") from err
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        msg = f"spec {origin}{where} is not valid YAML: {getattr(err, 'problem', None) or err}"
        raise UsageError(msg, hint="check the indentation, the quotes and the brackets there") from err


def _code(err: yaml.reader.ReaderError) -> str:
    return f"\\u{ord(err.character) if isinstance(err.character, str) else err.character:04x}"


class _Loader(yaml.SafeLoader):
    """Makes plain data only, and counts entries with those of aliases while it reads."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._path: list[str] = []
        self._level = 0
        # By id of a complete node: its entries, with those of its aliases, and its levels.
        self._measures: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401 - PyYAML's own signature
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # as PyYAML has it
        # PyYAML's index is None for a key, the key's node for a value, and a number for an entry of a list.
        step = getattr(index, "value", index)
        self._path.append("" if step is None else str(step))
        self._level += 1
        if self._level > _MOST_LEVELS:
            raise self._refused(event, f"is nested more than {_MOST_LEVELS} levels deep")
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent) and id(node) not in self._measures:
            raise self._refused(event, f"is *{event.anchor}, which stands for what it is in")
        tag = getattr(event, "tag", None)
        if tag not in {None, "!"}:
            raise self._refused(event, f"bears the tag {_shown(str(tag))}, and tags are not read")
        if node is not None:
            self._measure(node, event)
        self._level -= 1
        self._path.pop()
        return node

    def _measure(self, node: yaml.Node, event: yaml.Event) -> None:
        if id(node) not in self._measures:
            parts = [self._measures[id(child)] for child in _children(node)]
            entries = 1 + sum(entries for entries, _ in parts)
            self._measures[id(node)] = entries, 1 + max((levels for _, levels in parts), default=0)
        entries, levels = self._measures[id(node)]
        if entries > _MOST_ENTRIES:
            raise self._refused(event, f"has more than {_MOST_ENTRIES} entries, with what its aliases stand for")
        if self._level + levels - 1 > _MOST_LEVELS:
            raise self._refused(event, f"is nested more than {_MOST_LEVELS} levels deep")

    def _refused(self, event: yaml.Event, problem: str) -> _RefusedError:
        hint = "write the values plainly; docs/spec.md lists the keys of a spec"
        return _RefusedError(event, f"{_place(filter(None, self._path))} {problem}", hint)


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _check(loader: _Loader, node: yaml.Node, path: tuple[str, ...], seen: set[int]) -> None:
    """Check a value and all its parts, each once however many aliases it has."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            # `<<` merges other mappings into this one, maybe several.
            if key.tag != _MERGE:
                _check_key(key, path, lines)
            _check(loader, value, (*path, str(key.value)), seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _check(loader, item, (*path, str(number)), seen)
    elif isinstance(node, yaml.ScalarNode):
        _check_scalar(loader, node, path)


def _check_key(key: yaml.Node, path: tuple[str, ...], lines: dict[str, int]) -> None:
    if key.tag != f"{_TAG}str":
        what = _shown(key.value) if isinstance(key, yaml.ScalarNode) else ""
        problem = f"the key {what or 'there'} of {_place(path)} is {_KINDS.get(key.tag, 'no text')}, and keys are text"
        raise _RefusedError(key, problem, f"write a name as the key, and {_QUOTES}")
    _check_text(key, f"a key of {_place(path)}")
    if key.value in lines:
        # One of two tolerances would be ignored.
        problem = f"the key {_place((*path, key.value))} occurs twice (first in line {lines[key.value]})"
        raise _RefusedError(key, problem, "leave one of them out")
    lines[key.value] = _line(key)


def _check_scalar(loader: _Loader, node: yaml.ScalarNode, path: tuple[str, ...]) -> None:
    kind = node.tag.removeprefix(_TAG)
    where = _place(path)
    if kind == "str":
        _check_text(node, where)
    elif kind in {"timestamp", "value", "merge"}:
        problem = f"{where} is {_KINDS[node.tag]} ({_shown(node.value)}), which no key of a spec takes"
        raise _RefusedError(node, problem, _QUOTES)
    elif kind in {"int", "float"} and ":" in node.value:
        # YAML 1.1 reads 1:30 in base 60, as 90.
        problem = f"{where} is a number in base 60 to YAML ({_shown(node.value)})"
        raise _RefusedError(node, problem, _QUOTES)
    elif kind == "int":
        _check_integer(loader, node, where)


def _check_integer(loader: _Loader, node: yaml.ScalarNode, where: str) -> None:
    hint = f"write a smaller number, or {_QUOTES}"
    # Python is slow for a hundred thousand digits, or refuses them.
    if len(node.value) > _MOST_DIGITS:
        problem = f"{where} is a number of {len(node.value)} digits (allowed: {_SMALLEST} to {_LARGEST})"
        raise _RefusedError(node, problem, hint)
    try:
        number = loader.construct_yaml_int(node)
    except ValueError as err:
        problem = f"{where} is not a number ({_shown(node.value)})"
        raise _RefusedError(node, problem, _QUOTES) from err
    if not _SMALLEST <= number <= _LARGEST:
        problem = f"{where} is {_shown(node.value)} (allowed: {_SMALLEST} to {_LARGEST})"
        raise _RefusedError(node, problem, hint)


def _check_text(node: yaml.Node, where: str) -> None:
    match = _NO_TEXT.search(node.value)
    if match is not None:
        problem = f"{where} holds the control character \\u{ord(match[0]):04x}, which no name and no path has"
        raise _RefusedError(node, problem, "write it without that character")


def _line(node: yaml.Node | yaml.Event) -> int:
    # Everything read from a text has a mark.
    return 0 if node.start_mark is None else int(node.start_mark.line) + 1


def _place(path: Iterable[str]) -> str:
    """Return the dotted path of a value, as in other messages about keys."""
    return one_line(".".join(path)) or "the spec"


def _shown(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
