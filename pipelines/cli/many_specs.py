"""`run` of many specs, each in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from paritygate.codec import to_data
from paritygate.errors import ParitygateError, UsageError
from paritygate.files import storage_errors, write_bytes_atomically
from paritygate.pipelines.cache.finished_run import AskedOfRun, find_finished_run
from paritygate.pipelines.cli.engine_options import say_unless_quiet
from paritygate.pipelines.cli.formats import Result
from paritygate.pipelines.cli.options import typed_params, words_of
from paritygate.pipelines.fleet.fleet import FleetEntry, FleetRequest, run_fleet
from paritygate.pipelines.report.fleet import render_fleet
from paritygate.pipelines.report.terminal.fleet import print_ended, print_fleet
from paritygate.pipelines.run.workspace import worst_code
from paritygate.pipelines.scale.engine import Engine
from paritygate.pipelines.spec.loading import load_spec

# What is said of all runs here, and of none of them.
_OF_ALL = {"engine", "workers", "ray_address", "quiet", "verbose", "form", "json_target"}
PAGE = "index.html"


def words_of_options() -> list[str]:
    """Return the options of the current command as they were typed, for a run of one spec."""
    return words_of(param for param in typed_params() if isinstance(param, click.Option) and param.name not in _OF_ALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class ManySpecs:
    """Many runs of one call."""

    specs: Sequence[str]
    engine: Engine
    root: Path
    requests: Sequence[AskedOfRun]  # one for each spec, or none where nothing is reused
    written: Result

    def run(self) -> int:
        """Run all specs, print and write how each ended, and return the worst exit code.

        Raises:
            UsageError: A format of standard output is asked for that holds one run, or two specs are of one model.
            InputFileError: A spec does not exist.
        """
        if self.written.form not in {"text", "json"}:
            msg = f"--format {self.written.form} does not work with several processes"
            raise UsageError(msg, hint="leave out --workers and name the specs, or write --json FILE")
        _check_names(self.specs)
        unchanged = self._unchanged()
        left = [spec for spec in self.specs if spec not in unchanged]
        folder = self._folder()
        ended = list(unchanged.values())

        def done(entry: FleetEntry) -> None:
            ended.append(entry)
            if not self.written.shown.is_quiet:
                print_ended(entry, len(ended), len(self.specs))

        request = FleetRequest(specs=left, engine=self.engine, words=words_of_options(), folder=folder)
        page = folder / PAGE
        try:
            if left:
                run_fleet(request, done, say_unless_quiet(self.written.shown))
        finally:
            # After Ctrl-C, of those that have ended.
            write_bytes_atomically(page, render_fleet(ended, folder).encode())
        by_spec = {entry.spec: entry for entry in ended}
        entries = [by_spec[spec] for spec in self.specs]
        code = worst_code([entry.exit_code for entry in entries])
        self.written.write({"schema_version": 1, "exit_code": code, "runs": [_data(entry) for entry in entries]})
        print_fleet(entries, page, self.written.shown)
        return code

    def _unchanged(self) -> dict[str, FleetEntry]:
        found = {}
        for asked in self.requests:
            run = find_finished_run(asked)
            if run is not None:
                found[asked.spec] = FleetEntry(spec=asked.spec, exit_code=0, seconds=0.0, outcome=run.outcome_now())
        return found

    def _folder(self) -> Path:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        folder = self.root / "fleets" / stamp
        with storage_errors(folder):
            folder.mkdir(parents=True)
        return folder


def _check_names(specs: Sequence[str]) -> None:
    """Raise UsageError for two specs of one model, because which release is the last would depend on the time.

    A spec that does not exist is an InputFileError.
    """
    first: dict[str, str] = {}
    for spec in specs:
        try:
            name = load_spec(spec).name
        except ParitygateError:
            if not Path(spec).is_file():
                raise
            # It is an error of its own run.
            continue
        if first.setdefault(name, spec) != spec:
            msg = f"{first[name]} and {spec} both have the model name {name!r}"
            raise UsageError(msg, hint="give each spec its own model.name, or run them one by one")


def _data(entry: FleetEntry) -> dict[str, Any]:
    return {**entry.outcome, **{key: value for key, value in to_data(entry).items() if key != "outcome"}}
