"""The screen about a run or a comparison: one line per variant, the reasons, and remarks.

It is data: a table, and remarks that each appear once, with the variants that they concern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paritygate.models.half_precision import LOAD_IN_FP32, half_precision_words
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.compare.result import NOT_AVAILABLE, NOT_RUN_HERE
from paritygate.pipelines.report.figures import number, share, shorten, times
from paritygate.pipelines.report.tables.table import Cell, Row, Table, status, table_of, text
from paritygate.pipelines.report.why import headline_check, why, why_of_variant
from paritygate.precision import Precision
from paritygate.text import counted, first_line_of
from paritygate.validate.gate.declared_limits import DEFAULT_LIMIT, limits_of_result
from paritygate.validate.measure.check import FAULT
from paritygate.validate.measure.decisions import undecided
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.probes.outcome import how_to_declare

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult, ProbeFailureResult, ProbeResult
    from paritygate.pipelines.report.report_data import ReportData, VariantReport
    from paritygate.pipelines.report.tables.table import Cell

_NOTHING = "-"
_FULL = frozenset({Precision.FP32, Precision.TF32})
# Short enough for a column.
_NOT_AVAILABLE = "not available"
# Sentences are cut to these lengths; the report has all of them.
_WHY_LENGTH = 200
_SHORT_WHY_LENGTH = 130
_REMARK_LENGTH = 230
# Long, because it ends with what to write.
_PADDING_LENGTH = 330
# With more failures than this, sentences are shorter, so that all fit one screen.
_FEW = 4
# Further remarks of one kind are in the report.
_MOST_OF_A_KIND = 3
# Each variant has its own warning line, as far as a screen has room.
_MOST_WARNINGS = 12
_LINE_LENGTH = 40
# This many variants of one format are named together.
_NAMED_TOGETHER = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """A remark on some variants (none: on all), by `kind`, which is a verdict for a reason that variants share."""

    kind: str
    words: str
    names: tuple[str, ...] = ()


def run_summary(report: ReportData) -> Table:
    """Return a table with one row per variant; the verdict's remark is the reason why it is not a pass."""
    shared = _shared_reasons(report)
    count = sum(bool(why_of_variant(variant)) for variant in report.variants)
    length = _WHY_LENGTH if count <= _FEW else _SHORT_WHY_LENGTH
    rows: list[Row] = []
    for variant in report.variants:
        words = why_of_variant(variant)
        alone = "" if words in shared else shorten(words, length)
        verdict = _verdict(variant.verdict, variant.result, remark=alone)
        rows.append((verdict, _name(variant, report), *figures_of(variant.result)))
    titles = ["verdict", "variant", ">mismatches", ">tolerance used"]
    if report.benchmark is not None:
        titles.append(">speed-up")
        rows = [(*row, _speedup(variant, report)) for row, variant in zip(rows, report.variants, strict=True)]
    return table_of(_title(report), titles, rows)


def comparison_summary(result: ComparisonResult) -> Table:
    """Return the table of one comparison."""
    rows = f" on {counted(result.rows, 'row')}" if result.rows else ""
    verdict = _verdict(result.verdict, result, remark=shorten(why(result), _WHY_LENGTH))
    return table_of(
        f"{result.candidate.name} against {result.reference.name}{rows}",
        ("verdict", "judged as", ">mismatches", ">tolerance used"),
        [(verdict, result.precision, *figures_of(result))],
    )


def _title(report: ReportData) -> str:
    runtime = report.recording.runtime if report.recording is not None else {}
    source = f"its {runtime.get('runtime')} {runtime.get('version')} source" if runtime.get("runtime") else "its source"
    rows = f" on {counted(report.recording.rows, 'row')}" if report.recording is not None else ""
    return f"{report.model} against {source}{rows}"


def verdict_words(verdict: str) -> str:
    """Return a verdict short enough for a column."""
    return _NOT_AVAILABLE if verdict == NOT_AVAILABLE else verdict


def _verdict(verdict: str, result: ComparisonResult | None, *, remark: str = "") -> Cell:
    has_findings = result is not None and (result.edge_findings or result.padding_findings)
    return status(verdict_words(verdict), flag="edge" if has_findings else "", remark=remark)


