"""Write the reports into the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.files import write_bytes_atomically
from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.markdown_report import render_markdown
from paritygate.pipelines.report.report_data import collect_report, report_without_inputs
from paritygate.pipelines.run.workspace import RunFolder


def write_reports(run: RunFolder, *, release: Mapping[str, Any] | None = None) -> tuple[Path, ...]:
    """Write `report.html` and `report.md` next to the run's evidence and return their paths.

    `release` is as `Release.to_json` returns it. Raises InputFileError for corrupt recordings, StorageError if a disk
    is full.
    """
    report = collect_report(run, release=release)
    # Markdown leaves this machine: it is for pull requests and build summaries.
    hidden = report_without_inputs(report)
    is_hiding, is_leaving_hidden = (run.resolved.hides_inputs(is_leaving=is_leaving) for is_leaving in (False, True))
    pages = {
        "report.html": render_html(hidden if is_hiding else report),
        "report.md": render_markdown(hidden if is_leaving_hidden else report),
    }
    for name, text in pages.items():
        write_bytes_atomically(run.findings / name, text.encode())
    return tuple(run.findings / name for name in pages)
