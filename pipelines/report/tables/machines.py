"""Tables of the machines of the measurements: of the last validation, and of other devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paritygate.pipelines.compare.result import NOT_MEASURED
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.report_data import ReportData
from paritygate.pipelines.report.tables.table import SYMBOLS, Row, Table, facts, status, table_of
from paritygate.pipelines.run.evidence import Evidence

_COLUMNS = ("device", "machine", "variant", ">rows", ">max diff", "ran on", "evidence", "verdict")


def other_devices_table(report: ReportData) -> Table | None:
    """Return the results on other devices than that of the last validation, or None."""
    rows = [row for document in report.others for row in _rows(document, report)]
    if not rows:
        return None
    return table_of("Validated on other devices", _COLUMNS, rows)


def _rows(document: Evidence, report: ReportData) -> Iterable[Row]:
    device, machine = document.device, _machine_in_words(document.machine, document.device)
    for variant in report.variants:
        entry = document.entry(variant.name)
        if entry is None:
            continue
        start = (device, machine, variant.name)
        digest = variant.artifact.digest if variant.artifact is not None else None
        if entry.artifact not in {None, digest}:
            yield (*start, "0", "-", "another file", "none", status(NOT_MEASURED))
            continue
        ran = None if entry.result is None else entry.result.candidate
        runtime = "" if ran is None else " ".join(filter(None, (ran.runtime, ran.version)))
        yield (
            *start,
            number(entry.rows),
            "-" if entry.max_abs_diff is None else number(entry.max_abs_diff),
            f"{runtime}, {entry.device}" if runtime else NOT_MEASURED,
            entry.evidence,
            status(entry.verdict if entry.verdict in SYMBOLS else NOT_MEASURED),
        )


def _machine_in_words(machine: Mapping[str, Any], device: str) -> str:
    cpu, gpu = machine.get("cpu") or {}, machine.get("gpu") or {}
    if device == "cpu" or not gpu:
        return str(cpu.get("model", "not known"))
    return f"{gpu.get('name', 'not known')} (driver {gpu.get('driver')}, CUDA {gpu.get('cuda')})"


def machine_tables(report: ReportData) -> tuple[Table, ...]:
    """Return one table per different machine of the variants, and per other device."""
    own = (_machine_table(f"Measured on this machine: {names}", machine) for names, machine in report.machines)
    others = (_machine_table(f"Validated on {item.device}, on this machine", item.machine) for item in report.others)
    return (*own, *others)


def _machine_table(caption: str, machine: Mapping[str, Any]) -> Table:
    cpu, gpu = machine.get("cpu") or {}, machine.get("gpu")
    flags = ", ".join(map(str, cpu.get("flags", ()))) or "none that matters"
    rows = [
        ("processor", f"{cpu.get('model', 'not known')} ({flags})"),
        ("GPU", "none" if not gpu else f"{gpu['name']} ({gpu['device']}, driver {gpu['driver']}, CUDA {gpu['cuda']})"),
        ("system", str(machine.get("platform", "not known"))),
        ("Python", str(machine.get("python", "not known"))),
    ]
    rows += [(name, str(version)) for name, version in machine.get("versions", {}).items()]
    return facts(caption, rows)
