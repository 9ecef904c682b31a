"""Comparisons and runs in the terminal: the parity table, what failed and why, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.models.source import SourceKind
from paritygate.pipelines.cli.benchmark_table import print_benchmark
from paritygate.pipelines.cli.console import PARITY_COLUMNS, parity_rows, print_table, table_text
from paritygate.pipelines.cli.probe_summary import finding_lines, probe_lines, probe_remarks, probes_of_all_line
from paritygate.pipelines.cli.release_summary import print_release
from paritygate.pipelines.compare.result import NOT_RUN_HERE, ComparisonResult, MatchResult, MatchStratumResult, reasons
from paritygate.pipelines.run.evidence import read_evidence
from paritygate.text import as_message, echo

if TYPE_CHECKING:
    from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
    from paritygate.pipelines.run_spec import RunOutcome

__all__ = [
    "comparison_text",
    "export_rows",
    "made_to_json",
    "match_lines",
    "print_comparison",
    "print_error",
    "print_failures",
    "print_made",
    "print_outcome",
]

_HINT = "hint: "
_NAMES_DIFFER = {"contract.inputs", "contract.outputs"}
# A candidate of another kind was not run here: its outputs were recorded before.
_RUN_KINDS = {str(kind) for kind in SourceKind}


def print_comparison(result: ComparisonResult, *, to_stderr: bool = False) -> None:
    """Print the comparison for people; on standard error where standard output holds JSON."""
    if result.error is None and not to_stderr:
        print_table(*_parity_table(result))
    for line in _lines(result):
        echo(line, err=to_stderr or result.error is not None or line.startswith(_HINT))


def comparison_text(result: ComparisonResult) -> str:
    """Return what `print_comparison` prints, on either stream, where that is no terminal."""
    table = [] if result.error is not None else [table_text(*_parity_table(result))]
    return "\n".join((*table, *map(as_message, _lines(result))))


def _parity_table(result: ComparisonResult) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
    title = f"{result.candidate.name} against {result.reference.name}, judged as {result.precision}"
    return title, PARITY_COLUMNS, parity_rows(result.precision, result, _evidence_in_words(result))


def _lines(result: ComparisonResult) -> Iterator[str]:
    """Yield what is said below the table, or in place of it where nothing was measured."""
    if result.error is not None:
        yield f"error: {result.error.message}"
        if result.error.hint:
            yield f"{_HINT}{result.error.hint}"
        return
    yield from (*reasons(result, with_findings=False), *match_lines(result), *probe_lines(result))
    yield from finding_lines({"": result})
    yield from (f"note: {note}" for note in result.notes)
    yield from _declared(result)
    if result.candidate.kind != "recording" and any(
        check.status == "fail" and check.name in _NAMES_DIFFER for check in result.checks
    ):
        # A folder of recorded outputs has the names that they were recorded under.
        yield f"{_HINT}where one is the other under another name, rename it: --map CANDIDATE=REFERENCE"
    yield f"verdict: {result.verdict_words}"


def _declared(result: ComparisonResult) -> Iterator[str]:
    """Yield what was left out of the comparison, or said to be constant, one line each."""
    if result.outputs_left_out:
        yield f"not compared: {', '.join(result.outputs_left_out)}"
    for name, reason in result.outputs_ignored.items():
        yield f"ignored: {name}: {reason}"
    for name, decision in result.decisions.items():
        if decision.constant:
            yield f"constant decision: {name}: {decision.constant}"


def _evidence_in_words(result: ComparisonResult) -> str:
    if result.candidate.runtime is None or result.candidate.kind not in _RUN_KINDS:
        return "recorded"
    is_emulated = (result.candidate.device or "").startswith("emulated")
    return "emulated" if is_emulated else "verified"


def print_error(name: str, error: ParitygateError) -> None:
    """Print an error that ended one of several specs."""
    echo(f"error: {name}: {error}", err=True)
    if error.hint:
        echo(f"hint: {error.hint}", err=True)


def export_rows(artifacts: Mapping[str, Artifact]) -> list[tuple[str, str, str, str]]:
    """Return one row for each artifact made: variant, size, digest, notes."""
    return [
        (
            name,
            f"{artifact.size_bytes / 1e6:.2f} MB",
            artifact.digest[:19],
            "; ".join(artifact.made_by.get("notes", ())),
        )
        for name, artifact in artifacts.items()
    ]


def print_made(
    run: RunFolder,
    what: str,
    artifacts: Mapping[str, Artifact],
    failures: Mapping[str, FailedVariant],
    *,
    to_stderr: bool = False,
) -> None:
    """Print what was made of a run, what could not be and why, and where the run is."""
    if artifacts and not to_stderr:
        title = f"{run.resolved.name}: {what}"
        print_table(title, ("variant", "size", "digest", "notes"), export_rows(artifacts))
    print_failures(failures)
    echo(f"run: {run.folder}", err=to_stderr)


def made_to_json(
    run: RunFolder, artifacts: Mapping[str, Artifact], failures: Mapping[str, FailedVariant]
) -> dict[str, Any]:
    """Return as JSON data what was made of a run, and what could not be."""
    return {
        "schema_version": 1,
        "run": str(run.folder),
        "artifacts": {name: {"digest": item.digest, "files": dict(item.files)} for name, item in artifacts.items()},
        "failures": {name: to_data(item) for name, item in failures.items()},
    }


def print_failures(failures: Mapping[str, FailedVariant]) -> None:
    """Print, for each variant that could not be made, why, with the table of operators where that is the reason."""
    for name, failure in failures.items():
        echo(f"{failure.verdict}: {name}: {failure.message}", err=True)
        for operator, node, reason, hint in failure.operators:
            echo(f"  {operator}  at {node}: {reason}" + (f"  ({hint})" if hint else ""), err=True)
        if failure.hint and all(failure.hint != hint for *_, hint in failure.operators):
            echo(f"hint: {failure.hint}", err=True)


def print_outcome(outcome: RunOutcome, *, to_stderr: bool = False) -> None:
    """Print a run: the parity table, what is not a pass and why, the release, and where the report is."""
    if not to_stderr:
        title = f"{outcome.run.resolved.name}: parity with its {_source_words(outcome)}"
        print_table(title, PARITY_COLUMNS, _outcome_rows(outcome))
    benchmark = outcome.run.benchmark()
    if benchmark is not None:
        not_run = {name for name, verdict in outcome.verdicts.items() if verdict == NOT_RUN_HERE}
        print_benchmark(outcome.run.resolved.name, benchmark, not_run_here=not_run, to_stderr=to_stderr)
    print_failures(outcome.failures)
    _print_not_run(outcome.results, to_stderr=to_stderr)
    results, emulated_results = dict(outcome.results), outcome.emulated
    shown: dict[str, ComparisonResult] = {}
    for name, result in outcome.results.items():
        shown[name] = result
        emulated = emulated_results.get(name)
        if emulated is not None:
            shown[f"{name}, emulated"] = results[f"{name} (emulated)"] = emulated
    for name, result in shown.items():
        _print_result(name, result, to_stderr=to_stderr)
    for line in (*probes_of_all_line(shown.values()), *_shared(shown), *finding_lines(results)):
        echo(line, err=to_stderr)
    _print_release_or_why_not(outcome, to_stderr=to_stderr)
    for line in outcome.advice:
        echo(line, err=to_stderr)
    echo(f"run: {outcome.run.folder}", err=to_stderr)
    for path in outcome.reports:
        if path.suffix == ".html":
            echo(f"report: {path}", err=to_stderr)


def _print_release_or_why_not(outcome: RunOutcome, *, to_stderr: bool) -> None:
    if outcome.release is not None:
        print_release(outcome.release, findings_are_said=True, to_stderr=to_stderr)
        return
    echo(f"not released: {outcome.not_released}", err=to_stderr)
    if outcome.would_release:
        echo(f"would have released: {outcome.would_release}", err=to_stderr)


def _print_not_run(results: Mapping[str, ComparisonResult], *, to_stderr: bool) -> None:
    """Print which variants do not run on this machine, those of one reason together."""
    names: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.not_run_here:
            names.setdefault(result.not_run_here, []).append(name)
    for reason, found in names.items():
        echo(f"{NOT_RUN_HERE}: {', '.join(found)}: {reason}", err=to_stderr)


def _verdict_without_result(failure: FailedVariant | None) -> str:
    return "error" if failure is None else failure.verdict


def _outcome_rows(outcome: RunOutcome) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    evidence = read_evidence(outcome.run.evidence_file)
    for name in outcome.run.resolved.target_names:
        if name in outcome.results:
            entries = (evidence.entry(name), evidence.emulated_entry(name))
            rows += [
                row
                for entry in entries
                if entry is not None and entry.result is not None
                for row in parity_rows(name, entry.result, entry.evidence)
            ]
        else:
            rows.append((name, "-", "0", *["-"] * 7, "none", _verdict_without_result(outcome.failures.get(name))))
    return rows


def _print_result(name: str, result: ComparisonResult, *, to_stderr: bool) -> None:
    """Print what is to be said of a variant alone."""
    if result.error is not None:
        echo(f"error: {name}: {result.error.message}", err=True)
        if result.error.hint:
            echo(f"hint: {result.error.hint}", err=True)
        return
    if result.not_run_here:
        return
    for line in (*reasons(result, with_findings=False), *match_lines(result)):
        echo(f"{name}: {line}", err=to_stderr)


def _shared(results: Mapping[str, ComparisonResult]) -> Iterator[str]:
    """Yield every remark on probes and every note once, with the names of all rows that it holds for."""
    names: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.error is None and not result.not_run_here:
            for line in (*probe_remarks(result), *(f"note: {note}" for note in result.notes)):
                names.setdefault(line, []).append(name)
    for line, found in names.items():
        yield f"{'; '.join(found)}: {line}"


def _source_words(outcome: RunOutcome) -> str:
    for result in outcome.results.values():
        if result.reference.runtime:
            return f"{result.reference.runtime} {result.reference.version} source"
    return "source"


# More values of a stratum than this stand in the report only.
_NAMED_VALUES = 5


def match_lines(result: ComparisonResult) -> Iterator[str]:
    """Yield one line for each list of detections, and one for each stratum of it: the worst values first."""
    for name, found in result.matches.items():
        yield f"detections {name}: {_counted(found)}, {found.missing} missing, {found.extra} extra (rows: {found.rows})"
        for stratum, values in found.strata.items():
            yield f"detections {name} by {stratum}: {_by_value(values)}"


def _counted(found: MatchResult | MatchStratumResult) -> str:
    return f"{found.matched} of {found.expected} matched"


def _by_value(values: Mapping[str, MatchStratumResult]) -> str:
    worst = sorted(values.items(), key=lambda item: -(item[1].missing + item[1].extra))
    words = [f"{value!r} {_counted(found)} (rows: {found.rows})" for value, found in worst[:_NAMED_VALUES]]
    more = f", and {len(values) - len(words)} other values" if len(values) > len(words) else ""
    return ", ".join(words) + more
