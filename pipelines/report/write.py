"""Writing the reports into the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.files import write_bytes_atomically
from paritygate.pipelines.choice.choice import Choice
from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.markdown_report import render_markdown
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.workspace import RunFolder

__all__ = ["write_pages", "write_reports"]


def write_reports(
    run: RunFolder, *, release: Mapping[str, Any] | None = None, choice: Choice | None = None
) -> tuple[Path, ...]:
    """Write `report.html` and `report.md` beside the run's evidence and return their paths.

    Args:
        run: The run, as far as it went: what is missing is reported as not measured.
        release: The release that was made of it, as `Release.to_json` has it; None if there is none to report.
        choice: What is to be released, where it was not yet.

    Raises:
        InputFileError: The recorded reference or the benchmark is damaged.
        StorageError: The disk is full, or the folder cannot be written.
    """
    return write_pages(collect_report(run, release=release, choice=choice), run.findings)


def write_pages(report: ReportData, folder: Path) -> tuple[Path, ...]:
    """Write `report.html` and `report.md` into a folder and return their paths.

    Raises:
        StorageError: The disk is full, or the folder cannot be written.
    """
    pages = {"report.html": render_html(report), "report.md": render_markdown(report)}
    for name, text in pages.items():
        write_bytes_atomically(folder / name, text.encode())
    return tuple(folder / name for name in pages)
