"""The results of `tune` in the terminal: with `-v` one line per measurement, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paritygate.pipelines.report.figures import number, seconds_words
from paritygate.pipelines.report.tables.table import Table, table_of, text
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_outcome
from paritygate.pipelines.serving.triton.tuned import TUNED_FILE
from paritygate.pipelines.tuning.request import TuneResult
from paritygate.pipelines.tuning.search import Point
from paritygate.pipelines.tuning.view import CHART_FILE
from paritygate.text import counted, from_here


def print_point(point: Point, percentile: float, shown: Shown) -> None:
    """Print one measurement, if verbose."""
    if not shown.is_verbose:
        return
    print_lines([_in_words(point, percentile)], err=True)


def _in_words(point: Point, percentile: float) -> str:
    how = f"{point.callers} callers" if point.rate is None else f"open loop, {number(point.rate)} a second"
    latency = f"p{percentile:g} {number(point.limit_ms, missing='without end')} ms"
    rows = "" if point.rows_per_call is None else f", {number(point.rows_per_call)} rows a call"
    split = ""
    if point.queue_ms is not None and point.compute_ms is not None:
        split = f", of which {number(point.queue_ms)} ms queued and {number(point.compute_ms)} ms computed"
    used = ""
    if point.use is not None:
        shares = (("CPU", point.use.cpu_share), ("GPU", point.use.gpu_share))
        sizes = (("memory", point.use.memory_mib), ("GPU memory", point.use.gpu_memory_mib))
        used = "".join(f", {name} {100 * share:.0f} %" for name, share in shares if share is not None)
        used += "".join(f", {name} {size:.0f} MiB" for name, size in sizes if size is not None)
    over = "" if point.is_within else ": over the limit"
    unsent = f", {counted(point.unsent, 'request')} not sent" if point.unsent else ""
    return f"{point.settings}: {how}: {number(point.rows_per_s)} rows/s, {latency}{split}{rows}{used}{unsent}{over}"


def print_tuned(result: TuneResult, root: Path, shown: Shown) -> None:
    """Print the outcome of the search."""
    print_outcome(_verdict(result), _facts(result, root), shown)


def _facts(result: TuneResult, root: Path) -> Iterator[str | Table]:
    of = f"{result.model} version {result.version}, {result.variant}"
    yield f"{of}, on {result.server} {result.server_version}, over {result.transport}"
    rows = list(_rows(result))
    if rows:
        columns = ("", "settings", ">rows/s", f">p{result.percentile:g} ms", "load")
        caption = f"the most within p{result.percentile:g} {number(result.limit_ms)} ms"
        yield table_of(caption, columns, (tuple(map(text, row)) for row in rows))
    right = "each within the release's limits of the released file's"
    if result.wrong_answers:
        right = f"{result.wrong_answers} wrong"
    settings = len({point.settings for point in result.points})
    yield (
        f"{counted(result.measurements, 'measurement')} of {counted(settings, 'combination')} in "
        f"{seconds_words(result.seconds)}; {counted(result.answers, 'answer')} checked, {right}"
    )
    if result.not_chosen:
        yield f"note: the server's settings cannot be chosen, and it was measured as it is: {result.not_chosen}"
    for settings_, why in result.not_loaded.items():
        yield f"note: the server did not load {settings_}: {why}"
    yield from (f"note: {note}" for note in result.notes)
    if result.verdict == "pass":
        place = f"{from_here(root)}/{result.name}"
        yield f"evidence: {place}/{TUNED_FILE}, {CHART_FILE}"
        if not result.is_loaded:
            load = f"POST /v2/repository/models/{result.name}/load"
            yield f"note: the server has not read {place}: give it this folder, and {load}"


def _rows(result: TuneResult) -> Iterator[tuple[str, ...]]:
    before = ("before", str(result.before))
    if result.baseline is not None:
        yield (*before, *_figures(result.baseline), f"{result.baseline.callers} callers")
    else:
        yield (*before, "-", "-", "over the limit")
    if result.best is not None:
        yield ("best", str(result.best.settings), *_figures(result.best), f"{result.best.callers} callers")
    if result.open is not None:
        yield ("", "open loop", *_figures(result.open), f"{number(result.open.rate)} a second")


def _figures(point: Point) -> tuple[str, str]:
    return number(point.rows_per_s), number(point.limit_ms, missing="-")


def _verdict(result: TuneResult) -> str:
    if result.verdict != "pass":
        return f"verdict: {result.verdict}: {result.reason}; nothing was written"
    written = "written to the view" if result.is_written else "the view has it already"
    if result.best is not None and result.baseline is not None and result.best.settings != result.before:
        times = result.best.rows_per_s / result.baseline.rows_per_s
        return f"verdict: pass: {result.settings}: {number(times)}x the rows a second: {written}"
    return f"verdict: pass: {result.settings}: {written}"
