"""A table before it is HTML, Markdown or lines of a terminal, with the same cells in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

# Next to the word, so that no verdict depends on colour alone.
SYMBOLS = {
    "pass": "✓",
    "fail": "✗",
    "error": "!",
    "inconclusive": "?",
    "warning": "△",
    "edge": "△",
    "looser": "△",
    "not measured": "○",
    "not run here": "○",
    "not available for this model": "○",
    "nothing required": "○",
    "not run": "○",
}
_OTHER_SYMBOL = "○"


class Cell(NamedTuple):
    """One cell: `kind` is `text`, `figure` (aligned to the right), `code` or `status`.

    `anchor` is the target of a link in the page, `remark` a word behind in brackets, `symbol` that of a status; each
    may be empty. `fraction` is the number as a part of its limit, drawn as a bar; None for no bar.
    """

    text: str
    kind: str = "text"
    anchor: str = ""
    remark: str = ""
    fraction: float | None = None
    symbol: str = ""


Row = Sequence[Cell | str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """The head of a column; figures are aligned to the right."""

    title: str
    is_figure: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table whose first column names its rows; `is_facts` means only names and values."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_facts: bool = False


def facts(caption: str, found: Iterable[Row]) -> Table:
    """Return a table of names and values."""
    return replace(table_of(caption, ("what", "found"), found), is_facts=True)


def table_of(caption: str, titles: Iterable[str], rows: Iterable[Row]) -> Table:
    """Return a table; a title after `>` is that of figures, and a text in a row becomes a cell of its column."""
    columns = tuple(Column(title=title.removeprefix(">"), is_figure=title.startswith(">")) for title in titles)
    cells = (
        tuple(
            Cell(text=cell, kind="figure" if column.is_figure else "text") if isinstance(cell, str) else cell
            for cell, column in zip(row, columns, strict=True)
        )
        for row in rows
    )
    return Table(caption=caption, columns=columns, rows=tuple(cells))


def text(words: str, *, anchor: str = "", remark: str = "") -> Cell:
    """Return a cell with text."""
    return Cell(text=words, anchor=anchor, remark=remark)


def code(words: str) -> Cell:
    """Return a cell with text to copy, such as a digest."""
    return Cell(text=words, kind="code")


def figure(words: str, *, fraction: float | None = None) -> Cell:
    """Return a cell with a number."""
    return Cell(text=words, kind="figure", fraction=fraction)


def status(word: str, *, flag: str = "", remark: str = "") -> Cell:
    """Return a cell with a verdict or status; `flag` is a minor status beside it."""
    # A flagged pass needs a look, so the flag has the symbol.
    symbol = symbol_of(flag if flag and word == "pass" else word)
    return Cell(text=f"{word}, {flag}" if flag else word, kind="status", remark=remark, symbol=symbol)


def symbol_of(word: str) -> str:
    """Return the symbol of a verdict or status, or the default symbol."""
    return SYMBOLS.get(word, _OTHER_SYMBOL)
