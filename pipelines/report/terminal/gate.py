"""A run compared with a release in the terminal: one line per figure, gaps, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paritygate.errors import ExitCode
from paritygate.pipelines.release.interface import INTERFACE
from paritygate.pipelines.release.regression import FEWER_VARIANTS, HeldFigure, RegressionCheck
from paritygate.pipelines.report.figures import near_one, number, share
from paritygate.pipelines.report.tables.table import Row, status, table_of
from paritygate.pipelines.report.terminal.printing import Shown, print_lines
from paritygate.pipelines.report.terminal.screen import screen_table, wrapped
from paritygate.pipelines.spec.against import FIGURES
from paritygate.text import counted, one_or_many

_COLUMNS = ("verdict", "variant", "figure", ">was", ">is", ">allowed")


def print_held(held: RegressionCheck, shown: Shown) -> None:
    """Print the comparison; when quiet, only worse figures and the verdict."""
    print_lines(_lines(held, shown), err=shown.to_stderr)


def _lines(held: RegressionCheck, shown: Shown) -> Iterator[str]:
    figures = held.worse if shown.is_quiet else held.figures
    if figures:
        rows = tuple(_row(item, held) for item in figures)
        caption = f"{held.model}: the run against {_release(held)}"
        yield from screen_table(table_of(caption, _COLUMNS, rows), shown.width)
    for words in _broken_clients(figures, held):
        yield from wrapped(words, width=shown.width)
    if held.missing:
        names = ", ".join(held.missing)
        words = f"missing: {names}: {_release(held)} has it, and the run does not; to accept that, add"
        yield from wrapped(f"{words} --allow {FEWER_VARIANTS}", width=shown.width)
    if not shown.is_quiet:
        for words in held.not_compared:
            yield from wrapped(f"not compared: {words}", width=shown.width)
        for words in held.notes if held.version else ():
            yield from wrapped(f"note: {words}", width=shown.width)
    yield from wrapped(f"verdict: {_verdict(held)}", width=shown.width)


def _broken_clients(figures: Iterable[HeldFigure], held: RegressionCheck) -> Iterator[str]:
    """Yield what breaks clients of the release, one sentence for all variants that share it."""
    variants: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for item in figures:
        if item.changes:
            variants.setdefault((item.changes, item.is_worse), []).append(item.variant)
    for (changes, is_worse), names in variants.items():
        message = f"{', '.join(names)}: a client of {_release(held)} breaks: {'; '.join(changes)}"
        ways = "model.rename of the spec keeps names; --allow interface lets it pass"
        yield f"worse: {message} ({ways})" if is_worse else f"note: {message}; allowed by --allow interface"


def _release(held: RegressionCheck) -> str:
    aliases = f", alias {', '.join(held.aliases)}" if held.aliases else ""
    return f"version {held.version}{aliases}"


def _verdict(held: RegressionCheck) -> str:
    if not held.version:
        return f"pass: {held.model}: {held.notes[0]}"
    count = len(held.worse)
    if held.missing and not count:
        return f"fail: {held.model}: the run lacks {', '.join(held.missing)} of {_release(held)}"
    if count:
        figures = f"{counted(count, 'figure')} {one_or_many(count, 'is', 'are')}"
        return f"fail: {held.model}: {figures} worse than in {_release(held)}"
    if held.exit_code != ExitCode.PASS:
        names = ", ".join(item.variant for item in held.figures if item.verdict) or "a variant"
        return f"error: {held.model}: {names} did not pass, but is in {_release(held)}"
    return f"pass: {held.model}: nothing is worse than in {_release(held)}"


def _row(item: HeldFigure, held: RegressionCheck) -> Row:
    # A single output needs no name.
    abouts = {other.about for other in held.figures if other.figure == item.figure}
    name = f"{item.figure} {item.about}" if len(abouts) > 1 else item.figure
    word = status("worse" if item.is_worse else item.verdict or "ok")
    if item.was is None or item.now is None or item.allowed is None:
        return word, item.variant, name, "pass", item.verdict, "pass"
    return (word, item.variant, name, *(_words(item, value) for value in (item.was, item.now, item.allowed)))


def _words(item: HeldFigure, value: float) -> str:
    if item.figure == INTERFACE:
        return counted(int(value), "change")
    if item.figure == "max_abs_diff":
        return share(value, 1.0)
    if item.figure == "gold":
        return near_one(value)
    if item.figure == "mismatch_rate":
        return f"{value:.3%}".replace("%", " %") if value else "0 %"
    return f"{number(value)} {FIGURES[item.figure].unit}"
