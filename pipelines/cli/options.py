"""Options that several commands share, and those of rules."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from paritygate.errors import ParitygateError, StorageError, UsageError
from paritygate.pipelines.process.child_memory import MEMORY_SHARE, memory_limit
from paritygate.pipelines.rules.pairs import numbers
from paritygate.pipelines.rules.table import PROBES, RULES, Kind, RuleOption
from paritygate.sizes import SIZES_ALLOWED, bytes_of

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def _remove_stale(ctx: click.Context, param: click.Parameter, target: str | None) -> str | None:
    """Remove what an earlier call left in the file, so that nobody takes it for the result of this one.

    A device or a pipe stays what it is, and a file that is no result may be a model or samples: it is not changed.

    Raises:
        StorageError: The file cannot be removed.
        UsageError: The file is no result of an earlier call.
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
        msg = f"{path} cannot be written because it is a folder"
        raise StorageError(msg, hint="name a file with --json")
    # Found out now: what a command has released by the time that it writes its result, it cannot take back.
    folder = path.parent
    if not folder.exists():
        # A typing error is no reason to make a folder.
        msg = f"{path} could not be written: the folder {folder} does not exist"
        raise StorageError(msg, hint=f"create it: {shlex.join(['mkdir', '-p', str(folder)])}")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        msg = f"{path} could not be written: {folder} is no folder that may be written to"
        raise StorageError(msg, hint="name another file with --json")
    if path.is_file() and not _is_result(path):
        msg = f"{path} exists and is not a JSON result, so it is not overwritten"
        raise UsageError(msg, hint="name another file with --json")


def _is_result(path: Path) -> bool:
    """Return whether the file is what a call with --json left behind, or empty."""
    with path.open("rb") as stream:
        start = stream.read(1)
    try:
        return not start or (start == b"{" and "schema_version" in json.loads(path.read_bytes()))
    except (ValueError, RecursionError):
        return False


class LocalPath(click.Path):
    """A path on this machine: of an address, such as of an object store, a folder `s3:` would be made."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path.

        Raises:
            click.BadParameter: It is an address, or no such path.
        """
        if isinstance(value, str) and _ADDRESS.match(value):
            self.fail(f"{value!r} is an address, and only a path on this machine is written to.", param, ctx)
        return super().convert(value, param, ctx)


class RepositoryPlace(LocalPath):
    """A repository: a folder on this machine, or an address in an object store."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the place.

        Raises:
            click.BadParameter: It is no such place.
        """
        from paritygate.roots import is_address, root_of

        if not (isinstance(value, str) and is_address(value)):
            return super().convert(value, param, ctx)
        try:
            return root_of(value)
        except UsageError as err:
            self.fail(f"{err}.", param, ctx)


