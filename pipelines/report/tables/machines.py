"""The tables of a report that say on what was measured: on the machine of the last validation, and on others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.report_data import NOT_MEASURED, ReportData
from paritygate.pipelines.report.tables.table import SYMBOLS, Cell, Column, Table, facts, figure, status, text

__all__ = ["machine_tables", "other_devices_table"]

_COLUMNS = (
    Column(title="device"),
    Column(title="machine"),
    Column(title="variant"),
    Column(title="rows", is_figure=True),
    Column(title="max diff", is_figure=True),
    Column(title="ran on"),
    Column(title="evidence"),
    Column(title="verdict"),
)


def other_devices_table(report: ReportData) -> Table | None:
    """Return what was found on other devices than that of the last validation; None if nothing was."""
    rows = [row for document in report.others for row in _rows(document, report)]
    if not rows:
        return None
    return Table(caption="Validated on other devices", columns=_COLUMNS, rows=tuple(rows))


def _rows(document: Mapping[str, Any], report: ReportData) -> Iterable[tuple[Cell, ...]]:
    device, machine = str(document["device"]), _machine_in_words(document["machine"], str(document["device"]))
    found = {entry["variant"]: entry for entry in document["variants"]}
    for variant in report.variants:
        entry = found.get(variant.name)
        if entry is None:
            continue
        start = (text(device), text(machine), text(variant.name))
        digest = variant.artifact.digest if variant.artifact is not None else None
        if entry.get("artifact") not in {None, digest}:
            yield (*start, figure("0"), figure("-"), text("another file"), text("none"), status(NOT_MEASURED))
            continue
        runtime = " ".join(str(entry[key]) for key in ("runtime", "version") if entry.get(key))
        verdict = str(entry["verdict"])
        yield (
            *start,
            figure(number(entry.get("rows", 0))),
            figure(_largest(entry)),
            text(f"{runtime}, {entry['device']}" if runtime else NOT_MEASURED),
            text(str(entry["evidence"])),
            status(verdict if verdict in SYMBOLS else NOT_MEASURED),
        )


def _largest(entry: Mapping[str, Any]) -> str:
    found = [output.get("max_abs_diff") for output in entry.get("outputs", {}).values()]
    known = [diff for diff in found if diff is not None]
    return number(max(known)) if known else "-"


def _machine_in_words(machine: Mapping[str, Any], device: str) -> str:
    cpu, gpu = machine.get("cpu") or {}, machine.get("gpu") or {}
    if device == "cpu" or not gpu:
        return str(cpu.get("model", "not known"))
    return f"{gpu.get('name', 'not known')} (driver {gpu.get('driver')}, CUDA {gpu.get('cuda')})"


def machine_tables(report: ReportData) -> tuple[Table, ...]:
    """Return what the variants were measured on, one table for each different machine, and those of other devices."""
    own = (_machine_table(f"Measured on this machine: {names}", machine) for names, machine in report.machines)
    others = (
        _machine_table(f"Validated on {item['device']}, on this machine", item["machine"]) for item in report.others
    )
    return (*own, *others)


def _machine_table(caption: str, machine: Mapping[str, Any]) -> Table:
    cpu, gpu = machine.get("cpu") or {}, machine.get("gpu")
    flags = ", ".join(map(str, cpu.get("flags", ()))) or "none that matters"
    found = [
        ("processor", text(f"{cpu.get('model', 'not known')} ({flags})")),
        (
            "GPU",
            text("none" if not gpu else f"{gpu['name']} ({gpu['device']}, driver {gpu['driver']}, CUDA {gpu['cuda']})"),
        ),
        ("system", text(str(machine.get("platform", "not known")))),
        ("Python", text(str(machine.get("python", "not known")))),
    ]
    found += [(name, text(str(version))) for name, version in machine.get("versions", {}).items()]
    return facts(caption, found)
