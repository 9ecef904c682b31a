"""Probes in the terminal: how many were asked and how long that took, what was left out, and how to fail again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paritygate.pipelines.compare.result import (
    NOT_ASKED,
    ComparisonResult,
    EdgeFindingResult,
    ProbeResult,
    ProbesResult,
)
from paritygate.text import counted
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.probes.drops import DropKind, batches_in_words, drop_words
from paritygate.validate.probes.outcome import DOES_NOT_APPLY, finding_words

__all__ = ["finding_lines", "probe_lines", "probe_remarks", "probes_of_all_line"]


def probe_lines(result: ComparisonResult) -> Iterator[str]:
    """Yield what there is to say of the probes of a comparison, one line each."""
    asked = _asked(result.probes)
    if asked:
        rows = sum(probe.rows for probe in asked.values())
        yield f"probes: {rows} rows for {', '.join(asked)}; {_times([result.probes])}"
    yield from probe_remarks(result)


def probes_of_all_line(results: Iterable[ComparisonResult]) -> Iterator[str]:
    """Yield how much was asked of several variants and how long that took, in one line; none where nothing was."""
    probes = [result.probes for result in results if _asked(result.probes)]
    if probes:
        rows = sum(probe.rows for found in probes for probe in _asked(found).values())
        yield f"probes: {rows} rows for {counted(len(probes), 'comparison')}; {_times(probes)}"


def _asked(probes: ProbesResult) -> dict[str, ProbeResult]:
    return {name: probe for name, probe in probes.asked.items() if probe.status != NOT_ASKED}


def probe_remarks(result: ComparisonResult) -> Iterator[str]:
    """Yield what was not asked and why, and how to see a failure again, one line each."""
    probes, asked = result.probes, _asked(result.probes)
    left_out = _left_out(probes)
    if left_out:
        yield f"probes: left out: {', '.join(left_out)}"
    apart = {name: probe.detail for name, probe in probes.asked.items() if probe.detail.startswith(DOES_NOT_APPLY)}
    if apart:
        yield f"probes that do not apply: {_reasons(apart)}"
    for name, probe in probes.asked.items():
        if probe.status == NOT_ASKED and name not in apart:
            yield f"probe {name}: {probe.detail}"
        if probe.error:
            others = in_order(other for other, found in probes.asked.items() if not found.error)
            yield f"probe {name}: to leave it out: --probes {','.join(others) or 'none'}"
    if probes.switched_off:
        yield f"probes switched off: {', '.join(probes.switched_off)}"
    not_asked = sum(probe.edge_off for probe in probes.asked.values())
    if not_asked:
        yield f"probes: {batches_in_words(not_asked)} unlike every sample not asked, as edge: off says"
    for name, probe in asked.items():
        yield from _first_failure(name, probe)


def finding_lines(results: Mapping[str, ComparisonResult]) -> Iterator[str]:
    """Yield what is answered otherwise where no sample is: once for all variants that share it, and what to do.

    Args:
        results: The comparison of each variant, by its name; a single comparison may go without one.
    """
    shared: dict[tuple[str, str], dict[str, EdgeFindingResult]] = {}
    for name, result in results.items():
        for finding in result.edge_findings:
            shared.setdefault((finding.probe, finding.edge), {})[name] = finding
    for (probe, edge), found in shared.items():
        first, finding = next(iter(found.items()))
        differs = f"{finding.check}: {finding.detail}{f' (of {first})' if len(found) > 1 else ''}"
        words = finding_words(edge, finding.about, differs, batches=finding.batches)
        names = f"{', '.join(found)}: " if any(found) else ""
        yield f"edge finding: {names}probe_{probe}: {words}"
        yield from _what_to_do(finding)


def _what_to_do(finding: EdgeFindingResult) -> Iterator[str]:
    can, never = finding.if_it_occurs, finding.if_it_never_occurs
    yield f"  if the service can get such a row, it has to hold: write {can} in the spec, or put one into the samples"
    yield f"  if it never can, it need not be asked: write {never} in the spec"
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


def _reasons(details: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({detail.removeprefix(DOES_NOT_APPLY)})" for name, detail in details.items())


def _left_out(probes: ProbesResult) -> list[str]:
    """Return what was left out of all probes together; what each left out is in its detail."""
    counts = {
        kind: sum(probe.dropped_by[kind].batches for probe in probes.asked.values() if kind in probe.dropped_by)
        for kind in DropKind
    }
    return drop_words(counts)


def _times(probes: Iterable[ProbesResult]) -> str:
    samples, of_probes = map(sum, zip(*(found.seconds() for found in probes), strict=True))
    return f"{of_probes:.1f} s, the samples {samples:.1f} s"
