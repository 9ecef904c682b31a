"""The tables of a report that are about the run as a whole: parity, reference, artifacts, release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paritygate.artifact import Artifact
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.report.figures import number, size_words
from paritygate.pipelines.report.report_data import NOT_MEASURED, ReportData, VariantReport
from paritygate.pipelines.report.table import Cell, Column, Table, code, facts, figure, status, text
from paritygate.pipelines.result import ComparisonResult, DecisionResult, OutputResult
from paritygate.precision import Variant
from paritygate.signature import is_float_dtype
from paritygate.validate.bounds import upper_bound_text
from paritygate.validate.recording import Recording

__all__ = ["anchor_of", "artifact_table", "evidence_words", "parity_table", "reference_tables", "release_table"]

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

_BUILT = "built: the file was made and checked, and did not run here. That alone is never released."
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


def evidence_words(report: ReportData) -> tuple[str, ...]:
    """Return what the weaker kinds of evidence in the table mean, one sentence each; none where there are none."""
    emulated = [variant.name for variant in report.variants if variant.emulated is not None]
    engines = [name for name in emulated if Variant.parse(name).format in ENGINE_FORMATS]
    built = any(variant.evidence == "built" for variant in report.variants)
    return (
        *((_BUILT,) if built else ()),
        *((_EMULATED,) if len(emulated) > len(engines) else ()),
        *((_EMULATED_ENGINE.format(names=", ".join(engines)),) if engines else ()),
    )


def _parity_rows(variant: VariantReport, anchor: str) -> Iterable[tuple[Cell, ...]]:
    name = text(variant.name, anchor=anchor, remark="" if variant.is_required else "optional")
    end = (text(variant.device or NOT_MEASURED), text(variant.evidence), status(variant.verdict))
    yield from _result_rows(name, variant.result, end)
    if variant.emulated is not None:
        kind = "emulated" if variant.emulated.error is None else "none"
        device = text(variant.emulated.candidate.device or NOT_MEASURED)
        yield from _result_rows(
            text(variant.name, remark="emulated"),
            variant.emulated,
            (device, text(kind), status(variant.emulated.verdict)),
        )


def _result_rows(name: Cell, result: ComparisonResult | None, end: tuple[Cell, ...]) -> Iterable[tuple[Cell, ...]]:
    if result is None or not result.outputs:
        nothing = [figure(NOT_MEASURED)] * 6
        rows = figure(number(result.rows) if result is not None else "0")
        yield (name, text("-"), rows, *nothing, *end)
        return
    for output_name, output in result.outputs.items():
        diffs = (output.max_abs_diff, output.min_abs_diff, output.mean_abs_diff, output.std_abs_diff)
        yield (
            name,
            text(output_name),
            figure(number(result.rows)),
            *_mismatch_cells(output, result.decisions.get(output_name)),
            *(figure(number(diff)) for diff in diffs),
            *end,
        )


def _mismatch_cells(output: OutputResult, decision: DecisionResult | None) -> tuple[Cell, Cell]:
    if decision is not None:
        return figure(number(decision.mismatches)), figure(f"< {upper_bound_text(decision.mismatch_rate_upper_95)}")
    if not is_float_dtype(output.dtype):
        return figure(f"{number(output.mismatches)} values"), figure("-")
    return figure("no rule"), figure("-")


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


def release_table(release: Mapping[str, Any]) -> Table:
    """Return the release that was made of the run."""
    found = [
        ("version", text(f"{release['model']} {release['version']}")),
        ("alias", text(release["alias"] or "none moved")),
        ("variants", text(", ".join(release["variants"]))),
        ("reason", text(release["reason"] or "passed")),
        ("folder", code(str(release["folder"]))),
        ("digest of its manifest", code(release["manifest"])),
    ]
    return facts("Release", found)
