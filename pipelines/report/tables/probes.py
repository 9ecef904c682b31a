"""Tables about probes: what ran, the outcomes, and the inferred roles of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paritygate.pipelines.compare.result import NOT_ASKED, ComparisonResult, ProbeResult, ProbesResult
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.repro_commands import within_run
from paritygate.pipelines.report.tables.table import Row, Table, code, facts, status, table_of
from paritygate.text import HIDDEN
from paritygate.validate.probes.catalogue import ALL_PROBES
from paritygate.validate.probes.inputs.roles import Role

FAILED_AT = "Failed at, the first ones"
FOUND_AT = "Differences unlike every sample"
_LEAD = (
    "Probes are generated inputs, derived from the samples. A correct conversion must answer them like the reference. "
    "Inputs are left out if the reference has no steady answer or the candidate's declaration excludes them. "
    "If a probe has too few rows left, its result is a warning."
)
_OF_FINDINGS = (
    "A correct conversion can differ on rows that are unlike every sample. The report lists such a difference as an "
    "out-of-sample finding, which fails nothing unless the spec has edge: fail. If your service can receive such rows, "
    "declare it in the spec, and they must pass. If it never can, declare that, and they do not run."
)
_UNFIT = "inputs that the candidate does not accept or need not match"
_PROBE_COLUMNS = (
    "probe",
    "result",
    "looks for",
    ">batches",
    ">rows",
    ">left out",
    ">candidate s",
    ">reference s",
    "message",
)


def probe_tables(result: ComparisonResult, folder: Path) -> tuple[Table, ...]:
    """Return the tables of the probes, or () if none ran; `folder` is the run's, for shorter paths."""
    probes = result.probes
    if not probes.asked:
        return ()
    left_out = tuple(_left_out_rows(probes))
    failed = tuple(_failure_rows(probes, folder))
    findings = tuple(_finding_rows(probes, folder))
    return (
        _asked_table(probes),
        *((_failures_table(failed),) if failed else ()),
        *((_findings_table(findings),) if findings else ()),
        *((_left_out_table(left_out),) if left_out else ()),
        *((_roles_table(probes),) if probes.roles else ()),
        _times_table(probes),
    )


def probe_words(result: ComparisonResult) -> tuple[str, ...]:
    """Return the sentences above the tables."""
    probes = result.probes
    sentences = [f"No probe ran: {probes.skipped}."] if probes.skipped else [_LEAD]
    if any(probe.findings for probe in probes.asked.values()):
        sentences.append(_OF_FINDINGS)
    if any(probe.edge_off for probe in probes.asked.values()):
        sentences.append("The spec has edge: off, so rows that are unlike every sample did not run.")
    if probes.switched_off:
        sentences.append(f"Switched off: {', '.join(probes.switched_off)}.")
    if probes.not_recorded:
        sentences.append(f"Not run because the reference was recorded without them: {', '.join(probes.not_recorded)}.")
    if probes.roles:
        sentences.append(f"What an input was taken for is inferred; the spec overrules it{_example(probes)}.")
    return tuple(sentences)


def _example(probes: ProbesResult) -> str:
    """Return an example of `roles` for the first input of ids, or an empty text."""
    name = next((name for name, role in probes.roles.items() if role.role == Role.ID), None)
    return "" if name is None else f", such as {name}: {{role: id, low: 0, high: 999}} below roles"


def failed_words(probe: ProbeResult) -> str:
    """Return where a probe failed, in short; the table of failures has the rest."""
    first = probe.failures[0]
    at = f"failed at {first.about}" if first.batch >= 0 else "failed"
    return at if probe.failed <= 1 else f"{at}, and at {number(probe.failed - 1)} more"


def _asked_table(probes: ProbesResult) -> Table:
    rows = [_probe_row(name, probe) for name, probe in probes.asked.items()]
    rows += [_switched_off_row(name) for name in probes.switched_off]
    return table_of("Probes", _PROBE_COLUMNS, rows)


def _probe_row(name: str, probe: ProbeResult) -> Row:
    word = status("not run") if probe.status == NOT_ASKED else status(probe.status)
    return (
        name,
        word,
        probe.looks_for,
        number(probe.batches),
        number(probe.rows),
        number(probe.dropped + probe.unfit),
        f"{probe.seconds:.2f}",
        "-" if probe.reference_seconds is None else f"{probe.reference_seconds:.2f}",
        f"{failed_words(probe)}: see below" if probe.failures else probe.detail,
    )


def _switched_off_row(name: str) -> Row:
    empty = ("-",) * 5
    return (name, status("not run"), ALL_PROBES[name].looks_for, *empty, "switched off")


def _failure_rows(probes: ProbesResult, folder: Path) -> Iterable[Row]:
    for name, probe in probes.asked.items():
        for failure in probe.failures:
            yield (
                name,
                failure.about,
                f"{failure.check}: {failure.detail}",
                code(within_run(failure.inputs, folder) if failure.inputs else "-"),
            )


def _failures_table(rows: tuple[Row, ...]) -> Table:
    return table_of(FAILED_AT, ("probe", "at", "what failed", "inputs, in the run's folder"), rows)


def _finding_rows(probes: ProbesResult, folder: Path) -> Iterable[Row]:
    for name, probe in probes.asked.items():
        for finding in probe.findings:
            yield (
                name,
                finding.edge,
                finding.about,
                number(finding.batches),
                f"{finding.check}: {finding.detail}",
                code(finding.if_it_occurs),
                code(finding.if_it_never_occurs) if finding.if_it_never_occurs else "-",
                code(within_run(finding.inputs, folder) if finding.inputs else "-"),
            )


def _findings_table(rows: tuple[Row, ...]) -> Table:
    columns = (
        "probe", "unlike every sample", "first at", ">batches", "what differs", "if it can occur, write",
        "if it never can, write", "inputs, in the run's folder",
    )  # fmt: skip
    return table_of(FOUND_AT, columns, rows)


def _left_out_rows(probes: ProbesResult) -> Iterable[Row]:
    for name, probe in probes.asked.items():
        reasons = [(item.in_words, item.batches, item.first) for item in probe.dropped_by.values()]
        if probe.unfit:
            reasons.append((_UNFIT, probe.unfit, probe.unfit_first))
        for why, count, first in reasons:
            more = f"; and {number(count - len(first))} more" if count > len(first) else ""
            shown = HIDDEN if HIDDEN in first else "; ".join(first) + more
            yield name, why, number(count), shown


def _left_out_table(rows: tuple[Row, ...]) -> Table:
    return table_of("Left out", ("probe", "what", ">batches", "why, the first ones"), rows)


def _roles_table(probes: ProbesResult) -> Table:
    rows = ((name, role.role, role.why) for name, role in probes.roles.items())
    return table_of("What inputs are", ("input", "taken for", "because"), rows)


def _times_table(probes: ProbesResult) -> Table:
    samples, of_probes = probes.seconds()
    once = "answered when it was recorded" if probes.reference_samples_seconds is None else None
    rows = [
        ("the candidate over the samples", _seconds(probes.samples_seconds)),
        ("the reference over the samples", once or _seconds(probes.reference_samples_seconds)),
        ("probes", f"{of_probes:.2f} s"),
    ]
    if samples:
        rows.append(("all of it, over the samples alone", f"{(samples + of_probes) / samples:.1f} times"))
    return facts("Where the time went", rows)


def _seconds(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{seconds:.2f} s"