def _name(variant: VariantReport, report: ReportData) -> Cell:
    mark = report.mark if variant.name in report.marked else ""
    # "optional" matters only where it is not a pass.
    is_spare = not variant.is_required and variant.verdict != "pass"
    return text(variant.name, remark=mark or ("optional" if is_spare else ""))


def figures_of(result: ComparisonResult | None) -> tuple[str, str]:
    """Return the changed decisions, and the nearest limit's share; for a failure that of the check in its sentence."""
    if result is None or not result.is_measured:
        return _NOTHING, _NOTHING
    counts = [] if result.mismatches is None else [result.mismatches]
    counts += [match.missing + match.extra for match in result.matches.values()]
    check_told = headline_check(result) if result.verdict == "fail" else None
    part = tolerance_used(
        (check.name, check.measured, check.limit) for check in (result.checks if check_told is None else [check_told])
    )
    return (number(sum(counts)) if counts else _NOTHING), (_NOTHING if part is None else share(part, 1.0))


def _speedup(variant: VariantReport, report: ReportData) -> str:
    # Imported late, because a comparison has no speed.
    from paritygate.pipelines.report.tables.speed import measured_speed

    benchmark = report.benchmark
    speed = measured_speed(variant, benchmark)[0] if benchmark is not None else None
    if speed is None or benchmark is None:
        return _NOTHING
    point = speed.at(benchmark.batch_sizes[0], benchmark.concurrency[0])
    speedup = None if point is None else point.speedup
    return _NOTHING if speedup is None else times(speedup.ratio)


def _shared_reasons(report: ReportData) -> dict[str, list[VariantReport]]:
    """Return the reasons that several variants share, which are shown once, below the table."""
    by_reason: dict[str, list[VariantReport]] = {}
    for variant in report.variants:
        if words := why_of_variant(variant):
            by_reason.setdefault(words, []).append(variant)
    # Variants that do not run here are listed apart, however many they are.
    return {words: names for words, names in by_reason.items() if len(names) > 1 or names[0].verdict == NOT_RUN_HERE}


# Where the rest is.
SEE_VERBOSE = "see -v"


def run_remarks(report: ReportData) -> tuple[Remark, ...]:
    """Return the remarks on a run, the gravest first."""
    measured = {name: result for name, result in _results(report) if result.is_measured}
    reasons = (
        Remark(kind=variants[0].verdict, names=tuple(item.name for item in variants), words=words)
        for words, variants in _shared_reasons(report).items()
    )
    return (
        *reasons,
        *_causes(measured),
        *_half_precision(report),
        *_looks_like(measured),
        *_emulated(report),
        *_clamped(report),
        *_mostly_kept(report),
        *_hints(report),
        *_lower_fails(report),
        *_to_repair(report),
        *_warnings(measured),
        *_findings(measured),
        *_undecided(report, measured.values()),
        *_of_speed(report),
    )


def _undecided(report: ReportData, results: Iterable[ComparisonResult]) -> Iterator[Remark]:
    """Yield once that outputs which may be scores have no decision."""
    first = next(iter(results), None)
    if first is None or report.recording is None or first.matches:
        return
    outputs = [spec for spec in report.recording.signature.outputs if spec.name in first.outputs]
    used = {item.output for item in first.gold.values()}
    if words := undecided(outputs, {*first.decisions, *used}):
        yield Remark(kind="note", words=words)


def _half_precision(report: ReportData) -> Iterator[Remark]:
    """Yield a remark if the source computes in half precision, with how to load it in float32."""
    dtype = None if report.recording is None else report.recording.runtime.get("half_precision")
    if dtype is not None:
        yield Remark(kind="source", words=f"{half_precision_words(str(dtype))}; {LOAD_IN_FP32}")


def comparison_remarks(result: ComparisonResult) -> tuple[Remark, ...]:
    """Return the remarks on one comparison."""
    return (
        *_lower_precision(result),
        *_causes({"": result}),
        *_other_inputs(result),
        *_left_out(result),
        *_loosened(result),
        *_looks_like({"": result}),
        *_of_probes(result),
        *_warnings({"": result}),
        *_findings({"": result}),
    )


