"""The page of many runs, with a row for each model: those that need attention come first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate import __version__
from paritygate.pipelines.fleet.fleet import FleetEntry, entries_in_order
from paritygate.pipelines.report.figures import seconds_words
from paritygate.pipelines.report.html_page import html_page
from paritygate.pipelines.report.tables.table import SYMBOLS
from paritygate.text import counted

_VERDICTS = {0: "pass", 1: "fail", 3: "inconclusive"}


def verdict_of(entry: FleetEntry) -> str:
    """Return the verdict of a run, by its exit code."""
    return _VERDICTS.get(entry.exit_code, "error")


def counts_of(entries: Sequence[FleetEntry]) -> str:
    """Return how many runs ended in each way."""
    verdicts = [verdict_of(entry) for entry in entries]
    parts = [f"{number} {verdict}" for verdict in SYMBOLS if (number := verdicts.count(verdict))]
    return f"{counted(len(entries), 'spec')}: {', '.join(parts)}"


def render_fleet(entries: Sequence[FleetEntry], folder: Path) -> str:
    """Return the page, whose links are relative to `folder`."""
    rows: list[Mapping[str, Any]] = [
        {
            "verdict": verdict_of(entry),
            "model": entry.model,
            "spec": entry.spec,
            "time": seconds_words(entry.seconds) if entry.log else "nothing has changed",
            "why": f"{entry.why}; hint: {entry.hint}" if entry.hint else entry.why,
            "report": _link(next((str(path) for path in entry.outcome.get("reports") or ()), ""), folder),
            "log": _link(entry.log, folder),
        }
        for entry in entries_in_order(entries)
    ]
    return html_page("fleet", rows=rows, title=counts_of(entries), version=__version__)


def _link(path: str, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix() if path else ""
