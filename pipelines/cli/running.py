"""Run specs one after the other, and print and collect each outcome, even after failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.pipelines.cache.finished_run import AskedOfRun
from paritygate.pipelines.cli.formats import Result
from paritygate.pipelines.cli.unchanged_run import keep_to_say_again
from paritygate.pipelines.compare.result import error_result
from paritygate.pipelines.report.terminal.printing import print_errors
from paritygate.pipelines.report.terminal.run import print_error, print_outcome
from paritygate.pipelines.run.workspace import RunFolder, new_run, worst_code
from paritygate.pipelines.run_spec import RunOptions, RunOutcome, run_spec
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.roots import Root


@dataclass(kw_only=True, slots=True)
class SpecRuns:
    """The runs of one call."""

    options: RunOptions
    samples_path: str | None  # replaces the samples of each
    written: Result
    _codes: list[int] = field(default_factory=list)
    _entries: list[dict[str, object]] = field(default_factory=list)
    _repositories: list[Root] = field(default_factory=list)

    def run(self, spec: ResolvedSpec, asked: AskedOfRun | None) -> None:
        """Run a spec, and print the outcome; `asked` is the request, to cache it, if any."""
        run: RunFolder | None = None
        try:
            run = new_run(spec, root=self.options.root, samples_path=self.samples_path, is_cached=asked is not None)
            with self.written.shown.progress(spec.name) as progress:
                outcome = run_spec(
                    run, self.options, progress, self._prepare if self.written.shown.json_target else None
                )
        except ParitygateError as err:
            self._add_error(spec, run, err)
            return
        after, release = self.written.after, outcome.release
        after.take(release.in_words if release and release.record is not None else "", outcome.left_out)
        entry: dict[str, object] = after.do("describe the run", outcome.to_json, otherwise={})
        after.do("print the result", lambda: self._show(outcome, entry, asked), otherwise=None)
        self._codes.append(outcome.exit_code)
        self._entries.append(entry or {"model": spec.name})
        if release and outcome.repository and outcome.repository not in self._repositories:
            self._repositories.append(outcome.repository)

    def finish(self) -> int:
        """Write the outcomes, and return the worst exit code."""
        if self.written.shown.is_verbose:
            self.written.after.do("list the releases", self._list_releases, otherwise=None)
        self.written.write(self._data())
        print_errors(*self.written.after.left_out)
        return worst_code(self._codes)

    def _prepare(self, outcome: RunOutcome) -> None:
        self.written.json.prepare(self._data(outcome))

    def _data(self, *outcomes: RunOutcome) -> dict[str, object]:
        codes: Sequence[int] = (*self._codes, *(outcome.exit_code for outcome in outcomes))
        entries = [*self._entries, *(outcome.to_json() for outcome in outcomes)]
        return {"schema_version": 1, "exit_code": worst_code(list(codes)), "runs": entries}

    def _show(self, outcome: RunOutcome, entry: dict[str, object], asked: AskedOfRun | None) -> None:
        report = outcome.report()
        with self.written.printing():
            print_outcome(outcome, report, self.written.shown)
        self.written.add_outcome(outcome, report)
        if asked is not None and entry and not outcome.left_out:
            keep_to_say_again(asked, outcome, entry, report)

    def _list_releases(self) -> None:
        from paritygate.pipelines.report.terminal.release import print_repositories

        with self.written.printing():
            print_repositories(self._repositories, to_stderr=self.written.shown.to_stderr)

    def _add_error(self, spec: ResolvedSpec, run: RunFolder | None, err: ParitygateError) -> None:
        print_error(spec.name, err, self.written.shown)
        self.written.add_error(spec, err)
        self._codes.append(int(err.exit_code))
        self._entries.append(
            {
                "model": spec.name,
                "run": None if run is None or not run.folder.is_dir() else str(run.folder),
                "exit_code": int(err.exit_code),
                "error": to_data(error_result(err)),
            }
        )
