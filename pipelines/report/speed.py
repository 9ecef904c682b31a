"""The section of the report on speed, of runs with a benchmark."""

from __future__ import annotations

from msgspec import Struct

from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.tables.speed import footprint_table, speed_lead, speed_notes, speed_table
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.tradeoff.tradeoff import Tradeoff, tradeoff_of


class SpeedSection(Struct, frozen=True, kw_only=True):
    """The section on speed; its trade-off may be without points, and `notes` are one sentence each."""

    lead: str
    tradeoff: Tradeoff
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def speed_section(report: ReportData, benchmark: BenchmarkResult) -> SpeedSection:
    """Return the section."""
    return SpeedSection(
        lead=speed_lead(benchmark),
        tradeoff=tradeoff_of(report, benchmark),
        tables=(speed_table(report, benchmark), footprint_table(report, benchmark)),
        notes=speed_notes(report, benchmark),
    )
