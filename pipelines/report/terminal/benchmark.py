"""A benchmark in the terminal: a screen, or every figure with `-v`."""

from __future__ import annotations

from paritygate.pipelines.compare.result import NOT_RUN_HERE
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.tables.speed import footprint_table, short_speed_table, speed_table
from paritygate.pipelines.report.terminal.printing import Shown, print_errors, print_lines, print_table
from paritygate.pipelines.report.terminal.screen import screen_table, wrapped
from paritygate.text import echo


def print_benchmark(report: ReportData, shown: Shown) -> None:
    """Print the tables and notes, and errors on standard error.

    If standard output holds JSON, there is no table, and notes go to standard error. A variant that does not run here
    is not an error of the benchmark.
    """
    to_stderr = shown.to_stderr
    result = report.benchmark
    if result is None:
        return
    if shown.is_verbose and not to_stderr:
        print_table(speed_table(report, result))
        print_table(footprint_table(report, result))
    elif not to_stderr:
        print_lines(screen_table(short_speed_table(report, result)))
    for note in result.notes:
        print_lines(wrapped(f"note: {note}", width=shown.width), err=to_stderr)
    not_run_here = {variant.name for variant in report.variants if variant.verdict == NOT_RUN_HERE}
    for variant in result.variants:
        for note in variant.notes if shown.is_verbose else ():
            echo(f"{variant.name}: note: {note}", err=to_stderr)
        if variant.error and variant.name not in not_run_here:
            print_errors(f"error: benchmark of {variant.name}: {variant.error}", is_verbose=shown.is_verbose)
