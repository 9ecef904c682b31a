"""The section on speed: the chart of speed against difference, its tables, and what they lack."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.tables.speed import footprint_table, speed_lead, speed_notes, speed_table
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.tradeoff.tradeoff import Tradeoff, tradeoff_of


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedSection:
    """The section on speed; its trade-off may be without points, and `notes` are one sentence each."""

    lead: str
    tradeoff: Tradeoff
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def speed_section(report: ReportData) -> SpeedSection | None:
    """Return the section; None without a benchmark."""
    benchmark, tradeoff = report.benchmark, tradeoff_of(report)
    if benchmark is None or tradeoff is None:
        return None
    return SpeedSection(
        lead=speed_lead(benchmark),
        tradeoff=tradeoff,
        tables=(speed_table(report, benchmark), footprint_table(report, benchmark)),
        notes=speed_notes(report, benchmark),
    )