def _lower_precision(result: ComparisonResult) -> Iterator[Remark]:
    """Yield how to judge a failed candidate by the limits of the precision that its weights have."""
    found = result.candidate.precision_found
    if result.verdict == "fail" and result.precision == Precision.FP32 and found not in {None, *_FULL}:
        words = (
            f"the candidate's weights are {found}, judged as {result.precision}; if you meant that: --precision {found}"
        )
        yield Remark(kind="hint", words=words)


def _other_inputs(result: ComparisonResult) -> Iterator[Remark]:
    """Yield the inputs of both sides where they differ, unless the table already has that reason."""
    for check in result.checks:
        if (check.name, check.status) == ("contract.inputs", "fail") and headline_check(result) != check:
            yield Remark(kind="inputs", words=shorten(check.detail, _REMARK_LENGTH))


def _results(report: ReportData) -> Iterator[tuple[str, ComparisonResult]]:
    for variant in report.variants:
        if variant.result is not None:
            yield variant.name, variant.result
        if variant.emulated is not None:
            yield f"{variant.name} emulated", variant.emulated


def _left_out(result: ComparisonResult) -> Iterator[Remark]:
    """Yield what was excluded from a comparison on purpose, so that the verdict does not cover it."""
    if result.outputs_left_out:
        yield Remark(kind="not compared", words=", ".join(result.outputs_left_out))
    for name, reason in result.outputs_ignored.items():
        yield Remark(kind="ignored", words=f"{name}: {reason}")
    for name, decision in result.decisions.items():
        if decision.constant:
            yield Remark(kind="constant decision", words=f"{name}: {decision.constant}")


def _loosened(result: ComparisonResult) -> Iterator[Remark]:
    """Yield the limits that are looser than their defaults, which weakens a pass."""
    if result.looser_than_default:
        limits = ", ".join(f"{name} {_declared(result, name)}" for name in result.looser_than_default)
        yield Remark(kind=f"limits looser than the default for {result.precision}", words=limits)


def _declared(result: ComparisonResult, name: str) -> str:
    values = limits_of_result(result.tolerance, name)
    return ", ".join(DEFAULT_LIMIT if value is None else number(value) for value in values)


def _causes(results: Mapping[str, ComparisonResult]) -> Iterator[Remark]:
    """Yield every cause once and in full, with the variants that it explains, and why others were not found."""
    yield from _shared("cause", ((words, name) for name, result in results.items() for words in result.named_causes))
    faults = (
        (each.detail, name) for name, result in results.items() for each in result.causes if each.outcome == FAULT
    )
    yield from _shared("note", faults)


def _shared(kind: str, pairs: Iterable[tuple[str, str]]) -> Iterator[Remark]:
    """Yield a remark for each text, with all its names; a single comparison has an empty one."""
    names: dict[str, list[str]] = {}
    for words, name in pairs:
        names.setdefault(words, []).append(name)
    for words, of_words in names.items():
        yield Remark(kind=kind, names=tuple(filter(None, of_words)), words=words)


def _looks_like(results: Mapping[str, ComparisonResult]) -> Iterator[Remark]:
    """Yield each suspected cause of a difference once, with its variants."""
    pairs = (
        (f"{output}: {words}" if len(result.outputs) > 1 else words, name)
        for name, result in results.items()
        for output, figures in result.outputs.items()
        for words in figures.looks_like
    )
    return _first(_shared("looks like", pairs))


def _of_probes(result: ComparisonResult) -> Iterator[Remark]:
    """Yield how to reproduce a probe's first failure if samples do not show it, and how to skip a faulty probe."""
    probes = result.probes.asked
    alone = [(name, probe.failures[0].again) for name, probe in probes.items() if probe.failures]
    for name, again in alone[:1]:
        if again and not _fails_on_samples(result):
            yield Remark(kind="hint", words=f"to see the failure of probe {name} alone: {again}")
    for name, probe in probes.items():
        if probe.error:
            yield Remark(kind="hint", words=f"to leave the probe {name} out: --probes {_but(probes)}")


def _but(probes: Mapping[str, ProbeResult]) -> str:
    """Return the probes without a fault of this tool, as `--probes` takes them."""
    return ",".join(in_order(name for name, probe in probes.items() if not probe.error)) or "none"


