"""Tables about the run as a whole: parity, reference, artifacts, release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paritygate.artifact import Artifact
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.report.figures import number, shorten, size_words
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.tables.table import Row, Table, code, facts, table_of
from paritygate.precision import Variant
from paritygate.validate.reference.recording import Recording

_NOTHING = "-"
_UNMEASURED = "not measured, and why: "
_WHY_LENGTH = 160
_TRUSTED = "Evidence came with a pack, was not made on the machine that releases, and is trusted: {pack}."
_BUILT = "built: the file was made and checked, and did not run here. That alone is never released."
_BESIDE = "{verdict}: passing variants are released; required ones that did not pass: {names}"
_EMULATED = "emulated: the file ran on the CPU with every value rounded to its precision, as an absent device would."
_EMULATED_ENGINE = (
    "emulated, of {names}: what ran on the CPU is the ONNX file that the engine was built from, held to the engine's "
    "limits. The engine itself did not run for that row."
)


def earlier_failures_table(report: ReportData) -> Table | None:
    """Return the failures that were replaced, or whose limits are looser now; None without any."""
    if not report.earlier:
        return None
    rows = (
        (
            "this run, validated before" if item.run == report.run_id else item.run,
            item.variant,
            "; ".join(item.failed),
            "; ".join(item.asked_less) or "no less",
            report.reason if item.asked_less else _NOTHING,
        )
        for item in report.earlier
    )
    return table_of("Failed earlier", ("run", "variant", "what failed", "asked now", "reason"), rows)


def evidence_words(report: ReportData) -> tuple[str, ...]:
    """Return the meaning of the weaker kinds of evidence in the table, one sentence each."""
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
    """Yield the reasons of empty rows, with the variants of each."""
    names: dict[str, list[str]] = {}
    for variant in report.variants:
        if variant.reason:
            names.setdefault(shorten(" ".join(variant.reason.split()), _WHY_LENGTH), []).append(variant.name)
    for reason, variants in names.items():
        yield f"{', '.join(variants)}: {reason}"


def reference_tables(recording: Recording) -> tuple[Table, ...]:
    """Return the facts of the reference, and whether it is fit to judge by."""
    model, runtime, settings = recording.model, recording.runtime, recording.settings
    rows: list[Row] = [
        ("source", str(model.get("text", "-"))),
        ("kind", str(model.get("kind", "-"))),
        ("digest of the source", code(str(model.get("digest") or "not known"))),
        ("executes code of its author", "yes" if model.get("executes_code") else "no"),
        ("ran on", f"{runtime.get('runtime')} {runtime.get('version')}, {runtime.get('device')}"),
        ("precision found", str(runtime.get("precision_found") or "not known")),
        ("TF32", {True: "may be used", False: "off", None: "does not apply"}[runtime.get("tf32")]),
        ("rows", number(recording.rows)),
        ("digest of the samples", code(recording.samples_digest)),
        ("rows run twice", number(settings.get("repeated_rows"))),
        ("seed of their choice", str(settings.get("seed", "-"))),
        ("NaN and infinity", "declared" if settings.get("non_finite") == "match" else "refused"),
    ]
    health = table_of("Health of the reference", ("looked at", "found"), recording.health)
    return health, facts("The reference", rows), _signature_table(recording)


def _signature_table(recording: Recording) -> Table:
    signature = recording.signature
    rows = [
        (spec.name, side, spec.dtype, _shape(spec.shape))
        for side, specs in (("input", signature.inputs), ("output", signature.outputs))
        for spec in specs
    ]
    dims = "; ".join(f"{name} {dim.min} to {dim.max}" for name, dim in signature.dims.items())
    return table_of(f"Signature ({dims})" if dims else "Signature", ("name", "side", "dtype", "shape"), rows)


def _shape(shape: Iterable[int | str | None] | None) -> str:
    if shape is None:
        return "any"
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def artifact_table(report: ReportData) -> Table:
    """Return every file of every artifact with its digest."""
    rows: list[Row] = []
    for variant in report.variants:
        if variant.artifact is None:
            rows.append((variant.name, "all files", "-", "not made"))
        else:
            rows += _artifact_rows(variant.name, variant.artifact)
    return table_of("Artifacts", ("variant", "file", ">size", "digest"), rows)


def _artifact_rows(name: str, artifact: Artifact) -> Iterable[Row]:
    yield name, "all files", size_words(artifact_size(artifact)), code(artifact.digest)
    for file, digest in artifact.files.items():
        yield name, file, size_words(_size_of(artifact.folder / file)), code(digest)


def artifact_size(artifact: Artifact) -> int | None:
    """Return the bytes of all files of an artifact; None if one is missing."""
    sizes = [_size_of(artifact.folder / file) for file in artifact.files]
    present = [size for size in sizes if size is not None]
    return sum(present) if len(present) == len(sizes) else None


def _size_of(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def release_table(release: Mapping[str, Any], report: ReportData) -> Table:
    """Return the release made of the run, and what the run required besides."""
    without = [f"{item.name} ({item.verdict})" for item in report.variants if item.is_required and item.exit_code]
    rows = [
        ("version", f"{release['model']} {release['version']}"),
        ("alias", release["alias"] or "none moved"),
        ("variants", ", ".join(release["variants"])),
        ("reason", release["reason"] or "passed"),
        *([("released despite", release["despite"])] if release.get("despite") else []),
        *(
            [("outcome of the run", _BESIDE.format(verdict=report.verdict, names=", ".join(without)))]
            if without
            else []
        ),
        ("folder", code(str(release["folder"]))),
        ("digest of its manifest", code(release["manifest"])),
    ]
    return facts("Release", rows)
