"""The section of each variant in the report, without parts that would be empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.compare.result import ComparisonResult, OutputResult, reasons
from paritygate.pipelines.report.drawings.drawings import drawings_of
from paritygate.pipelines.report.drawings.plot import Plot
from paritygate.pipelines.report.figures import number, share, times
from paritygate.pipelines.report.not_covered import not_covered
from paritygate.pipelines.report.report_data import ReportData, VariantReport
from paritygate.pipelines.report.repro_commands import ReproCommand, repro_commands
from paritygate.pipelines.report.summary import findings_of
from paritygate.pipelines.report.tables.conversion import conversion_table
from paritygate.pipelines.report.tables.machines import machine_tables, other_devices_table
from paritygate.pipelines.report.tables.parity import anchor_of, parity_table
from paritygate.pipelines.report.tables.probes import FAILED_AT, FOUND_AT, probe_tables, probe_words
from paritygate.pipelines.report.tables.quality import quality_tables
from paritygate.pipelines.report.tables.run import (
    artifact_table,
    earlier_failures_table,
    evidence_words,
    reference_tables,
    release_table,
)
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.tables.variants import (
    agreement_table,
    checks_table,
    decisions_table,
    difference_table,
    operators_table,
    sides_table,
    strata_tables,
    tolerance_table,
    worst_rows_table,
)
from paritygate.pipelines.report.why import why_of_variant
from paritygate.validate.measure.figures import WorstRow

_FAILED = frozenset({"fail", "error", "inconclusive"})
# From this part of its limit on, the row of a difference is worth a look.
_NEAR_LIMIT = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputSection:
    """One output of a variant; `remark` describes it where there are no drawings, which only a page in HTML has."""

    name: str
    output: OutputResult
    remark: str
    tables: tuple[Table, ...]

    @property
    def drawings(self) -> tuple[Plot, ...]:
        """The drawings, made anew."""
        return drawings_of(self.output)


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantSection:
    """The section of one variant.

    - `anchor`: its place in the page. `lead`: one sentence. `operators`: unsupported ones; None without any.
    - `before`, `after`: tables around the outputs; `apart`: the strata.
    - `probes`, `alone`, `probe_details`: tables of failed probes, commands to reproduce them, and other tables.
    - `made`: the conversion; None without a record. `not_covered`, `notes`: one sentence each.
    """

    anchor: str
    variant: VariantReport
    lead: str
    operators: Table | None
    before: tuple[Table, ...] = ()
    probe_words: tuple[str, ...] = ()
    probes: tuple[Table, ...] = ()
    alone: tuple[ReproCommand, ...] = ()
    probe_details: tuple[Table, ...] = ()
    outputs: tuple[OutputSection, ...] = ()
    apart: tuple[Table, ...] = ()
    after: tuple[Table, ...] = ()
    made: Table | None
    not_covered: tuple[str, ...] = ()
    notes: tuple[str, ...]

    @property
    def why(self) -> str:
        """The reason why it is not a pass, in one sentence, or an empty text."""
        return why_of_variant(self.variant)

    @property
    def causes(self) -> list[str]:
        """The causes of failing differences, one sentence each."""
        return [] if self.variant.result is None else self.variant.result.named_causes

    @property
    def is_open(self) -> bool:
        """True where there is something to act on: all except a variant that passed without a finding."""
        result = self.variant.result
        return self.variant.verdict != "pass" or (
            result is not None and bool(result.edge_findings or result.padding_findings)
        )


def variant_sections(report: ReportData) -> tuple[VariantSection, ...]:
    """Return one section for each variant."""
    return tuple(
        _section(variant, anchor_of(position), report.folder) for position, variant in enumerate(report.variants)
    )


def section_of(variant: VariantReport, folder: Path) -> VariantSection:
    """Return the section of a variant alone on its page; `folder` is where commands of the page are called."""
    return _section(variant, anchor_of(0), folder)


def _section(variant: VariantReport, anchor: str, folder: Path) -> VariantSection:
    section = VariantSection(
        anchor=anchor,
        variant=variant,
        lead=_lead(variant),
        operators=operators_table(variant.operators) if variant.operators else None,
        made=conversion_table(variant.artifact.made_by.get("facts", {})) if variant.artifact is not None else None,
        notes=tuple(_notes(variant)),
    )
    result = variant.result
    # A failed comparison has only its reason.
    if result is None or not result.is_measured:
        return section
    decisions = (decisions_table(result.decisions),) if result.decisions else ()
    probes = probe_tables(result, folder)
    # Commands follow the table of the failures or findings.
    place = max((at for at, table in enumerate(probes, 1) if table.caption in {FAILED_AT, FOUND_AT}), default=1)
    return replace(
        section,
        before=(checks_table(result), *decisions, *quality_tables(result)),
        probe_words=probe_words(result),
        probes=probes[:place],
        alone=repro_commands(result, folder),
        probe_details=probes[place:],
        outputs=tuple(_output(name, output, result) for name, output in result.outputs.items()),
        apart=strata_tables(result),
        after=(tolerance_table(result), sides_table(result)),
        not_covered=not_covered(result),
    )


def _lead(variant: VariantReport) -> str:
    result = variant.result
    required = "required" if variant.is_required else "optional"
    if result is None or not result.is_measured:
        return f"Nothing was measured; {required}, exit code {variant.exit_code}."
    passes = "1 pass" if result.passes == 1 else f"{result.passes} passes"
    return (
        f"{number(result.rows)} rows in {number(result.batches)} batches, {passes}, judged as {result.precision}, "
        f"in {number(result.seconds)} s; {required}, exit code {variant.exit_code}."
    )


def _output(name: str, output: OutputResult, result: ComparisonResult) -> OutputSection:
    tables = [agreement_table(output)]
    if output.mismatches != 0:
        tables.insert(0, difference_table(output))
    if any(row.row_id and _says_something(row) for row in output.worst_rows):
        tables.append(worst_rows_table(output))
    return OutputSection(name=name, output=output, remark=_remark(name, output, result), tables=tuple(tables))


def _says_something(row: WorstRow) -> bool:
    """Return whether a row comes near its limit, or beyond it; smaller differences are rounding."""
    # A difference that is not finite counts too.
    return row.max_abs_diff is None or row.limit is None or row.max_abs_diff > row.limit * _NEAR_LIMIT


def _remark(name: str, output: OutputResult, result: ComparisonResult) -> str:
    if output.max_abs_diff == 0:
        return f"Each of the {number(output.compared)} values that were subtracted is equal to the reference's."
    if output.max_abs_diff is None and not output.compared:
        return "No difference could be measured."
    if any(check.name == "p9999_abs_diff" and check.output == name for check in result.checks):
        return "Above a million values the limit holds for 99.99 % of them, and ten times the limit for the largest."
    return ""


def _notes(variant: VariantReport) -> Iterable[str]:
    result, made_by = variant.result, variant.artifact.made_by if variant.artifact is not None else {}
    notes = list(made_by.get("notes", ()))
    if result is not None:
        notes += result.notes
        if result.looser_than_default:
            loose = ", ".join(result.looser_than_default)
            notes.append(f"limits looser than the default for {result.precision}: {loose}")
    if variant.emulated is not None:
        before = set(notes)
        notes += [
            f"emulated: {line}" for line in (*reasons(variant.emulated), *variant.emulated.notes) if line not in before
        ]
    # The result repeats the converter's notes.
    return dict.fromkeys(notes)


def release_words(report: ReportData) -> str:
    """Return one sentence on the release, its speed and its share of the limits; empty without a release."""
    if report.release is None:
        return ""
    alias = f" ({report.release['alias']})" if report.release["alias"] else ""
    version = f"{report.release['model']} {report.release['version']}"
    released = [_in_release(variant, report) for variant in report.variants if variant.name in report.marked]
    return f"Released as {version}{alias}: {'; '.join(released)}."


def _in_release(variant: VariantReport, report: ReportData) -> str:
    words = [variant.name]
    if report.benchmark is not None:
        from paritygate.pipelines.report.tables.speed import measured_speed

        speed, _ = measured_speed(variant, report.benchmark)
        point = None if speed is None else speed.at(report.benchmark.batch_sizes[0], report.benchmark.concurrency[0])
        if point is not None and point.speedup is not None:
            words.append(f"{times(point.speedup.ratio)} as fast as the source")
    checks = variant.result.checks if variant.result is not None else ()
    part = tolerance_used((check.name, check.measured, check.limit) for check in checks)
    if part is not None:
        words.append(f"its difference at {share(part, 1.0)} of the nearest limit" if part else "its answers equal")
    return ", ".join(words)


def failed_variants(sections: Iterable[VariantSection]) -> tuple[VariantSection, ...]:
    """Return the variants that were tried and did not pass, the required ones first."""
    failed = [section for section in sections if section.variant.verdict in _FAILED]
    return tuple(sorted(failed, key=lambda section: not section.variant.is_required))


def contents_of(report: ReportData) -> dict[str, Any]:
    """Return the variables of the templates, by name."""
    sections = variant_sections(report)
    return {
        "report": report,
        "parity": parity_table(report),
        "evidence_words": evidence_words(report),
        "earlier": earlier_failures_table(report),
        "elsewhere": other_devices_table(report),
        "release": release_table(report.release, report) if report.release is not None else None,
        "speed": _speed_of(report),
        "released": release_words(report),
        "sections": sections,
        "failed": failed_variants(sections),
        "findings": findings_of(report),
        "reference": reference_tables(report.recording) if report.recording is not None else (),
        "artifacts": artifact_table(report),
        "machines": machine_tables(report),
    }


def _speed_of(report: ReportData) -> dict[str, Any] | None:
    """Return the variables of the section on speed; its trade-off may be without points."""
    if report.benchmark is None:
        return None
    from paritygate.pipelines.report.tables.speed import footprint_table, speed_lead, speed_notes, speed_table
    from paritygate.pipelines.report.tradeoff.tradeoff import tradeoff_of

    return {
        "lead": speed_lead(report.benchmark),
        "tradeoff": tradeoff_of(report, report.benchmark),
        "tables": (speed_table(report, report.benchmark), footprint_table(report, report.benchmark)),
        "notes": speed_notes(report, report.benchmark),
    }
