"""The error of a table that is not in UTF-8: the first such cell, and the command that converts the file."""

from __future__ import annotations

import codecs
import re
import shlex
import unicodedata
from pathlib import Path

from paritygate.errors import InputFileError

_LONGEST_LINE = 1 << 24
_SHOWN = 40
_WIDE = ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))
# The encodings that are tried, by how the names of their letters begin; the first that fits is used.
_TRIED = (("HIRAGANA", "CP932"), ("KATAKANA", "CP932"), ("HANGUL", "CP949"), ("CJK", "GB18030"))
# In encodings of other letters, such as umlauts, bytes beyond ASCII are rarely adjacent.
_IN_PAIRS = re.compile(rb"(?:[\x00-\x7f]|[\x80-\xff]{2})*")
_OTHER = "CP1252"


def not_utf8(path: Path, delimiters: str) -> InputFileError:
    """Return the error of a table that is not in UTF-8, with its first such cell and a guess of its encoding."""
    line, cell, encoding = _first_cell(path, delimiters)
    msg = f"samples {path}, line {line}: the cell {cell!r} is not in UTF-8 (guess: {encoding}, expected UTF-8)"
    made = f"{path.stem}-utf8{path.suffix}"
    command = f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(made)}"
    return InputFileError(msg, hint=f"convert the file, or save it as CSV in UTF-8: {command}")


def _first_cell(path: Path, delimiters: str) -> tuple[int, str, str]:
    """Return line, text and likely encoding of the first cell that is not in UTF-8."""
    between = re.compile(b"[%s]" % re.escape(delimiters).encode())
    with path.open("rb") as stream:
        number, line = 0, b""
        while line := stream.readline(_LONGEST_LINE):
            number += 1
            wide = _wide(line) if number == 1 else None
            if wide is not None:
                text = line[: len(line) // 4 * 4].decode(wide, errors="replace").lstrip("\ufeff")
                return 1, _shown(re.split(between.pattern.decode(), text)[0]), wide
            cell = next((cell for cell in between.split(line) if not _is_utf8(cell)), None)
            if cell is not None:
                encoding = _guess(cell)
                return number, _shown(cell.decode(encoding, errors="replace")), encoding
    return number, "", _OTHER


def _wide(line: bytes) -> str | None:
    """Return the encoding of a line whose characters are wider than a byte; None for any other."""
    marked = next((name for mark, name in _WIDE if line.startswith(mark)), None)
    return marked or (("UTF-16BE" if line.startswith(b"\0") else "UTF-16LE") if b"\0" in line else None)


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _guess(cell: bytes) -> str:
    for script, encoding in _TRIED if _IN_PAIRS.fullmatch(cell) else ():
        try:
            letters = [letter for letter in cell.decode(encoding) if not letter.isascii()]
        except UnicodeDecodeError:
            continue
        if any(unicodedata.name(letter, "").startswith(script) for letter in letters):
            return encoding
    return _OTHER


def _shown(cell: str) -> str:
    return cell.strip('\r\n"')[:_SHOWN]
