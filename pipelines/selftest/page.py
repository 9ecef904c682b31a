"""The selftest as rows of tables for the terminal, and as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paritygate.pipelines.report.markdown_report import escape_markdown
from paritygate.pipelines.selftest.result import FALSE_ALARM, MISSED, NOT_APPLICABLE, FindingResult, SelftestResult

COLUMNS = ("fault", "outcome", "on samples", "by probes", "what was changed")
_NOTHING = "-"
_PROBE = "probe_"


def rows_of(result: SelftestResult, *, are_innocent: bool) -> list[tuple[str, ...]]:
    """Return one row per planted fault, or per planted equivalent rewrite."""
    return [
        (plant.name, plant.outcome, _names(plant.by_samples), _names(plant.by_probes), plant.what)
        for plant in result.plants
        if plant.is_innocent == are_innocent and plant.outcome != NOT_APPLICABLE
    ]


def _names(findings: Sequence[FindingResult]) -> str:
    return ", ".join(dict.fromkeys(item.check.removeprefix(_PROBE) for item in findings)) or _NOTHING


def lines_below(result: SelftestResult, *, most: int | None = None) -> Iterator[str]:
    """Yield the lines below the tables: unchanged failures, misses, false alarms, `most` inapplicable faults."""
    for finding in result.unchanged_findings:
        yield f"unchanged {result.variant}: {_in_words(finding)}"
    for plant in result.having(MISSED):
        yield f"missed: {plant.name}: {plant.why}"
    for plant in result.having(FALSE_ALARM):
        for finding in (*plant.by_samples, *plant.by_probes):
            yield f"false alarm: {plant.name}: {_in_words(finding)}"
    left_out = [plant.name for plant in result.having(NOT_APPLICABLE)]
    if left_out:
        more = len(left_out[most:]) if most else 0
        others = f" and {more} more: see the page, or -v" if more else ""
        yield f"not applicable to this model ({len(left_out)}): {', '.join(left_out[:most])}{others}"
    if result.probes_off:
        yield f"probes that did not run: {', '.join(result.probes_off)}"


def _in_words(finding: FindingResult) -> str:
    output = f"[{finding.output}]" if finding.output else ""
    return f"{finding.check}{output}: {finding.detail}"


def page_of(result: SelftestResult) -> str:
    """Return the selftest as a Markdown page."""
    probes = ", ".join(f"{name} {rows}" for name, rows in result.probe_rows.items()) or "none"
    lines = [
        f"# Selftest of {escape_markdown(result.model)}",
        "",
        escape_markdown(f"{result.summary}."),
        "",
        escape_markdown(
            f"Planted into {result.variant}, judged as {result.precision}, on {result.rows} rows of samples; "
            f"rows of probes: {probes}; seed {result.seed}; {result.seconds:.0f} s."
        ),
        "",
        *_section("Faults", COLUMNS, rows_of(result, are_innocent=False)),
        *_section("Equivalent rewrites", ("rewrite", *COLUMNS[1:]), rows_of(result, are_innocent=True)),
        *_section(
            "Missed, and what would catch it",
            ("fault", "why"),
            [(plant.name, plant.why) for plant in result.having(MISSED)],
        ),
        *_section(
            "Not applicable to this model",
            ("fault", "why"),
            [(plant.name, plant.what) for plant in result.having(NOT_APPLICABLE)],
        ),
    ]
    remarks = [line for line in lines_below(result) if line.startswith(("unchanged", "false alarm", "probes"))]
    return "\n".join([*lines, *(f"- {escape_markdown(line)}" for line in remarks), ""]).rstrip("\n") + "\n"


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in (columns, *rows)]
    return [f"## {title}", "", lines[0], "|" + " --- |" * len(columns), *lines[1:], ""]
