"""The report of one comparison: an HTML page like that of a run's variant, or Markdown."""

from __future__ import annotations

from pathlib import Path

from paritygate.files import write_bytes_atomically
from paritygate.pipelines.compare.redaction import hidden
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.report.html_page import html_page
from paritygate.pipelines.report.markdown_report import render_comparison
from paritygate.pipelines.report.report_data import VariantReport
from paritygate.pipelines.report.sections import section_of
from paritygate.pipelines.report.summary import comparison_remarks, comparison_summary

_MOST_BYTES = 2_000_000
# By this line --report knows a page that it may replace.
_WRITTEN_HERE = "\n<!-- Written by paritygate -->\n"


def write_comparison_report(result: ComparisonResult, path: Path) -> None:
    """Write a comparison's report; `.md` names no rows, because it is made to be shared. May raise StorageError."""
    text = render_comparison(hidden(result)) + _WRITTEN_HERE if path.suffix == ".md" else _html(result, path.parent)
    write_bytes_atomically(path, text.encode(), elsewhere="name another file with --report")


def _html(result: ComparisonResult, folder: Path) -> str:
    """Return the page, without drawings where it would exceed 2 MB."""
    error = result.error
    variant = VariantReport(
        name=f"{result.candidate.name} against {result.reference.name}",
        is_required=True,
        verdict=result.verdict,
        exit_code=result.exit_code,
        reason="" if error is None else error.message,
        hint="" if error is None else error.hint,
        result=result,
    )
    # The page's head has the causes.
    remarks = (item for item in comparison_remarks(result) if item.kind != "cause")
    lines = [": ".join(filter(None, (item.kind, *item.names, item.words))) for item in remarks]
    pages = (
        html_page(
            "comparison",
            section=section_of(variant, folder),
            summary=comparison_summary(result),
            remarks=lines,
            is_drawn=is_drawn,
        )
        for is_drawn in (True, False)
    )
    drawn = next(pages)
    return drawn if len(drawn.encode()) <= _MOST_BYTES else next(pages)
