"""Whatever a person reads in the terminal is printed here: text of unknown origin is made safe to look at first."""

from __future__ import annotations

import re

import click

__all__ = ["as_message", "echo", "echo_block", "one_line", "printable"]

# Control characters but tab and newline, the marks and overrides of writing direction (which could make one word
# read as another), line separators, lone surrogates (which cannot be written as UTF-8) and the byte-order mark.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ud800-\udfff\ufeff]"
)
# A message quotes lines of a log, and the log's path, below itself, and a hint what is to be pasted into a spec; any
# other line break came with a name or a text.
_FOREIGN_BREAK = re.compile(r"\n(?!  (?:\| |log: |inputs: \{|outputs: \{))")


def printable(text: str) -> str:
    r"""Return `text` with every hidden character written out, such as `\u202e`; line breaks stay."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    r"""Return `text` with every hidden character and line break written out, such as `\u202e` and `\n`."""
    return printable(text).replace("\n", "\\n")


def echo(message: str, *, err: bool = False) -> None:
    r"""Print one message, on standard error if `err`.

    A line break within it is written out as `\n`, so that no name can pose as a line of its own; the lines of a log
    that a message quotes (`  | ...`), the log's path (`  log: ...`), and `  inputs: {` and `  outputs: {` of a spec are
    kept.
    """
    click.echo(as_message(message), err=err)


def as_message(message: str) -> str:
    """Return a message as `echo` prints it."""
    return _FOREIGN_BREAK.sub(r"\\n", printable(message))


def echo_block(text: str, *, err: bool = False) -> None:
    """Print text whose line breaks are its own: JSON, where what is written out means the same, or a traceback."""
    click.echo(printable(text), err=err)
