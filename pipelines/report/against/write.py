"""Write the page about two runs into the folder of the newer one."""

from __future__ import annotations

from pathlib import Path

from paritygate.files import write_bytes_atomically
from paritygate.pipelines.report.against.side_by_side import Side, SideBySide, side_by_side
from paritygate.pipelines.report.html_report import render_html_against
from paritygate.pipelines.report.markdown_report import render_markdown_against
from paritygate.pipelines.report.report_data import collect_report, report_without_inputs
from paritygate.pipelines.run.workspace import RunFolder


def write_against(run: RunFolder, against: RunFolder) -> tuple[SideBySide, tuple[Path, ...]]:
    """Write `report-against-RUN.html` and `.md` next to the run's evidence; return their contents and paths.

    Raises InputFileError if a recorded reference or benchmark is corrupt, StorageError if the disk is full.
    """
    shown = _both(run, against, is_leaving=False)
    # Markdown leaves this machine: it is for pull requests and build summaries.
    leaving = _both(run, against, is_leaving=True)
    name = f"report-against-{against.run_id}"
    pages = {f"{name}.html": render_html_against(shown), f"{name}.md": render_markdown_against(leaving)}
    for file, text in pages.items():
        write_bytes_atomically(run.findings / file, text.encode())
    return shown, tuple(run.findings / file for file in pages)


def _both(run: RunFolder, against: RunFolder, *, is_leaving: bool) -> SideBySide:
    return side_by_side(_side(run, is_leaving=is_leaving), _side(against, is_leaving=is_leaving))


def _side(run: RunFolder, *, is_leaving: bool) -> Side:
    report = collect_report(run)
    if run.resolved.hides_inputs(is_leaving=is_leaving):
        report = report_without_inputs(report)
    return Side(report=report, spec=run.resolved.spec.model_dump(mode="json"))
