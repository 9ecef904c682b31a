"""Write plain data as the YAML of a spec, with comments above its entries, so that it reads back unchanged."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from paritygate.text import one_line

# The keys of an entry, from the outermost on.
Place = tuple[str, ...]
Comments = Mapping[Place, Sequence[str]]

_WIDTH = 80
# Texts without quotes that YAML reads back unchanged; within braces, a colon would end them.
_PLAIN = re.compile(r"[A-Za-z_.][\w./:-]*", re.ASCII)
_PLAIN_IN_BRACES = re.compile(r"[A-Za-z_.][\w./-]*", re.ASCII)


def yaml_text(data: Mapping[str, Any], comments: Comments, *, head: Sequence[str] = ()) -> str:
    """Return data as YAML: mappings of mappings as blocks, anything else on one line if it fits.

    `comments` are lines by the place of the entry below them. An empty line ends a paragraph, and one that begins with
    two spaces is never broken. `head` are the first lines.
    """
    return "\n".join((*_comment(head, ""), *_block(data, comments, (), ""))).lstrip("\n") + "\n"


def _block(data: Mapping[str, Any], comments: Comments, place: Place, indent: str) -> Iterator[str]:
    for key, value in data.items():
        here = (*place, key)
        if not place:
            yield ""
        yield from _comment(comments.get(here, ()), indent)
        begin = f"{indent}{_scalar(key, is_in_braces=False)}:"
        flow = flow_text(value)
        has_comments = any(other[: len(here)] == here and other != here for other in comments)
        if isinstance(value, Mapping) and value and (has_comments or _is_deep(value, begin, flow)):
            yield begin
            yield from _block(value, comments, here, f"{indent}  ")
        else:
            yield f"{begin} {_scalar(value, is_in_braces=False) if isinstance(value, str) else flow}"


def _is_deep(value: Mapping[str, Any], begin: str, flow: str) -> bool:
    return len(begin) + len(flow) > _WIDTH or any(isinstance(item, Mapping) for item in value.values())


def _comment(lines: Sequence[str], indent: str) -> Iterator[str]:
    begin = f"{indent}# "
    for line in lines:
        # A name may hold a line end of YAML, which would end the comment.
        text = one_line(line)
        if text.startswith("  "):
            # A command is copied in one piece.
            yield begin + text
            continue
        parts = textwrap.wrap(
            text, _WIDTH, initial_indent=begin, subsequent_indent=begin, break_long_words=False, break_on_hyphens=False
        )
        yield from parts or [""]


def flow_text(value: Any) -> str:  # noqa: ANN401 - plain data
    """Return data as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_scalar(key)}: {flow_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow_text, value))}]"
    return _scalar(value)


def _scalar(value: Any, *, is_in_braces: bool = True) -> str:  # noqa: ANN401 - plain data
    if not isinstance(value, str):
        text: str = yaml.safe_dump(value, width=_WIDTH, allow_unicode=True).removesuffix("...\n").strip()
        return text
    pattern = _PLAIN_IN_BRACES if is_in_braces else _PLAIN
    if pattern.fullmatch(value) and not value.endswith(":") and yaml.safe_load(value) == value:
        return value
    # In quotes, and always on one line.
    quoted: str = yaml.safe_dump(value, default_style='"', width=float("inf"), allow_unicode=True)
    return quoted.strip()
