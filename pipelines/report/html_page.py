"""Fill in the templates of pages in HTML, with every foreign text escaped.

Python writes the tables, because a page has thousands of cells, and a macro of Jinja2 takes many times as long for one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from paritygate.pipelines.report.drawings.plot import WIDTH
from paritygate.pipelines.report.tables.table import Cell, Table, symbol_of
from paritygate.pipelines.report.templating import Markup, template_environment
from paritygate.text import printable

if TYPE_CHECKING:
    import jinja2

# As Jinja2 writes them.
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})
_FIGURE = ' class="figure"'
_WORDS = frozenset({"not measured", "not finite", "no rule"})
# Longer texts may be broken.
_FIGURE_LENGTH, _TEXT_LENGTH = 18, 24


def html_page(template: str, **contents: Any) -> str:  # noqa: ANN401 - what the template shows
    """Return a page, or the part of a page that a template holds."""
    return _environment().get_template(f"{template}.html.j2").render(contents)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = template_environment(printable)
    environment.filters.update(badge=_badge, table=_table)
    environment.globals["plot_width"] = WIDTH
    return environment


def _escaped(text: str) -> str:
    return printable(text).translate(_ENTITIES)


def _badge(word: str) -> Markup:
    """Return a verdict with its symbol; it may be followed by a remark, as in `fail, edge`."""
    verdict = word.partition(", ")[0]
    kind, symbol = _escaped(verdict.replace(" ", "-")), symbol_of(verdict)
    return Markup(f'<span class="badge {kind}"><span aria-hidden="true">{symbol}</span> {_escaped(word)}</span>')


def _table(table: Table, name: str, kind: str = "") -> Markup:
    """Return a table; `name` is its id in the page, `kind` the class of its style."""
    kind = kind or ("pairs" if table.is_facts else "")
    style = f' class="{kind}"' if kind else ""
    heads = (
        f'<th scope="col"{_FIGURE if column.is_figure else ""}>{_escaped(column.title)}</th>\n'
        for column in table.columns
    )
    return Markup(
        f'<div class="scroll" role="group" tabindex="0" aria-labelledby="{name}">\n<table{style}>\n'
        f'<caption id="{name}"><span>{_escaped(table.caption)}</span></caption>\n'
        f"<thead><tr>\n{''.join(heads)}</tr></thead>\n<tbody>\n"
        f"{''.join(map(_row, table.rows))}</tbody>\n</table>\n</div>\n"
    )


def _row(row: tuple[Cell, ...]) -> str:
    first, *others = row
    cells = "".join(f"<td{_classes(cell)}>{_content(cell)}</td>\n" for cell in others)
    return f'<tr>\n<th scope="row"{_classes(first)}>{_content(first)}</th>\n{cells}</tr>\n'


def _content(cell: Cell) -> str:
    shown = _escaped(cell.text)
    if cell.kind == "status":
        shown = _badge(cell.text)
    elif cell.kind == "code":
        shown = f"<code>{shown}</code>"
    elif cell.anchor:
        shown = f'<a href="#{_escaped(cell.anchor)}">{shown}</a>'
    elif cell.fraction is not None:
        bar = "bar beyond" if cell.fraction > 1 else "bar"
        part = f'<i style="width:{min(cell.fraction, 1.0) * 100:.1f}%"></i>'
        shown = f'<span class="share"><i class="{bar}" aria-hidden="true">{part}</i><span>{shown}</span></span>'
    return f'{shown} <span class="soft">({_escaped(cell.remark)})</span>' if cell.remark else shown


def _classes(cell: Cell) -> str:
    if cell.kind == "figure":
        names = "figure" + " words" * (cell.text in _WORDS) + " wide" * (len(cell.text) > _FIGURE_LENGTH)
    else:
        names = "long" * (len(cell.text) > _TEXT_LENGTH)
    names += " nothing" * (cell.text == "-")
    return f' class="{names.strip()}"' if names else ""
