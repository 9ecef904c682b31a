"""The tables of a report that are about the run as a whole: parity, reference, artifacts, release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paritygate.artifact import Artifact
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.compare.result import ComparisonResult, DecisionResult, MatchResult, OutputResult
from paritygate.pipelines.report.figures import number, shorten, size_words
from paritygate.pipelines.report.report_data import ReportData, VariantReport
from paritygate.pipelines.report.tables.table import Cell, Column, Table, code, facts, figure, status, text
from paritygate.precision import Variant
from paritygate.signature import is_float_dtype
from paritygate.validate.gate.bounds import upper_bound_text
from paritygate.validate.reference.recording import Recording

__all__ = [
    "anchor_of",
    "artifact_table",
    "earlier_failures_table",
    "evidence_words",
    "parity_table",
    "reference_tables",
    "release_table",
]

_PARITY_COLUMNS = (
    Column(title="variant"),
    Column(title="output"),
    Column(title="rows", is_figure=True),
    Column(title="0/1 mismatches", is_figure=True),
    Column(title="95 % bound", is_figure=True),
    Column(title="max diff", is_figure=True),
    Column(title="min diff", is_figure=True),
    Column(title="mean diff", is_figure=True),
    Column(title="std of diff", is_figure=True),
    Column(title="device"),
    Column(title="evidence"),
    Column(title="verdict"),
)

_NOTHING = "-"
_CHECKS_NAMED = 2
_UNMEASURED = "not measured, and why: "
_WHY_LENGTH = 160
_TRUSTED = "Evidence came with a pack, was not made on the machine that releases, and is trusted: {pack}."
_BUILT = "built: the file was made and checked, and did not run here. That alone is never released."
_BESIDE = "{verdict}: released is what passed; required and did not pass: {names}"
_EMULATED = "emulated: the file ran on the CPU with every value rounded to its precision, as an absent device would."
_EMULATED_ENGINE = (
    "emulated, of {names}: what ran on the CPU is the ONNX file that the engine was built from, held to the engine's "
    "limits. The engine itself did not run for that row."
)


def anchor_of(position: int) -> str:
    """Return the name of the place in the page of the variant at a position: never made of foreign text."""
    return f"variant-{position + 1}"


def parity_table(report: ReportData) -> Table:
    """Return the table of the published practice: one row for each output of each variant."""
    rows: list[tuple[Cell, ...]] = []
    for position, variant in enumerate(report.variants):
        rows += _parity_rows(variant, anchor_of(position))
    return Table(
        caption="Parity with the source: statistics of |actual - expected|",
        columns=_PARITY_COLUMNS,
        rows=tuple(rows),
    )


def earlier_failures_table(report: ReportData) -> Table | None:
    """Return what failed earlier, and was replaced or is held to less now; None if nothing did."""
    if not report.earlier:
        return None
    rows = tuple(
        (
            text("this run, validated before" if item.run == report.run_id else item.run),
            text(item.variant),
            text("; ".join(item.failed)),
            text("; ".join(item.asked_less) or "no less"),
            text(report.reason if item.asked_less else _NOTHING),
        )
        for item in report.earlier
    )
    titles = ("run", "variant", "what failed", "asked now", "reason")
    return Table(caption="Failed earlier", columns=tuple(Column(title=title) for title in titles), rows=rows)


def evidence_words(report: ReportData) -> tuple[str, ...]:
    """Return what the weaker kinds of evidence in the table mean, one sentence each; none where there are none."""
    emulated = [variant.name for variant in report.variants if variant.emulated is not None]
    engines = [name for name in emulated if Variant.parse(name).format in ENGINE_FORMATS]
    built = any(variant.evidence == "built" for variant in report.variants)
    return (
        *((_TRUSTED.format(pack=report.trust),) if report.trust else ()),
        *(_UNMEASURED + words for words in _reasons_of_none(report)),
        *((_BUILT,) if built else ()),
        *((_EMULATED,) if len(emulated) > len(engines) else ()),
        *((_EMULATED_ENGINE.format(names=", ".join(engines)),) if engines else ()),
    )


def _reasons_of_none(report: ReportData) -> Iterable[str]:
    """Yield why there is nothing in the rows of variants, those of one reason together."""
    names: dict[str, list[str]] = {}
    for variant in report.variants:
        if variant.reason:
            names.setdefault(shorten(" ".join(variant.reason.split()), _WHY_LENGTH), []).append(variant.name)
    for reason, found in names.items():
        yield f"{', '.join(found)}: {reason}"


def _parity_rows(variant: VariantReport, anchor: str) -> Iterable[tuple[Cell, ...]]:
    name = text(variant.name, anchor=anchor, remark="" if variant.is_required else "optional")
    yield from _result_rows(
        name, variant.result, (text(variant.device or _NOTHING), text(variant.evidence)), variant.verdict
    )
    if variant.emulated is not None:
        kind = "emulated" if variant.emulated.error is None else "none"
        device = text(variant.emulated.candidate.device or _NOTHING)
        name = text(variant.name, anchor=anchor, remark="emulated")
        yield from _result_rows(name, variant.emulated, (device, text(kind)), variant.emulated.verdict)


def _result_rows(
    name: Cell, result: ComparisonResult | None, where: tuple[Cell, ...], verdict: str
) -> Iterable[tuple[Cell, ...]]:
    if result is None or not (result.outputs or result.matches or result.decisions):
        rows = figure(number(result.rows) if result is not None else "0")
        yield (name, text(_NOTHING), rows, *[figure(_NOTHING)] * 6, *where, status(verdict, remark=_why(result, "")))
        return
    rows = figure(number(result.rows))
    for output_name, cells in _measured(result).items():
        yield (name, *cells[:1], rows, *cells[1:], *where, status(verdict, remark=_why(result, output_name)))


def _measured(result: ComparisonResult) -> dict[str, tuple[Cell, ...]]:
    """Return the figures of each output, of labels that are held to their scores, and of detections."""
    found: dict[str, tuple[Cell, ...]] = {}
    for name, output in result.outputs.items():
        diffs = (output.max_abs_diff, output.min_abs_diff, output.mean_abs_diff, output.std_abs_diff)
        shown = [figure(number(diff, missing=_NOTHING)) for diff in diffs]
        found[name] = (text(name), *_mismatch_cells(output, result.decisions.get(name)), *shown)
    for name, decision in result.decisions.items():
        if name not in result.outputs:
            found[name] = (text(name, remark="labels"), *_decision_cells(decision), *[figure(_NOTHING)] * 4)
    for name, match in result.matches.items():
        shown = [figure(_match_diffs(match)), *[figure(_NOTHING)] * 3]
        pairs = figure(f"{number(match.matched)} of {number(match.expected)} matched")
        found[name] = (text(name, remark="detections"), pairs, figure(_NOTHING), *shown)
    return found


def _match_diffs(match: MatchResult) -> str:
    figures = (("scores", match.max_score_diff), ("boxes", match.max_box_diff))
    return ", ".join(f"{what} {number(diff)}" for what, diff in figures if diff is not None) or _NOTHING


def _why(result: ComparisonResult | None, output: str) -> str:
    """Return the checks that a verdict comes from, as far as they are about the output; of a pass, findings."""
    if result is None or result.verdict == "pass":
        return "" if result is None else result.edge_words
    bad = [check for check in result.checks if check.status == result.verdict]
    names = dict.fromkeys(check.name for check in bad if check.output in {None, output})
    # A variant has one verdict, whichever of its outputs it comes from.
    names = names or dict.fromkeys(f"{check.name} of {check.output}" for check in bad)
    shown, more = list(names)[:_CHECKS_NAMED], len(names) - _CHECKS_NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _mismatch_cells(output: OutputResult, decision: DecisionResult | None) -> tuple[Cell, Cell]:
    if decision is not None:
        return _decision_cells(decision)
    if not is_float_dtype(output.dtype):
        return figure(f"{number(output.mismatches)} values"), figure(_NOTHING)
    return figure("no rule"), figure(_NOTHING)


def _decision_cells(decision: DecisionResult) -> tuple[Cell, Cell]:
    return figure(number(decision.mismatches)), figure(f"< {upper_bound_text(decision.mismatch_rate_upper_95)}")


def reference_tables(recording: Recording) -> tuple[Table, ...]:
    """Return what the reference is and whether it is fit to judge by."""
    model, runtime, settings = recording.model, recording.runtime, recording.settings
    found = [
        ("source", text(str(model.get("text", "-")))),
        ("kind", text(str(model.get("kind", "-")))),
        ("digest of the source", code(str(model.get("digest") or "not known"))),
        ("executes code of its author", text("yes" if model.get("executes_code") else "no")),
        ("ran on", text(f"{runtime.get('runtime')} {runtime.get('version')}, {runtime.get('device')}")),
        ("precision found", text(str(runtime.get("precision_found") or "not known"))),
        ("TF32", text({True: "may be used", False: "off", None: "does not apply"}[runtime.get("tf32")])),
        ("rows", text(number(recording.rows))),
        ("digest of the samples", code(recording.samples_digest)),
        ("rows run twice", text(number(settings.get("repeated_rows")))),
        ("seed of their choice", text(str(settings.get("seed", "-")))),
        ("NaN and infinity", text("declared" if settings.get("non_finite") == "match" else "refused")),
    ]
    health = Table(
        caption="Health of the reference",
        columns=(Column(title="looked at"), Column(title="found")),
        rows=tuple((text(name), text(detail)) for name, detail in recording.health),
    )
    return health, facts("The reference", found), _signature_table(recording)


def _signature_table(recording: Recording) -> Table:
    signature = recording.signature
    rows = [
        (text(spec.name), text(side), text(spec.dtype), text(_shape(spec.shape)))
        for side, specs in (("input", signature.inputs), ("output", signature.outputs))
        for spec in specs
    ]
    dims = "; ".join(f"{name} {dim.min} to {dim.max}" for name, dim in signature.dims.items())
    titles = ("name", "side", "dtype", "shape")
    return Table(
        caption=f"Signature ({dims})" if dims else "Signature",
        columns=tuple(Column(title=title) for title in titles),
        rows=tuple(rows),
    )


def _shape(shape: Iterable[int | str | None] | None) -> str:
    if shape is None:
        return "any"
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def artifact_table(report: ReportData) -> Table:
    """Return every file of every artifact with its digest."""
    rows: list[tuple[Cell, ...]] = []
    for variant in report.variants:
        if variant.artifact is None:
            rows.append((text(variant.name), text("all files"), figure("-"), text("not made")))
        else:
            rows += _artifact_rows(variant.name, variant.artifact)
    columns = (
        Column(title="variant"),
        Column(title="file"),
        Column(title="size", is_figure=True),
        Column(title="digest"),
    )
    return Table(caption="Artifacts", columns=columns, rows=tuple(rows))


def _artifact_rows(name: str, artifact: Artifact) -> Iterable[tuple[Cell, ...]]:
    sizes = {file: _size_of(artifact.folder / file) for file in artifact.files}
    known = [size for size in sizes.values() if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    yield text(name), text("all files"), figure(size_words(total)), code(artifact.digest)
    for file, digest in artifact.files.items():
        yield text(name), text(file), figure(size_words(sizes[file])), code(digest)


def _size_of(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def release_table(release: Mapping[str, Any], report: ReportData) -> Table:
    """Return the release that was made of the run, and what the run required beside it."""
    without = [f"{item.name} ({item.verdict})" for item in report.variants if item.is_required and item.exit_code]
    found = [
        ("version", text(f"{release['model']} {release['version']}")),
        ("alias", text(release["alias"] or "none moved")),
        ("variants", text(", ".join(release["variants"]))),
        ("reason", text(release["reason"] or "passed")),
        *([("released despite", text(release["despite"]))] if release.get("despite") else []),
        *(
            [("outcome of the run", text(_BESIDE.format(verdict=report.verdict, names=", ".join(without))))]
            if without
            else []
        ),
        ("folder", code(str(release["folder"]))),
        ("digest of its manifest", code(release["manifest"])),
    ]
    return facts("Release", found)
