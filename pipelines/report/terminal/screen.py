"""Lay out lines for a terminal of 80 columns, where a wide character takes two."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from paritygate.pipelines.report.tables.table import Table
from paritygate.text import as_message, current_folder, from_here, one_line

WIDTH = 80
_GAP = "  "
# A word of a command continues over inner `;` and `,`, and over quoted text.
_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s;,'"]|[;,](?!\s|$))+"""
_COMMAND = re.compile(rf"(?<![\w./`-])(?:convert-and-validate|pip install)(?: {_WORD})+(?:[;,]? |$)")
# Units to copy whole: an option with its value, and a spec's key with its braces.
_UNIT = re.compile(r"--[\w-]+ [^\s;,-][^\s;,]*\S*|(?:[\w.]+: )?\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\S*|\S+")
# The beginnings of lines that a message quotes: spaces, or a bar.
_QUOTED = re.compile(r" *(?:\| )?")
# Lines to paste into a spec, and paths, keep their width.
_WHOLE = ("  inputs: {", "  outputs: {", "  log: ")


def screen_table(table: Table, width: int | None = WIDTH) -> list[str]:
    """Return a table as lines without a frame; the remark of a first cell is below its row, others at its end."""
    from rich.cells import cell_len

    heads = [column.title for column in table.columns]
    texts = [[one_line(cell.text) for cell in row] for row in table.rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *texts, strict=True)]
    is_figure = [column.is_figure for column in table.columns]
    if width is not None:
        least = [0 if column.is_figure else cell_len(column.title) for column in table.columns]
        _make_fit(widths, least, width)
    lines = [*wrapped(table.caption, width=width), *_row_lines(heads, widths, is_figure)]
    for row, words in zip(table.rows, texts, strict=True):
        shown = _row_lines(words, widths, is_figure)
        marks = _GAP.join(one_line(cell.remark) for cell in row[1:] if cell.remark)
        if marks and (width is None or cell_len(shown[0]) + len(_GAP) + cell_len(marks) <= width):
            shown[0] += _GAP + marks
        elif marks:
            shown += wrapped(marks, indent=_indent(widths), width=width)
        lines += shown
        if row[0].remark:
            lines += wrapped(row[0].remark, indent=_indent(widths), width=width)
    return lines


def _make_fit(widths: list[int], least: Sequence[int], width: int) -> None:
    """Narrow columns of words, the widest first, without the first column because names may be long.

    `least` is the width that each column keeps, and 0 for figures, which are never broken. `width` includes the gaps.
    """
    names = [at for at, smallest in enumerate(least) if at and smallest]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max((at for at in names if widths[at] > least[at]), key=lambda at: widths[at], default=None)
        if widest is None:
            return
        widths[widest] -= 1


def _indent(widths: Sequence[int]) -> str:
    return " " * (widths[0] + len(_GAP))


def _row_lines(words: Sequence[str], widths: Sequence[int], is_figure: Sequence[bool]) -> list[str]:
    """Return a row, in several lines where a name is wider than its column."""
    from rich.cells import cell_len, chop_cells

    cells = [chop_cells(text, width) or [""] for text, width in zip(words, widths, strict=True)]
    lines = []
    for at in range(max(map(len, cells))):
        parts = [parts[at] if at < len(parts) else "" for parts in cells]
        padded = [
            " " * (width - cell_len(part)) + part if is_right else part + " " * (width - cell_len(part))
            for part, width, is_right in zip(parts, widths, is_figure, strict=True)
        ]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def wrapped(text: str, *, indent: str = "", width: int | None = WIDTH) -> list[str]:
    """Return a message as lines of this width, in columns; None for one line.

    Continuations are indented, each command can be copied, and paths are never broken. Quoted lines of a log stay
    lines.
    """
    if width is not None:
        text = _shortened(text)
    lines: list[str] = []
    for line in as_message(text).split("\n"):
        if width is None or line.startswith(_WHOLE) or not _is_wide(indent + line, width):
            lines.append(indent + line)
        else:
            lines += _broken(line, indent, width)
    return lines


def _broken(line: str, indent: str, width: int) -> list[str]:
    """Return a wide line as several, with each command in its own lines, without a `;` or `,` after it."""
    quoted = _QUOTED.match(line)
    start = indent + (quoted[0] if quoted else "")
    # A remark continues at its own indent; messages and quotes continue further in.
    hanging = indent if indent and start == indent else start + _GAP
    line = line.removeprefix(start.removeprefix(indent))
    lines: list[str] = []
    at = 0
    for command in _COMMAND.finditer(line):
        words = command[0].rstrip(" ;,")
        if not _is_whole_command(words):
            continue
        if head := line[at : command.start()].rstrip():
            lines += _filled(head, hanging if lines else start, hanging, width)
        lines += command_lines(words, indent=start + _GAP, width=width)
        at = command.end()
    if rest := line[at:].strip():
        lines += _filled(rest, hanging if lines else start, hanging, width)
    return lines


def _shortened(text: str) -> str:
    """Return the text with paths below the current directory made relative."""
    here = current_folder()
    return re.sub(rf"(?<![\w./-]){re.escape(here)}/", "", text) if here else text


def _is_whole_command(words: str) -> bool:
    """Return whether a shell can read it: no word is a part of the sentence or a placeholder for options."""
    try:
        parts = shlex.split(words)
    except ValueError:
        return False
    return not any(word.endswith(")") or word.startswith(("(", "[")) for word in parts)


def _is_wide(line: str, width: int) -> bool:
    from rich.cells import cell_len

    return cell_len(line) > width


def _filled(text: str, start: str, hanging: str, width: int) -> list[str]:
    lines, line = [], start
    for word in _units(text, width - len(hanging)):
        glue = "" if line in {start, hanging} else " "
        if not _is_wide(line + glue + word, width):
            line += glue + word
            continue
        if line.strip():
            lines.append(line)
        *full, last = _parts(word, width - len(hanging))
        lines += [hanging + part for part in full]
        line = hanging + last
    return [*lines, line]


def _units(text: str, width: int) -> Iterator[str]:
    """Yield words, and units to copy whole if they fit a line."""
    for unit in _UNIT.findall(text):
        yield from unit.split() if _is_wide(unit, width) else [unit]


def _parts(word: str, width: int) -> list[str]:
    """Return a word in parts of this width; a path stays whole."""
    from rich.cells import chop_cells

    return [word] if "/" in word else chop_cells(word, width) or [""]


def command_lines(command: str, *, indent: str = "", width: int | None = WIDTH) -> list[str]:
    r"""Return a command as lines that a shell reads as one, with backslashes at their ends and words unbroken."""
    lines, line = [], indent
    if width is not None:
        command = _shortened(command)
    for word in map(shlex.quote, shlex.split(command)):
        glue = "" if line.isspace() or not line else " "
        # Room for ` \` at the end.
        if glue and width is not None and _is_wide(f"{line} {word} \\", width):
            lines.append(f"{line} \\")
            line, glue = f"{indent}  ", ""
        line += glue + word
    return [*lines, line]


def path_line(what: str, path: Path | str, width: int | None = WIDTH) -> list[str]:
    """Return `report: PATH` (absolute without a width), relative to the current folder, in two lines if wide."""
    if width is None:
        return [f"{what}: {path}"]
    shown = one_line(from_here(path))
    line = f"{what}: {shown}"
    return [f"{what}:", shown] if _is_wide(line, width) else [line]
