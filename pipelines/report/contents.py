"""What the templates of both formats are given: the same tables in the same order."""

from __future__ import annotations

from typing import Any

from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.sections import variant_sections
from paritygate.pipelines.report.speed_section import speed_section
from paritygate.pipelines.report.tables.machines import machine_tables, other_devices_table
from paritygate.pipelines.report.tables.run import (
    artifact_table,
    earlier_failures_table,
    evidence_words,
    parity_table,
    reference_tables,
    release_table,
)

__all__ = ["contents_of"]


def contents_of(report: ReportData) -> dict[str, Any]:
    """Return the variables of the templates, by name."""
    return {
        "report": report,
        "parity": parity_table(report),
        "evidence_words": evidence_words(report),
        "earlier": earlier_failures_table(report),
        "elsewhere": other_devices_table(report),
        "release": release_table(report.release, report) if report.release is not None else None,
        "speed": speed_section(report),
        "sections": variant_sections(report),
        "reference": reference_tables(report.recording) if report.recording is not None else (),
        "artifacts": artifact_table(report),
        "machines": machine_tables(report),
    }
