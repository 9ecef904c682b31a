"""Write text for people: counts and names in messages, and safe output to the terminal."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import TextIO

from paritygate.addresses import without_secrets
from paritygate.errors import StorageError

_IS_DEBUG: ContextVar[bool] = ContextVar("is_debug", default=False)
_HISSING = ("s", "x", "ch", "sh")
HIDDEN = "(hidden)"
_ALIKE_WITH_ENDING = 0.75
# Some frameworks put a page of shapes or operators into one message.
_OF_ONE_ERROR = 300
# Python writes larger whole numbers with an exponent.
_WRITTEN_OUT = 1e16
# Control characters except tab and newline, marks and overrides of writing direction (which can make a word look like
# another), line separators, lone surrogates (which UTF-8 lacks) and the byte-order mark.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ud800-\udfff\ufeff]"
)
# A message quotes lines of a log, the log's path, and lines for a spec. Any other line break came with a name or a
# text.
_FOREIGN_BREAK = re.compile(r"\n(?!  (?:\| |log: |inputs: \{|outputs: \{))")


class StrEnum(str, Enum):
    """A closed set of texts, each written as its value; Python has it from 3.11 on."""

    def __str__(self) -> str:
        return str(self.value)


def counted(count: int, noun: str) -> str:
    """Return the count with its noun in the singular or plural: `1 batch`, `2 batches`."""
    return f"{count} {noun if count == 1 else noun + ('es' if noun.endswith(_HISSING) else 's')}"


def a_or_an(noun: str) -> str:
    """Return a noun with its article, such as `an int`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def one_or_many(count: int, one: str, many: str) -> str:
    """Return the word that agrees with the count: `is` or `are`, `differs` or `differ`."""
    return one if count == 1 else many


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def in_full(number: float) -> str:
    """Return a number for a command or a spec, with every digit, so that the same number is read back."""
    # A large int loses digits as a float.
    is_whole = isinstance(number, int) or (float(number).is_integer() and abs(number) < _WRITTEN_OUT)
    return str(int(number)) if is_whole else repr(float(number))


