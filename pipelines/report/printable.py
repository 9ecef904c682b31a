"""Text of unknown origin made safe to look at: no character that is invisible or turns the text around."""

from __future__ import annotations

import re

__all__ = ["printable"]

# Control characters but tab and newline, the marks and overrides of writing direction (which could make one word
# read as another), line separators, lone surrogates (which cannot be written as UTF-8) and the byte-order mark.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ud800-\udfff\ufeff]"
)


def printable(text: str) -> str:
    r"""Return `text` with every hidden character written out, such as `\u202e`."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
