"""Options that several commands share, and the reading of `NAME=VALUE` pairs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from paritygate.errors import ParitygateError, StorageError, UsageError
from paritygate.pipelines.process.child_memory import MEMORY_SHARE, memory_limit
from paritygate.sizes import SIZES_ALLOWED, bytes_of
from paritygate.text import is_placeholder

__all__ = [
    "AMOUNT",
    "batch_size_option",
    "constraint_option",
    "device_option",
    "json_option",
    "memory_limit_option",
    "numbers",
    "pad_option",
    "pairs",
    "probe_names",
    "probes_option",
    "quiet_option",
    "reason_option",
    "reasons_by_name",
    "releases_option",
    "repository_option",
    "root_option",
    "run_and_root_options",
    "run_option",
    "run_path",
    "target_option",
    "time_limit_option",
    "verbose_option",
    "whole_numbers",
]


def _remove_stale(ctx: click.Context, param: click.Parameter, target: str | None) -> str | None:
    """Remove what an earlier call left in the file, so that nobody takes it for the result of this one.

    A device or a pipe stays what it is, and a file that is no result may be a model or samples: it is left alone.

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
        msg = f"{path} could not be written: it is a folder"
        raise StorageError(msg, hint="name a file with --json")
    # Found out now: what a command has released by the time that it writes its result, it cannot take back.
    place = next(folder for folder in path.absolute().parents if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        msg = f"{path} could not be written: {place} is no folder that may be written to"
        raise StorageError(msg, hint="name another file with --json")
    if path.is_file() and not _is_result(path):
        msg = f"{path} exists and is no result in JSON: it is left alone"
        raise UsageError(msg, hint="name another file with --json")


def _is_result(path: Path) -> bool:
    """Return whether the file is what a call with --json left behind, or empty."""
    with path.open("rb") as stream:
        start = stream.read(1)
    try:
        return not start or (start == b"{" and "schema_version" in json.loads(path.read_bytes()))
    except (ValueError, RecursionError):
        return False


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
    help="Stop a conversion, recording, comparison or benchmark that holds more memory than this, with all processes "
    "that it starts, such as 8GB; the others go on.",
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
probes_option = click.option(
    "--probes",
    "probes",
    metavar="none|NAME,...",
    help="Ask only these of the inputs that are derived from the samples, beside the samples; all of them if absent.",
)
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
    type=click.Path(file_okay=False, path_type=Path),
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
        type=click.Path(file_okay=False, path_type=Path),
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
    path = click.Path(file_okay=False, path_type=Path)
    # Eager, so that it is known before the repository is looked for.
    hidden = click.option("--root", type=path, hidden=True, expose_value=False, is_eager=True, callback=_look_below)
    listed = click.option(
        "--repository", type=path, default="artifacts/repository", show_default=True, help="The repository."
    )
    return listed(hidden(command))


reason_option = click.option("--reason", default="", metavar="TEXT", help="Why; kept in the log.")


def pairs(option: str, texts: Iterable[str], *, example: str) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping.

    Args:
        option: The option that they were given with.
        texts: The texts.
        example: What one may look like, for hints.

    Raises:
        UsageError: A text is not of that form, or a name stands twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        if not sign or not name or not value:
            msg = f"{option} {text!r} is not of the form NAME=VALUE"
            raise UsageError(msg, hint=f"write for example {option} {example}")
        if name in found:
            msg = f"{option} names {name!r} twice"
            raise UsageError(msg, hint="give each name once")
        found[name] = value
    return found


def numbers(option: str, texts: Iterable[str], *, example: str) -> dict[str, float]:
    """Return `NAME=NUMBER` texts as a mapping.

    Raises:
        UsageError: A text is not of that form, a name stands twice, or a value is no number.
    """
    found = pairs(option, texts, example=example)
    return {name: _number(option, name, value, example) for name, value in found.items()}


def limits(option: str, texts: Iterable[str], *, example: str) -> dict[str, float | list[float | None]]:
    """Return `NAME=NUMBER` and `OUTPUT:NAME=NUMBER,...` texts as a mapping; `default` stands for no number.

    Raises:
        UsageError: A text is not of that form, a name stands twice, or a value is no number.
    """
    from paritygate.validate.gate.limits.declared_limits import DEFAULT_LIMIT

    def of_output(name: str, text: str) -> list[float | None]:
        parts = text.split(",")
        return [None if part == DEFAULT_LIMIT else _number(option, name, part, example) for part in parts]

    return {
        name: of_output(name, value) if ":" in name else _number(option, name, value, example)
        for name, value in pairs(option, texts, example=example).items()
    }


def _number(option: str, name: str, value: str, example: str) -> float:
    try:
        return float(value)
    except ValueError:
        msg = f"{option} '{name}={value}': {value!r} is no number"
        raise UsageError(msg, hint=f"write for example {option} {example}") from None


def reasons_by_name(option: str, texts: Iterable[str], *, example: str) -> dict[str, str]:
    """Return `NAME=REASON` texts as a mapping; the reason may hold `=`. Messages show the `example` of a reason.

    Raises:
        UsageError: A text is not of that form, or a name stands twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, reason = text.partition("=")
        if not name or not reason.strip():
            msg = f"{option} {text!r} is not of the form OUTPUT=REASON"
            raise UsageError(msg, hint=f"say why: {option} {name or 'OUTPUT'}='{example}'")
        if is_placeholder(reason):
            msg = f"{option} {text!r} gives no reason: the word stands for one"
            raise UsageError(msg, hint=f"say why: {option} {name}='{example}'")
        if name in found:
            msg = f"{option} names {name!r} twice"
            raise UsageError(msg, hint="give each name once")
        found[name] = reason.strip()
    return found


def whole_numbers(option: str, texts: Iterable[str]) -> dict[str, int]:
    """Return `NAME=N` texts as a mapping.

    Raises:
        UsageError: A text is not of that form, a name stands twice, or N is no whole number.
    """
    return {
        name: _whole_number(option, name, value) for name, value in pairs(option, texts, example="logits=1").items()
    }


def _whole_number(option: str, name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        msg = f"{option} '{name}={value}': {value!r} is no whole number"
        raise UsageError(msg, hint=f"write for example {option} {name}=1") from None


def probe_names(text: str | None) -> tuple[str, ...] | None:
    """Return the probes that `--probes` names; None if it is absent.

    Raises:
        UsageError: A name is no probe.
    """
    from paritygate.pipelines.compare.arguments import known_probes

    if text is None:
        return None
    return known_probes(name.strip() for name in text.split(","))