def closest(name: str, known: Iterable[str]) -> str:
    """Return the name that is most like the one given, in whatever case, as `difflib` counts; empty if none is near."""
    # Of names that differ in case alone, the last one stands for all.
    by_lower = {each.lower(): each for each in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else ""


def meant(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean 'logits'?` for the nearest name; empty where none is near."""
    nearest = closest(name, known)
    return f": did you mean {nearest!r}?" if nearest else ""


def hint_of_meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the same as a hint; another hint if no name is near."""
    return meant(name, known).removeprefix(": ") or otherwise


def beside_meant(path: Path) -> str:
    """Return `meant` for a path that does not exist, among the names in its folder."""
    try:
        names = sorted(each.name for each in path.parent.iterdir())
    except OSError:
        return ""
    # Equal endings alone make names alike.
    matches = difflib.get_close_matches(path.name, names, n=1, cutoff=_ALIKE_WITH_ENDING)
    return meant(path.name, matches)


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, the most similar ones first; the others keep their order."""
    return sorted(known, key=lambda each: -difflib.SequenceMatcher(None, name, each).ratio())


def is_placeholder(reason: str) -> bool:
    """Return whether a reason is REASON, copied along with the command of a hint."""
    return reason.strip().casefold() == "reason"


def row_name(row_id: str) -> str:
    """Return a row's name in a message: `row 'a-1'`."""
    return f"row {row_id!r}"


def row_names(ids: Iterable[str]) -> str:
    """Return the names of rows in a message: `rows 'a-1', 'a-2'`, or `row 'a-1'`."""
    names = list(ids)
    return f"{'row' if len(names) == 1 else 'rows'} {', '.join(map(repr, names))}"


def row_range(first: str, last: str) -> str:
    """Return the rows of a batch in a message: `rows 'a-1'..'a-9'`."""
    return f"rows {first!r}..{last!r}"


def in_one_line(err: BaseException) -> str:
    """Return class and message of an exception, its lines joined and cut to a length that can be printed."""
    # The message of a SyntaxError ends in its place.
    text = " ".join(str(err.msg if isinstance(err, SyntaxError) else err).split())
    shown = text if len(text) <= _OF_ONE_ERROR else f"{text[:_OF_ONE_ERROR]}..."
    return f"{type(err).__name__}: {shown}" if shown else type(err).__name__


def first_line(err: BaseException) -> str:
    """Return the first line of an exception's message, or its class if that is empty."""
    return (str(err).strip() or type(err).__name__).splitlines()[0].strip()


def first_line_of(message: str) -> str:
    """Return a message without the lines of a log, or of a server, that it quotes."""
    return message.partition("\n")[0]


def printable(text: str) -> str:
    r"""Return `text` with hidden characters written out, such as `\u202e`, and no secrets; line breaks stay."""
    shown = without_secrets(text)
    # None of the hidden characters is printable for Python either, which looks faster.
    return shown if shown.isprintable() else _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def one_line(text: str) -> str:
    r"""Return `text` with every hidden character and line break written out, such as `\u202e` and `\n`."""
    return printable(text).replace("\n", "\\n")


def echo(message: str, *, err: bool = False) -> None:
    r"""Print one message, on standard error if `err`.

    A line break within it is written out as `\n`, so that no name looks like a line of its own. The lines that a
    message quotes stay: `  | ...` of a log, `  log: ...`, and `  inputs: {` and `  outputs: {` of a spec.
    """
    _write(as_message(message), err=err)


def as_message(message: str) -> str:
    """Return a message as `echo` prints it."""
    return _FOREIGN_BREAK.sub(r"\\n", printable(message))


def echo_block(text: str, *, err: bool = False) -> None:
    """Print text with its own line breaks: JSON, where escaped characters mean the same, or a traceback."""
    _write(printable(text), err=err)


def print_tracebacks(*, is_debug: bool) -> None:
    """Let `echo_traceback` print, or not, which is how a process starts."""
    _IS_DEBUG.set(is_debug)


def echo_traceback(err: BaseException) -> None:
    """Print the traceback of an error that becomes a part of a result, under `--debug` alone."""
    if _IS_DEBUG.get():
        import traceback

        echo_block("".join(traceback.format_exception(err)), err=True)


def _write(text: str, *, err: bool) -> None:
    # Child processes and Python load this module too, and print nothing.
    import click

    with writing(err=err):
        click.echo(text, err=err)


@contextlib.contextmanager
def writing(*, err: bool) -> Iterator[None]:
    """Turn an error on writing to a standard stream into one of ours.

    Standard error is given up instead, because a message that cannot be written changes nothing else.

    Raises:
        StorageError: Standard output cannot be written, such as on a full disk.
        BrokenPipeError: The reader of standard output is gone.
    """
    try:
        yield
    except BrokenPipeError:
        if not err:
            raise
        give_up(sys.stderr)
    except OSError as error:
        if err:
            give_up(sys.stderr)
            return
        msg = f"standard output could not be written: {error.strerror}"
        raise StorageError(msg, hint="write it elsewhere, or name a file with --json") from error


def give_up(stream: TextIO) -> None:
    """Redirect a standard stream and its buffer to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def from_here(path: Path | str) -> str:
    """Return a path relative to the current directory, or unchanged if it is elsewhere."""
    here = current_folder()
    return str(path).removeprefix(f"{here}/") if here else str(path)


def current_folder() -> str:
    """Return the current directory; empty where it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def hint_lines(hint: str, command: str) -> list[str]:
    """Return the lines of a hint, the command on a line of its own; none where there is nothing to add."""
    if hint and command:
        return [f"hint: {hint}:", f"  {command}"]
    return [f"hint: {hint or command}"] if hint or command else []