def _emulated(report: ReportData) -> Iterator[Remark]:
    """Yield the outcome with emulated precision, where it differs from the variant's own."""
    pairs = (
        (": ".join(filter(None, (_verdict(item.verdict, item).text, why(item)))), variant.name)
        for variant in report.variants
        if (item := variant.emulated) is not None and item.verdict != variant.verdict
    )
    for remark in _shared("emulated", pairs):
        yield replace(remark, words=shorten(remark.words, _REMARK_LENGTH))


def _clamped(report: ReportData) -> Iterator[Remark]:
    """Yield the constants that a failing variant's precision cannot hold, with their new values."""
    pairs = []
    for variant in report.variants:
        facts = variant.artifact.made_by.get("facts", {}) if variant.artifact is not None else {}
        changed = facts.get("constants_clamped") if variant.verdict == "fail" else None
        if changed:
            more = f"; and {len(changed) - 1} more: see the report" if len(changed) > 1 else ""
            words = f"constants beyond the range of its precision were changed: {changed[0]}{more}"
            pairs.append((words, variant.name))
    return _first(_shared("note", pairs))


def _mostly_kept(report: ReportData) -> Iterator[Remark]:
    """Yield how many operators stay in FP32, for variants of a lower precision of which most do."""
    pairs = []
    for variant in report.variants:
        facts = variant.artifact.made_by.get("facts", {}) if variant.artifact is not None else {}
        kept = len(facts.get("nodes_kept", ()))
        total = kept + int(facts.get("nodes_converted", 0))
        if 2 * kept > total:
            pairs.append((f"{kept} of {total} operators stay FP32", variant.name))
    return _first(_shared("note", pairs))


def _hints(report: ReportData) -> Iterator[Remark]:
    hints = ((first_line_of(variant.hint), variant.name) for variant in report.variants if variant.hint)
    return _first(_shared("hint", hints))


def _warnings(results: Mapping[str, ComparisonResult]) -> Iterator[Remark]:
    """Yield one line per text of warnings, each variant's first ones first; many lines are short."""
    by_warning: dict[tuple[str, str], list[str]] = {}
    rank: dict[tuple[str, str], int] = {}
    for name, result in results.items():
        for place, check in enumerate(check for check in result.checks if check.status == "warning"):
            key = (f"{check.name} of {check.output}" if check.output else check.name, check.detail)
            by_warning.setdefault(key, []).append(name)
            rank[key] = min(place, rank.get(key, place))
    ordered = sorted(by_warning, key=lambda key: rank[key])
    length = _REMARK_LENGTH if len(ordered) <= _FEW else _LINE_LENGTH
    most = max(_MOST_OF_A_KIND, min(len(results), _MOST_WARNINGS))
    yield from _first(
        (
            Remark(
                kind="warning", names=tuple(filter(None, by_warning[key])), words=f"{key[0]}: {shorten(key[1], length)}"
            )
            for key in ordered
        ),
        most,
    )


def findings_of(report: ReportData) -> tuple[Remark, ...]:
    """Return the differences that fail nothing, each once, with how to declare them."""
    results = dict(_results(report))
    return (*_edge_findings(results), *_first(_padding_findings(results)))


def _findings(results: Mapping[str, ComparisonResult]) -> Iterator[Remark]:
    """Yield the findings, but only the number of out-of-sample findings of variants that fail on the samples."""
    behind = {name for name, result in results.items() if result.edge_findings and _fails_on_samples(result)}
    yield from _edge_findings({name: result for name, result in results.items() if name not in behind})
    if behind:
        count = sum(len(results[name].edge_findings) for name in behind)
        words = f"{count}, beside what fails on the samples already: {SEE_VERBOSE}"
        names = tuple(name for name in results if name in behind and name)
        yield Remark(kind="out-of-sample findings", names=names, words=words)
    yield from _first(_padding_findings(results))


def _edge_findings(results: Mapping[str, ComparisonResult]) -> Iterator[Remark]:
    """Yield every out-of-sample finding once, with how to declare it."""
    shared: dict[str, dict[str, ProbeFailureResult]] = {}
    for name, result in results.items():
        for finding in result.edge_findings:
            shared.setdefault(finding.edge, {}).setdefault(name, finding)
    remarks = []
    for edge, by_name in shared.items():
        finding = next(iter(by_name.values()))
        differs = shorten(f"{finding.check}: {finding.detail}", _SHORT_WHY_LENGTH)
        names = tuple(filter(None, by_name))
        has_spec = bool(names)
        words = f"{edge}, unlike every sample: outputs differ: {differs}; " + (
            f"if it can occur, {how_to_declare(finding.if_it_occurs, has_spec=has_spec)}; "
            f"if it never can, {how_to_declare(finding.if_it_never_occurs, has_spec=has_spec)}"
            if finding.if_it_occurs or finding.if_it_never_occurs
            else "if it can occur, put such rows into the samples"
        )
        remarks.append(Remark(kind="out-of-sample finding", names=names, words=words))
    yield from _first(remarks)


