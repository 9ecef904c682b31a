"""Write and check the head of a view's file: its subject, its options, and the digest of its body.

It reveals files of others, changes by hand, and options that are left out now.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Mapping

from msgspec import Struct, field

from paritygate.errors import ChangedViewError
from paritygate.text import one_line

_FIRST = "# Written by paritygate"
_BELOW = "# below: "
_OPTION = re.compile(r"# (--[a-z-]+) .+")
_WIDTH = 80
# A hint on lasting changes of a Triton configuration.
KEEP = "put lasting changes into the spec, in serve: {triton: {...}}, and release it"


class Head(Struct, frozen=True, kw_only=True):
    """The head of a file."""

    said: str = ""  # the subject, if any
    files: str = ""  # the digest of the served files, if any
    options: Mapping[str, str] = field(default_factory=dict)  # of the command, without which it would do less

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
    """Return whether a file was written by this, even if it was changed since."""
    return content.startswith(_FIRST.encode())


def check_as_written(content: bytes, name: str, options: Mapping[str, str] | None = None, *, keep: str = KEEP) -> None:
    """Check that our file is unchanged, and that `options`, if given, leave out none of the earlier ones.

    `name` is for the message, and `keep` a hint on lasting changes by hand.

    Raises:
        ChangedViewError: It was changed, or an option is left out.
    """
    lines, digest, body = _parts(content.decode(errors="replace"))
    before = [(match[1], line.removeprefix("# ")) for line in lines if (match := _OPTION.fullmatch(line))]
    left_out = [option_line for option, option_line in before if options is not None and option not in options]
    if digest != _digest(body):
        msg = f"{name} was changed since it was written, and would be overwritten"
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
    """Return the lines of the head, its digest or an empty text, and the body."""
    head, sign, rest = text.partition(f"\n{_BELOW}")
    if not sign:
        return text.split("\n")[:1], "", text.partition("\n")[2]
    digest, _, body = rest.partition("\n")
    return head.split("\n"), digest, body


def _digest(body: str) -> str:
    return f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
