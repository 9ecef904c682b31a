"""The head of a file of a view: what it is of, how it was asked for, and the digest of what stands below.

By it a file is known that somebody else wrote, or changed by hand, and what was asked for before and is left out now.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from paritygate.errors import ChangedViewError
from paritygate.text import one_line

_FIRST = "# Written by paritygate"
_BELOW = "# below: "
_OPTION = re.compile(r"# (--[a-z-]+) .+")
_WIDTH = 80
# How a change by hand lasts in a configuration of Triton.
KEEP = "say what is to stay in the spec, by serve: {triton: {...}}, and release it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What the head of a file says.

    Attributes:
        said: What it is of, in words; nothing if empty.
        files: The digest of what is served; nothing if empty.
        options: The options that the command was given, without which less would be asked.
    """

    said: str = ""
    files: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def over(self, body: str) -> str:
        """Return the file: the head, in lines of comments, and below it the body."""
        first = f"{_FIRST}{': ' if self.said else ''}{self.said}."
        lines = textwrap.wrap(first, _WIDTH, subsequent_indent="# ", break_long_words=False, break_on_hyphens=False)
        lines += [f"# files: {self.files}"] if self.files else []
        lines += [f"# {option} {one_line(value)}" for option, value in self.options.items()]
        return _joined(lines, body)


def with_body(text: str, body: str) -> str:
    """Return a file with another body, below the same head."""
    lines, _, _ = _parts(text)
    return _joined(lines, body)


def is_ours(content: bytes) -> bool:
    """Return whether a file was written by this, whatever was changed in it since."""
    return content.startswith(_FIRST.encode())


def check_as_written(content: bytes, name: str, options: Mapping[str, str] | None = None, *, keep: str = KEEP) -> None:
    """Check that a file is as it was written, and that nothing is left out now of what was asked for then.

    Args:
        content: The file, which is ours.
        name: What it is called, for the message.
        options: The options that are given now; None where no more is asked than that nobody changed the file.
        keep: How a change lasts that was made by hand, for the hint.

    Raises:
        ChangedViewError: It was changed, or an option is left out.
    """
    lines, digest, body = _parts(content.decode(errors="replace"))
    before = [(found[1], line.removeprefix("# ")) for line in lines if (found := _OPTION.fullmatch(line))]
    left_out = [said for option, said in before if options is not None and option not in options]
    if digest != _digest(body):
        msg = f"{name} was changed since it was written, and would be written over"
        if left_out:
            msg += f"; it was written with {' '.join(left_out)}, which this call leaves out"
        raise ChangedViewError(msg, hint=keep)
    if left_out:
        msg = f"{name} was written with {' '.join(left_out)}, which this call leaves out"
        raise ChangedViewError(msg, hint=f"give {' '.join(left_out)} again")


def is_changed(content: bytes) -> bool:
    """Return whether a file of ours was changed since it was written."""
    _, digest, body = _parts(content.decode(errors="replace"))
    return is_ours(content) and digest != _digest(body)


def _joined(lines: list[str], body: str) -> str:
    return "\n".join([*lines, f"{_BELOW}{_digest(body)}", body])


def _parts(text: str) -> tuple[list[str], str, str]:
    """Return the lines of the head, the digest that it says, empty where it says none, and what stands below."""
    head, sign, rest = text.partition(f"\n{_BELOW}")
    if not sign:
        return text.split("\n")[:1], "", text.partition("\n")[2]
    digest, _, body = rest.partition("\n")
    return head.split("\n"), digest, body


def _digest(body: str) -> str:
    return f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
