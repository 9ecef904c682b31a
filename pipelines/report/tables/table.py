"""A table before it is HTML, Markdown or lines of a terminal: all of them show the same cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Beside the word, so that no verdict is told by colour alone.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: What it says.
        kind: `text`, `figure` (aligned to the right), `code` or `status`.
        anchor: Where a click leads to within the page; empty for nowhere.
        remark: A word behind it, in brackets; empty for none.
        fraction: What part of its limit the number is, drawn as a bar; None for no bar.
        symbol: What stands beside a status; empty for other cells.
    """

    text: str
    kind: str = "text"
    anchor: str = ""
    remark: str = ""
    fraction: float | None = None
    symbol: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """The head of a column; figures stand to the right."""

    title: str
    is_figure: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table whose first column names its rows; `is_facts` is one of names and what they are, no more."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_facts: bool = False


def facts(caption: str, found: Iterable[tuple[str, Cell]]) -> Table:
    """Return a table of names and what they are."""
    rows = tuple((text(name), cell) for name, cell in found)
    return Table(caption=caption, columns=(Column(title="what"), Column(title="found")), rows=rows, is_facts=True)


def of_texts(caption: str, titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table of words alone."""
    return Table(
        caption=caption,
        columns=tuple(Column(title=title) for title in titles),
        rows=tuple(tuple(text(words) for words in row) for row in rows),
    )


def text(words: str, *, anchor: str = "", remark: str = "") -> Cell:
    """Return a cell with words."""
    return Cell(text=words, anchor=anchor, remark=remark)


def code(words: str) -> Cell:
    """Return a cell with something to copy: a digest, an id."""
    return Cell(text=words, kind="code")


def figure(words: str, *, fraction: float | None = None) -> Cell:
    """Return a cell with a number."""
    return Cell(text=words, kind="figure", fraction=fraction)


def status(word: str, *, flag: str = "", remark: str = "") -> Cell:
    """Return a cell with a verdict or the status of a check; `flag` is a status of less weight beside it."""
    # A pass with a flag is to be looked at: the flag has the symbol.
    symbol = symbol_of(flag if flag and word == "pass" else word)
    return Cell(text=f"{word}, {flag}" if flag else word, kind="status", remark=remark, symbol=symbol)


def symbol_of(word: str) -> str:
    """Return the symbol of a verdict or status, also of one that has none of its own."""
    return SYMBOLS.get(word, _OTHER_SYMBOL)
