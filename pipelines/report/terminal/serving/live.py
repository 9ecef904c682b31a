"""The results of `load` and `endurance` in the terminal: with `-v` one line per part, the figures, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paritygate.pipelines.live.endurance_page import batch_tables, endurance_facts
from paritygate.pipelines.live.endurance_result import EnduranceResult, Period
from paritygate.pipelines.live.page import failure_words, largest_words, load_tables, notes_of, title_of
from paritygate.pipelines.live.result import LiveResult, LoadResult, Step
from paritygate.pipelines.report.figures import amount, seconds_words
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_outcome
from paritygate.pipelines.report.terminal.screen import path_line
from paritygate.text import counted


def print_step(step: Step, shown: Shown) -> None:
    """Print one loop of a load when it ends, if verbose."""
    if shown.is_verbose:
        load = f"{step.users} users" if step.rate is None else f"{amount(step.rate)} requests a second"
        latency = amount(step.p99_ms, missing="no end")
        print_lines([f"{load}: {amount(step.per_second)} answers/s, p99 {latency} ms"], err=True)


def print_period(period: Period, shown: Shown) -> None:
    """Print one period of a long load when it ends, if verbose."""
    if shown.is_verbose:
        memory = "" if period.memory is None else f", {amount(period.memory)} MiB"
        latency = amount(period.p50_ms, missing="no")
        print_lines([f"{period.at:.0f} s: {period.requests} requests, p50 {latency} ms{memory}"], err=True)


def print_load(result: LoadResult, page: Path | None, shown: Shown) -> None:
    """Print the outcome of a load."""
    facts: list[str | Table] = [*load_tables(result.steps)]
    facts.append(
        f"{counted(result.answers, 'answer')} compared: {result.wrong} wrong, {counted(result.flips, 'row')} changed; "
        f"largest difference: {largest_words(result)}"
    )
    if result.first_failure is not None:
        facts.append(f"first failure: {failure_words(result.first_failure)}")
    after = ", and is correct after the stress" if result.is_right_after_stress else ""
    passed = f"the server sustains {amount(result.highest_rate or 0.0)} answers a second{after}"
    _print(result, facts, passed, page, shown)


def print_endurance(result: EnduranceResult, page: Path | None, shown: Shown) -> None:
    """Print the outcome of a long load."""
    facts: list[str | Table] = []
    for model in (result, *result.also):
        facts += [f"{model.served.url}, {title_of(model.served)}: {model.verdict}"] if model is not result else []
        facts += [f"{name}: {words}" for name, words in endurance_facts(model)]
        if shown.is_verbose or any(each.wrong for each in (*model.batches_before, *model.batches_after)):
            facts += batch_tables(model)
    passed = f"{result.requests:,} requests in {seconds_words(result.seconds)}"
    _print(result, facts, passed, page, shown)


def _print(result: LiveResult, facts: Sequence[str | Table], passed: str, page: Path | None, shown: Shown) -> None:
    title = f"{title_of(result.served)}, over {result.served.transport}"
    notes = [f"note: {words}" for words in notes_of(result)]
    report = [] if page is None else [list(path_line("report", page, shown.width))]
    verdict = f"verdict: {result.verdict}: {'; '.join(result.reasons) or passed}"
    print_outcome(verdict, [title, *facts, *notes, *report], shown)
