"""The option --format: a result as text for people, as JSON, as JUnit XML, or for a GitHub job."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paritygate.errors import ParitygateError, UsageError
from paritygate.pipelines.cli.output import Output, plain_output_options
from paritygate.pipelines.cli.places import OwnPath, check_suffix

if TYPE_CHECKING:
    from paritygate.pipelines.cli.json_file import JsonFile
    from paritygate.pipelines.compare.job import ComparisonJob
    from paritygate.pipelines.compare.result import ComparisonResult
    from paritygate.pipelines.release.afterwards import Afterwards
    from paritygate.pipelines.report.ci.cases import Suite
    from paritygate.pipelines.report.report_data import ReportData
    from paritygate.pipelines.run_spec import RunOutcome
    from paritygate.pipelines.spec.schema import ResolvedSpec

# In these runtimes `diagnose` reads inner tensors.
_DIAGNOSED = frozenset({"onnxruntime", "torch", "keras", "tensorflow", "openvino", "litert"})
_FORMATS = ("text", "json", "junit", "github")
_SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
# GitHub's limit for a step, in bytes; it shows nothing of a larger one.
_LARGEST_SUMMARY = 1024 * 1024

_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="What standard output holds: text; json, as --json -; junit, which CI systems show as tests; or github, text "
    "with annotations, and a summary in $GITHUB_STEP_SUMMARY.",
)
_REPORT = click.option(
    "--report",
    "reports",
    multiple=True,
    type=OwnPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a report of the comparison: .html, one page with drawings, or .md, which names no rows. Repeatable.",
)


@dataclass(kw_only=True)
class Result:
    """The result of a command, and its formats.

    `form` is that of standard output. `reports` are the files of pages about a comparison.
    """

    form: str
    shown: Output
    reports: Sequence[Path] = ()
    _suites: list[Suite] = field(default_factory=list)
    _summaries: list[tuple[str, str]] = field(default_factory=list)
    after: Afterwards = field(init=False)  # the work after a release, and its failures
    json: JsonFile = field(init=False)

    def __post_init__(self) -> None:
        """Raise a `UsageError` if two formats are for standard output, or a report is of no known kind."""
        for report in self.reports:
            check_suffix("--report", report, "report.html", ".md")
        if self.shown.json_target == "-" and self.form not in {"text", "json"}:
            msg = f"--json - and --format {self.form} both write to standard output"
            raise UsageError(msg, hint="give --json a file, or leave one of them out")
        from paritygate.pipelines.cli.json_file import JsonFile
        from paritygate.pipelines.release.afterwards import Afterwards

        self.after, self.json = Afterwards(), JsonFile(self.shown.json_target)

    @contextlib.contextmanager
    def printing(self) -> Iterator[None]:
        """Print for people inside, so that GitHub reads no line as a command."""
        from paritygate.text import echo

        if self.form != "github":
            yield
            return
        token = secrets.token_hex(16)
        echo(f"::stop-commands::{token}")
        try:
            yield
        finally:
            echo(f"::{token}::")

    def add_outcome(self, outcome: RunOutcome, report: ReportData) -> None:
        """Add the outcome of a run."""
        if self.form not in {"junit", "github"}:
            return
        from paritygate.pipelines.report.ci.cases import suites_of_run
        from paritygate.pipelines.report.markdown_report import render_markdown
        from paritygate.pipelines.report.report_data import report_without_inputs

        if outcome.run.resolved.hides_inputs(is_leaving=True):
            report = report_without_inputs(report)
        problem = outcome.not_released
        if outcome.after is not None and outcome.after.problem:
            problem = f"released, but promote.after {outcome.after.problem}"
        self._suites += suites_of_run(report, exit_code=outcome.exit_code, not_released=problem)
        if self.form == "github":
            self._summaries.append((report.model, render_markdown(report)))

    def add_comparison(self, result: ComparisonResult) -> None:
        """Add the result of a comparison."""
        if self.form not in {"junit", "github"}:
            return
        from paritygate.pipelines.compare.redaction import hidden
        from paritygate.pipelines.report.ci.cases import suite_of_comparison
        from paritygate.pipelines.report.markdown_report import render_comparison

        # It leaves the machine, and no spec allows more.
        result = hidden(result)
        self._suites.append(suite_of_comparison(result))
        if self.form == "github":
            self._summaries.append((result.candidate.name, render_comparison(result)))

    def show_comparison(self, result: ComparisonResult, job: ComparisonJob) -> None:
        """Write the result of the only comparison in every form, and print it with the command to diagnose it."""
        from paritygate.codec import to_data
        from paritygate.pipelines.report.terminal.comparison import print_comparison

        try:
            for report in self.reports:
                from paritygate.pipelines.report.comparison_page import write_comparison_report

                write_comparison_report(result, report)
            self.add_comparison(result)
            self.write(to_data(result))
        finally:
            # What was measured is shown even if a file cannot be written.
            with self.printing():
                print_comparison(result, self.shown)
        if result.verdict == "fail" and not self.shown.is_quiet:
            from paritygate.pipelines.report.terminal.printing import print_lines
            from paritygate.pipelines.report.terminal.screen import command_lines

            if call := _diagnosis_of(job, result):
                print_lines(["next:", *command_lines(call, indent="  ")], err=True)

    def add_error(self, spec: ResolvedSpec, error: ParitygateError) -> None:
        """Add an error that ended the run of a spec."""
        if self.form not in {"junit", "github"}:
            return
        from paritygate.pipelines.report.ci.cases import suite_of_error

        self._suites.append(suite_of_error(spec.name, error, is_hiding=spec.hides_inputs(is_leaving=True)))

    def write(self, data: Mapping[str, Any]) -> None:
        """Write `data` as JSON, and everything added in the other formats; failures are in `after`."""
        self.after.do(self.json.words, lambda: self.json.write(data), otherwise=None)
        self.after.do(f"write {self.form} to standard output", lambda: self._write_form(data), otherwise=None)

    def _write_form(self, data: Mapping[str, Any]) -> None:
        from paritygate.pipelines.cli.console import write_json
        from paritygate.text import echo, echo_block

        if self.form == "json" and self.shown.json_target != "-":
            write_json("-", data)
        elif self.form == "junit":
            from paritygate.pipelines.report.ci.junit import junit_xml

            echo_block(junit_xml(self._suites))
        elif self.form == "github":
            from paritygate.pipelines.report.ci.github import annotation_lines, annotations_of

            left_out = _write_summaries(self._summaries)
            for line in annotation_lines((*annotations_of(self._suites), *left_out)):
                echo(line)


def result_options(*, has_report: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command --format and the options of output, and --report if it has one; it gets `written`."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_result(
            *args: object,
            form: str,
            json_target: str | None,
            quiet: bool,
            verbose: bool,
            **others: Any,  # noqa: ANN401 - the options of the command
        ) -> object:
            is_text = form in {"text", "github"} and json_target != "-"
            shown = Output(is_quiet=quiet, is_verbose=verbose, to_stderr=not is_text, json_target=json_target)
            written = Result(form=form, shown=shown, reports=others.pop("reports", ()))
            return command(*args, written=written, **others)

        changed = plain_output_options()(with_result)
        return _FORMAT(_REPORT(changed) if has_report else changed)

    return add


def _write_summaries(summaries: Sequence[tuple[str, str]]) -> list[Any]:
    """Append the pages to the job's summary, if there is one; return annotations, not errors, for those left out."""
    from paritygate.pipelines.report.ci.github import Annotation

    place = os.environ.get(_SUMMARY_FILE)
    if not place:
        return []
    left_out = []
    for name, page in summaries:
        path, content = Path(place), f"{page}\n".encode()
        try:
            size = path.stat().st_size if path.exists() else 0
            if size + len(content) > _LARGEST_SUMMARY:
                why = f"the summary of a step takes 1 MiB, and {size:,} bytes are there"
            else:
                with path.open("ab") as stream:
                    stream.write(content)
                continue
        except OSError as err:
            why = f"writing failed: {err.strerror}"
        words = f"{why}; the report is in the run folder"
        left_out.append(Annotation(kind="warning", title=f"no summary of {name}", message=words))
    return left_out


