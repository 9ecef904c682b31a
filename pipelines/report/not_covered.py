"""List what a comparison does not cover: outputs, decisions, rows and probes."""

from __future__ import annotations

from collections.abc import Iterator

from paritygate.pipelines.compare.result import ComparisonResult, ProbesResult


def not_covered(result: ComparisonResult) -> tuple[str, ...]:
    """Return what a comparison does not cover, one sentence each."""
    return (*_outputs(result), *_answers(result), *_rows(result), *_probes(result.probes))


def _outputs(result: ComparisonResult) -> Iterator[str]:
    if result.outputs_left_out:
        yield f"not compared: {', '.join(result.outputs_left_out)}"
    for name, why in result.outputs_ignored.items():
        yield f"output {name} is ignored: {why}"


def _answers(result: ComparisonResult) -> Iterator[str]:
    read = {*result.decisions, *(item.output for item in result.gold.values())}
    names = [name for name, item in result.outputs.items() if item.mismatches is None and name not in read]
    if names:
        yield f"no decision is declared on {', '.join(names)}: differences are judged, and not what becomes of them"
    for name, decision in result.decisions.items():
        if decision.constant:
            yield f"the decision on {name} is the same for all rows: {decision.constant}"


def _rows(result: ComparisonResult) -> Iterator[str]:
    for check in result.checks:
        if check.name.endswith("_coverage") and check.status != "pass":
            yield f"{f'{check.output}: ' if check.output else ''}{check.detail}"


def _probes(probes: ProbesResult) -> Iterator[str]:
    if probes.skipped:
        yield f"no probe ran: {probes.skipped}"
    not_asked = [*probes.switched_off, *probes.not_recorded]
    if not_asked:
        yield f"probes that did not run: {', '.join(not_asked)}"
    if probes.edge == "off":
        yield "rows that are unlike every sample did not run"
    yield from (f"probe {name}: {note}" for name, probe in probes.asked.items() for note in probe.notes)
