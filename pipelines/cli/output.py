"""The options --quiet, --verbose and --json, and the output of a command by them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paritygate.codec import to_data
from paritygate.errors import ParitygateError, StorageError, UsageError
from paritygate.pipelines.cli.places import check_folder
from paritygate.pipelines.report.terminal.printing import Shown

_Command = Callable[..., Any]


def all_of(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command several options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _remove_stale(ctx: click.Context, param: click.Parameter, target: str | None) -> str | None:
    """Remove the result of an earlier call, so that nobody takes it for that of this one.

    A device or a pipe stays. A file that is not a result may be a model or samples, so it stays, and is an error.
    """
    del param
    if target is None or target == "-" or ctx.resilient_parsing:
        return target
    path = Path(target)
    try:
        _check_target(path)
        if path.is_symlink() or path.is_file():
            path.unlink()
    except ParitygateError:
        raise
    except OSError as err:
        msg = f"{path} could not be written: {err.strerror}"
        raise StorageError(msg, hint="name another file with --json") from err
    return target


def _check_target(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"--json cannot write {path} because it is a folder", hint="name a file with --json")
    check_folder("--json", path, path.parent)
    if path.is_file() and not _is_result(path):
        msg = f"{path} exists and is not a JSON result, so it is not overwritten"
        raise UsageError(msg, hint="name another file with --json")


def _is_result(path: Path) -> bool:
    """Return whether the file is empty or a result of --json."""
    with path.open("rb") as stream:
        start = stream.read(1)
    try:
        return not start or (start == b"{" and "schema_version" in json.loads(path.read_bytes()))
    except (ValueError, RecursionError):
        return False


_OPTIONS = {
    "quiet": click.option(
        "--quiet",
        "-q",
        is_flag=True,
        # Known when a run is searched by a short name.
        is_eager=True,
        help="Show no progress. Print only one line with the verdict or the outcome, and errors.",
    ),
    "verbose": click.option("--verbose", "-v", is_flag=True, help="Print every figure and remark too, at full width."),
    "json": click.option(
        "--json",
        "json_target",
        metavar="FILE",
        callback=_remove_stale,
        # Before all other options: a call with a wrong option leaves no older result either.
        is_eager=True,
        help="Write the result as JSON to this file; - is standard output.",
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Output(Shown):
    """The amount and the place of a command's output, and where its JSON goes: a file, `-`, or None."""

    json_target: str | None = None

    def progress(self, what: str) -> AbstractContextManager[Callable[[str, int, int], None]]:
        """Show the progress of some work, unless the command is quiet."""
        from paritygate.pipelines.cli.console import progress_of

        return progress_of(what, is_quiet=self.is_quiet)

    def write(self, result: Any, /, **more: object) -> None:  # noqa: ANN401 - of each command
        """Write a result, with further fields, as JSON if that is asked for; a `StorageError` if it cannot."""
        from paritygate.pipelines.cli.console import write_json

        write_json(self.json_target, {"schema_version": 1, **to_data(result), **to_data(more)})


def output_options(*names: str) -> Callable[[_Command], _Command]:
    """Give a command some of the options `quiet`, `verbose` and `json`, or all of them; it gets `output`."""

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def with_output(
            *args: object, quiet: bool = False, verbose: bool = False, json_target: str | None = None, **others: object
        ) -> object:
            output = Output(is_quiet=quiet, is_verbose=verbose, to_stderr=json_target == "-", json_target=json_target)
            return command(*args, output=output, **others)

        return plain_output_options(*names)(with_output)

    return add


def plain_output_options(*names: str) -> Callable[[_Command], _Command]:
    """Give a command the same options, each as an argument."""
    return all_of(*(_OPTIONS[name] for name in names or _OPTIONS))