def _diagnosis_of(job: ComparisonJob, result: ComparisonResult) -> str:
    """Return the command that names the operators of a difference; empty where none can."""
    # A recording has no inner tensors, whereas its model has.
    reference = job.source if job.source is not None else job.reference
    sides = ((reference, result.reference), (job.candidate, result.candidate))
    samples = _differing_samples(job, result)
    # The name of a release is not the text of a path.
    if not samples or not all(
        model.text == model.name and not model.is_recorded and side.runtime in _DIAGNOSED for model, side in sides
    ):
        return ""
    return shlex.join(["convert-and-validate", "diagnose", reference.text, job.candidate.text, *samples])


def _differing_samples(job: ComparisonJob, result: ComparisonResult) -> list[str]:
    """Return the option for the samples if they differ, else for the inputs of a failed probe that were kept."""
    failed = [check for check in result.checks if check.status == "fail"]
    if any(check.name == "accepts_inputs" for check in failed):
        # The candidate would refuse these samples again.
        return []
    failures = (item for probe in result.probes.asked.values() for item in probe.failures)
    of_probe = next((item.inputs for item in failures if item.inputs and item.check != "refused"), "")
    if of_probe and all(check.name.startswith("probe_") for check in failed):
        return ["--samples", of_probe]
    # Without values that differ, there is no operator to name.
    return job.samples.options if any(check.measured is not None for check in failed) else []
