"""All details of comparisons, for `-v`: every check, note and probe in full width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paritygate.pipelines.compare.result import (
    NOT_ASKED,
    ComparisonResult,
    ErrorResult,
    ProbeFailureResult,
    ProbeResult,
    ProbesResult,
    reasons,
)
from paritygate.text import counted, hint_lines
from paritygate.validate.detections.figures import MatchFigures, MatchStatistics
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.probes.outcome import finding_words, how_to_declare
from paritygate.validate.probes.skip_reasons import DropKind, batches_in_words, drop_words
from paritygate.validate.words.sentence import missing_words, render, say

# Further values of a stratum are only in the report.
_NAMED_VALUES = 5


def comparison_details(result: ComparisonResult) -> Iterator[str]:
    """Yield every check of one comparison that is not a pass, every remark and every note."""
    yield from (*reasons(result, with_findings=False), *match_lines(result), *_probe_lines(result))
    yield from finding_lines({"": result})
    yield from (f"note: {note}" for note in result.notes)


def error_lines(error: ErrorResult, name: str = "") -> tuple[str, ...]:
    """Return an error and its hint, with the name of its variant or spec if there is one."""
    message = ": ".join(filter(None, ("error", name, error.message)))
    return (message, *hint_lines(**error.next_step))


def shared_remarks(results: Mapping[str, ComparisonResult]) -> Iterator[str]:
    """Yield every remark on probes and every note once, with the names of all its rows."""
    names: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.is_measured:
            for line in (*_probe_remarks(result), *(f"note: {note}" for note in result.notes)):
                names.setdefault(line, []).append(name)
    for line, rows in names.items():
        yield f"{'; '.join(rows)}: {line}"


def _probe_lines(result: ComparisonResult) -> Iterator[str]:
    ran = _asked(result.probes)
    if ran:
        rows = sum(probe.rows for probe in ran.values())
        yield f"probes: {rows} rows for {', '.join(ran)}; {_times([result.probes])}"
    yield from _probe_remarks(result)


def probes_of_all_line(results: Iterable[ComparisonResult]) -> Iterator[str]:
    """Yield one line with the rows and seconds of the probes of several variants, if any ran."""
    probes = [result.probes for result in results if _asked(result.probes)]
    if probes:
        rows = sum(probe.rows for of_one in probes for probe in _asked(of_one).values())
        yield f"probes: {rows} rows for {counted(len(probes), 'comparison')}; {_times(probes)}"


def _asked(probes: ProbesResult) -> dict[str, ProbeResult]:
    return {name: probe for name, probe in probes.asked.items() if probe.status != NOT_ASKED}


def _probe_remarks(result: ComparisonResult) -> Iterator[str]:
    """Yield what did not run and why, and how to reproduce a failure, one line each."""
    probes, ran = result.probes, _asked(result.probes)
    left_out = _left_out(probes)
    if left_out:
        yield f"probes: left out: {', '.join(left_out)}"
    apart = {name: render(missing_words(probe.words)) for name, probe in probes.asked.items() if probe.does_not_apply}
    if apart:
        yield f"probes that do not apply: {', '.join(f'{name} ({missing})' for name, missing in apart.items())}"
    for name, probe in probes.asked.items():
        if probe.status == NOT_ASKED and name not in apart:
            yield f"probe {name}: {probe.detail}"
        if probe.error:
            others = in_order(other for other, result_of_other in probes.asked.items() if not result_of_other.error)
            yield f"probe {name}: to leave it out: --probes {','.join(others) or 'none'}"
    if probes.switched_off:
        yield f"probes switched off: {', '.join(probes.switched_off)}"
    not_asked = sum(probe.edge_off for probe in probes.asked.values())
    if not_asked:
        yield f"probes: {batches_in_words(not_asked)} unlike every sample did not run because of edge: off"
    for name, probe in ran.items():
        yield from _first_failure(name, probe)


def finding_lines(results: Mapping[str, ComparisonResult]) -> Iterator[str]:
    """Yield the differences where no sample is, once for all variants that share one, with what to do."""
    shared: dict[tuple[str, str], dict[str, ProbeFailureResult]] = {}
    for name, result in results.items():
        for finding in result.edge_findings:
            shared.setdefault((finding.probe, finding.edge), {})[name] = finding
    for (probe, edge), by_name in shared.items():
        first, finding = next(iter(by_name.items()))
        differs = f"{finding.check}: {finding.detail}{f' (numbers of {first})' if len(by_name) > 1 else ''}"
        words = render(finding_words(edge, finding.about, say("text", text=differs), batches=finding.batches))
        names = f"{', '.join(by_name)}: " if any(by_name) else ""
        yield f"out-of-sample finding: {names}probe_{probe}: {words}"
        yield from _what_to_do(finding, has_spec=any(by_name))
    yield from _padding_lines(results)


def _padding_lines(results: Mapping[str, ComparisonResult]) -> Iterator[str]:
    """Yield the differences under an undeclared mask, once for all variants that share one."""
    shared: dict[str | None, dict[str, str]] = {}
    for name, result in results.items():
        for check in result.padding_findings:
            shared.setdefault(check.output, {})[name] = check.detail
    for by_name in shared.values():
        first, detail = next(iter(by_name.items()))
        names = f"{', '.join(by_name)}: " if any(by_name) else ""
        yield f"padding finding: {names}{detail}{f' (numbers of {first})' if len(by_name) > 1 else ''}"


def _what_to_do(finding: ProbeFailureResult, *, has_spec: bool) -> Iterator[str]:
    can = how_to_declare(finding.if_it_occurs, has_spec=has_spec)
    never = how_to_declare(finding.if_it_never_occurs, has_spec=has_spec)
    yield f"  if the service can receive such a row, let it fail: {can}, or add one to the samples"
    yield f"  if it never can, leave such rows out: {never}"
    if finding.inputs is not None:
        yield f"  its inputs are in {finding.inputs}"
    if finding.again:
        yield f"  to see this alone: {finding.again}"


def _first_failure(name: str, probe: ProbeResult) -> Iterator[str]:
    for failure in probe.failures[:1]:
        if failure.inputs is not None:
            yield f"probe {name}: its inputs are in {failure.inputs}"
        if failure.again:
            yield f"probe {name}: to see this alone: {failure.again}"


def _left_out(probes: ProbesResult) -> list[str]:
    """Return what was left out of all probes together; each probe's detail has its own."""
    counts = {
        kind: sum(probe.dropped_by[kind].batches for probe in probes.asked.values() if kind in probe.dropped_by)
        for kind in DropKind
    }
    return drop_words(counts)


def _times(probes: Iterable[ProbesResult]) -> str:
    samples, of_probes = map(sum, zip(*(of_one.seconds() for of_one in probes), strict=True))
    return f"{of_probes:.1f} s, the samples {samples:.1f} s"


def match_lines(result: ComparisonResult) -> Iterator[str]:
    """Yield one line per list of detections, and one per stratum of it, the worst values first."""
    for name, matches in result.matches.items():
        missing = f"{matches.missing} missing, {matches.extra} extra (rows: {matches.rows})"
        yield f"detections {name}: {_counted(matches)}, {missing}"
        for stratum, values in matches.strata.items():
            yield f"detections {name} by {stratum}: {_by_value(values)}"


def _counted(found: MatchStatistics | MatchFigures) -> str:
    return f"{found.matched} of {found.expected} matched"


def _by_value(values: Mapping[str, MatchFigures]) -> str:
    worst = sorted(values.items(), key=lambda item: -(item[1].missing + item[1].extra))
    words = [f"{value!r} {_counted(figures)} (rows: {figures.rows})" for value, figures in worst[:_NAMED_VALUES]]
    more = f", and {len(values) - len(words)} other values" if len(values) > len(words) else ""
    return ", ".join(words) + more