def _fails_on_samples(result: ComparisonResult) -> bool:
    return any(check.status == "fail" and not check.name.startswith("probe_") for check in result.checks)


def _padding_findings(results: Mapping[str, ComparisonResult]) -> Iterator[Remark]:
    """Yield differences under an undeclared mask, once per output, with the figures of the first variant."""
    by_output: dict[str | None, dict[str, str]] = {}
    for name, result in results.items():
        for check in result.padding_findings:
            by_output.setdefault(check.output, {})[name] = check.detail
    for details in by_output.values():
        words = shorten(next(iter(details.values())), _PADDING_LENGTH)
        yield Remark(kind="padding finding", names=tuple(filter(None, details)), words=words)


def _lower_fails(report: ReportData) -> Iterator[Remark]:
    """Yield where to read on if variants of a lower precision fail on the samples and nothing names the cause."""
    names = tuple(
        variant.name
        for variant in report.variants
        if variant.verdict == "fail"
        and (result := variant.result) is not None
        and result.precision not in _FULL
        and _fails_on_samples(result)
        and not (result.named_causes or variant.hint)
    )
    if names:
        yield Remark(kind="hint", names=names, words="docs/variant-fails.md lists the usual reasons and what to change")


def _to_repair(report: ReportData) -> Iterator[Remark]:
    """Yield the command that repairs a variant: that of FP32 if it fails, else others that the run repaired not yet."""
    verdicts = {variant.name: variant.verdict for variant in report.variants}
    names, aim = ["onnx-fp16", "onnx-int8"], "keep the fewest operators in FP32"
    if verdicts.get("onnx-fp32") == "fail":
        names, aim = ["onnx-fp32"], "look for a right conversion"
    elif verdicts.get("onnx-fp32", "pass") != "pass" or "onnx-mixed" in verdicts:
        return
    for name in names:
        if verdicts.get(name) == "fail":
            command = f"convert-and-validate repair --run latest:{report.model} --variant {name}"
            yield Remark(kind="hint", names=(name,), words=f"{aim}: {command}")


def _of_speed(report: ReportData) -> Iterator[Remark]:
    """Yield notes on speed, and errors of its measurement for variants that run here."""
    if report.benchmark is None:
        return
    verdicts = {variant.name: variant.verdict for variant in report.variants}
    for speed in report.benchmark.variants:
        if speed.error and verdicts.get(speed.name) != NOT_RUN_HERE:
            words = f"speed was not measured: {shorten(first_line_of(speed.error), _SHORT_WHY_LENGTH)}"
            yield Remark(kind="error", names=(speed.name,), words=words)
    yield from _first(Remark(kind="note", words=shorten(note, _REMARK_LENGTH)) for note in report.benchmark.notes)


def _first(remarks: Iterable[Remark], most: int = _MOST_OF_A_KIND) -> Iterator[Remark]:
    """Yield the first remarks of a kind, and the number of the rest."""
    items = list(remarks)
    yield from items[:most]
    more = len(items) - most
    if more > 0:
        yield Remark(kind=items[0].kind, words=f"{more} more of this kind: {SEE_VERBOSE}")


def variants_in_words(names: Sequence[str]) -> str:
    """Return names of variants, many of one format together: `onnx-* (4), tflite-fp16`."""
    formats: dict[str, list[str]] = {}
    for name in names:
        variant, _, emulated = name.partition(" ")
        # An emulated row next to its variant does not count again.
        if not emulated or variant not in names:
            formats.setdefault(name if emulated else variant.rpartition("-")[0], []).append(name)
    parts = []
    for name, members in formats.items():
        together = len(members) >= _NAMED_TOGETHER and bool(name)
        parts += [f"{name}-* ({len(members)})"] if together else members
    return ", ".join(parts)
