"""A comparison in the terminal: the parity table, what failed and why, and the verdict."""

from __future__ import annotations

import sys

import click

from paritygate.pipelines.console import PARITY_COLUMNS, parity_rows, print_table
from paritygate.pipelines.result import ComparisonResult

__all__ = ["print_comparison", "reasons"]

_SHOWN = {"fail", "error", "inconclusive", "warning"}


def reasons(result: ComparisonResult) -> list[str]:
    """Return one line for each check that is not a pass."""
    lines = []
    for check in result.checks:
        if check.status in _SHOWN:
            output = f" [{check.output}]" if check.output else ""
            lines.append(f"{check.status}: {check.name}{output}: {check.detail}")
    return lines


def print_comparison(result: ComparisonResult, *, to_stderr: bool = False) -> None:
    """Print the comparison for people; on standard error where standard output holds JSON."""
    if result.error is not None:
        click.echo(f"error: {result.error.message}", err=True)
        if result.error.hint:
            click.echo(f"hint: {result.error.hint}", err=True)
        return
    if not to_stderr:
        title = f"{result.candidate.name} against {result.reference.name}, judged as {result.precision}"
        print_table(title, PARITY_COLUMNS, parity_rows(result.precision, result, "verified"))
    stream = sys.stderr if to_stderr else sys.stdout
    for line in reasons(result):
        click.echo(line, file=stream)
    for note in result.notes:
        click.echo(f"note: {note}", file=stream)
    if result.outputs_left_out:
        click.echo(f"not compared: {', '.join(result.outputs_left_out)}", file=stream)
    click.echo(f"verdict: {result.verdict}", file=stream)