class _FiniteFloat(click.FloatRange):
    """A number above 0 with an end: NaN is within every range, and infinity above every bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - as in click
        """Return the number.

        Raises:
            click.BadParameter: It is none, or outside of the range.
        """
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


# For options that are an amount: of time, of money.
AMOUNT = _FiniteFloat(min=0, min_open=True)

json_option = click.option(
    "--json",
    "json_target",
    metavar="FILE",
    callback=_remove_stale,
    # Before all other options: a call that is wrong in one of them leaves no older result behind either.
    is_eager=True,
    help="Write the result as JSON to this file; - is standard output.",
)
max_answer_option = click.option(
    "--max-answer-mb",
    "max_answer_mb",
    type=AMOUNT,
    metavar="N",
    help="Largest server response in MiB, where no reference shows its size; 256 by default.",
)
quiet_option = click.option(
    "--quiet",
    "-q",
    is_flag=True,
    # Known when a run is looked for by a short name.
    is_eager=True,
    help="Show no progress, and print one line: the verdict, or what was done; and errors.",
)
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Print every figure and remark as well, as wide as they are."
)
time_limit_option = click.option(
    "--time-limit",
    default=3600.0,
    show_default=True,
    type=AMOUNT,
    metavar="SECONDS",
    help="Stop a conversion or comparison that takes longer than this; the others go on.",
)


def _limit_memory(ctx: click.Context, param: click.Parameter, text: str | None) -> None:
    """Hold every child that the command starts to the limit.

    Raises:
        click.BadParameter: It is no number above 0 with a unit.
    """
    del param
    if text is None:
        return
    limit = bytes_of(text)
    if limit is None:
        msg = f"{text!r} is no size (allowed: {SIZES_ALLOWED})"
        raise click.BadParameter(msg)
    ctx.with_resource(memory_limit(limit))


memory_limit_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    callback=_limit_memory,
    expose_value=False,
    show_default=f"{MEMORY_SHARE:.0%} of the memory of the machine or container",
    help=("Stop a job, with its processes, that uses more memory than this, such as 8GB. The other jobs go on."),
)
device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where models run."
)
batch_size_option = click.option(
    "--batch-size",
    default=16,
    show_default=True,
    type=click.IntRange(min=1),
    help="Rows a batch, where the samples do not say.",
)
pad_option = click.option(
    "--pad", multiple=True, metavar="INPUT=VALUE", help="What to pad ragged lists of tables with."
)

columns_option = click.option(
    "--columns",
    multiple=True,
    metavar="INPUT=COLUMN,...",
    help="The columns of a table that an input consists of, in its order. Repeatable.",
)
cast_option = click.option(
    "--cast", multiple=True, metavar="INPUT=DTYPE", help="The dtype that an input of the samples is cast to."
)


def _rule_option(rule: RuleOption) -> Callable[[_Command], _Command]:
    """Return the option of a row of the table of rules."""
    name, _, metavar = rule.option.partition(" ")
    settings: dict[str, Any] = {"metavar": metavar or None}
    if rule.default is not None:
        settings |= {"default": rule.default, "show_default": True}
    if rule.kind is Kind.CHOICE:
        settings["type"] = click.Choice(rule.allowed)
    if rule.kind is Kind.WHOLE:
        settings["type"] = click.IntRange(min=rule.least)
    is_repeated = rule.default is None and rule.kind is not Kind.PROBES
    return click.option(name, rule.argument, help=rule.help, multiple=is_repeated, **settings)


def rule_options(command: _Command) -> _Command:
    """Give a command the options of all rules, in the order of their table."""
    for rule in reversed(RULES):
        command = _rule_option(rule)(command)
    return command


probes_option = _rule_option(PROBES)
_ROOT = "paritygate.root"


def _keep_root(ctx: click.Context, param: click.Parameter, root: Path) -> Path:
    """Keep the folder that runs lie below, for the options that name one."""
    del param
    ctx.meta[_ROOT] = root
    return root


class _RunPath(click.Path):
    """A run folder: its path, or `latest`, `latest:MODEL`, the id of a run below --root, or the beginning of one."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path of the folder that is meant.

        Raises:
            UsageError: There is no such run, or more than one may be meant.
        """
        from paritygate.pipelines.past_runs.finding import find_run
        from paritygate.text import echo

        if ctx is None or ctx.resilient_parsing:
            return super().convert(value, param, ctx)
        found = find_run(str(value), ctx.meta.get(_ROOT, Path("artifacts")))
        if found != Path(value) and not ctx.params.get("quiet"):
            # Nobody is to find out afterwards which run it was.
            echo(f"run: {found}", err=True)
        return super().convert(found, param, ctx)


run_path = _RunPath()
root_option = click.option(
    "--root",
    type=LocalPath(file_okay=False, path_type=Path),
    default="artifacts",
    show_default=True,
    # Before a run is looked for there.
    is_eager=True,
    callback=_keep_root,
    help="The folder of runs and repository.",
)
run_option = click.option(
    "--run",
    "run_folder",
    type=run_path,
    metavar="DIR",
    help="The run folder, as export or run printed it; or latest, latest:MODEL, a run's id, or the beginning of one.",
)


def run_and_root_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --run, and --root where it is looked for: for commands that need no root themselves."""
    root = click.option(
        "--root",
        type=LocalPath(file_okay=False, path_type=Path),
        default="artifacts",
        show_default=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_root,
        help="The folder where --run latest and ids of runs are looked for.",
    )
    return run_option(root(command))


releases_option = click.option(
    "--releases",
    "repositories",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="DIR",
    help="A repository of releases, beside that below --root and those in the specs of the runs; may be repeated.",
)
target_option = click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Make only this one of the spec's targets; may be repeated.",
)
constraint_option = click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="NAME=VALUE",
    help="Limit on speed or size, such as latency_p95_ms=20 or size_mb=50, beside the spec's; may be repeated.",
)


def _look_below(ctx: click.Context, param: click.Parameter, root: Path | None) -> None:
    """Take the repository below a folder for the one meant, unless --repository names another."""
    del param
    if root is not None:
        ctx.default_map = {"repository": str(root / "repository")}


def repository_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --repository; --root, as run takes it, is understood as well, and not listed."""
    path = LocalPath(file_okay=False, path_type=Path)
    # Eager, so that it is known before the repository is looked for.
    hidden = click.option("--root", type=path, hidden=True, expose_value=False, is_eager=True, callback=_look_below)
    listed = click.option(
        "--repository",
        type=RepositoryPlace(),
        default="artifacts/repository",
        show_default=True,
        help="The repository.",
    )
    return listed(hidden(command))


if_current_option = click.option(
    "--if-current",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Move the alias only if it points to this version now; 0 means that there is no such alias yet.",
)
reason_option = click.option("--reason", default="", metavar="TEXT", help="Why; kept in the log.")


def endpoint_limits(texts: Iterable[str], max_answer_mb: float | None, *, example: str) -> dict[str, float]:
    """Return how a server may be asked, as `--endpoint` and `--max-answer-mb` say it.

    Raises:
        UsageError: As `numbers`.
    """
    found = numbers("--endpoint", texts, example=example)
    return found if max_answer_mb is None else {**found, "max_answer_mb": max_answer_mb}
