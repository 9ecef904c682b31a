"""Frameworks and runtimes in the terminal: the installed ones, and how to install the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paritygate.backends import BackendState
from paritygate.pipelines.report.tables.table import table_of
from paritygate.pipelines.report.terminal.screen import command_lines, screen_table, wrapped
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS

_MISSING = "missing"


def backends_lines(states: Sequence[BackendState]) -> Iterator[str]:
    """Yield a table of the backends, the reasons and commands for missing ones, and the targets."""
    rows = [(state.version or _MISSING, state.backend.name, state.backend.used_for) for state in states]
    yield from screen_table(table_of("frameworks and runtimes", ("version", "backend", "used to"), rows))
    for state in states:
        if not state.is_available:
            yield from wrapped(f"{_MISSING}: {state.backend.name}: {state.reason}; what installs it:")
            yield from command_lines(state.install, indent="  ")
        if state.warning:
            yield from wrapped(f"warning: {state.warning}")
    yield from wrapped(f"targets of this version: {', '.join(map(str, AVAILABLE_TARGETS))}")
