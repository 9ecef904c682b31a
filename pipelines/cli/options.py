"""Options that several commands share, and those of rules."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from paritygate.errors import UsageError
from paritygate.pipelines.cli.output import all_of, output_options
from paritygate.pipelines.cli.places import LocalPath, RepositoryPlace, WrittenPath
from paritygate.pipelines.process.child_memory import MEMORY_SHARE, memory_limit
from paritygate.pipelines.rules.pairs import column_lists, dtypes, numbers, pairs
from paritygate.pipelines.rules.table import PROBES, RULES, Kind, RuleOption
from paritygate.sizes import SIZES_ALLOWED, bytes_of

if TYPE_CHECKING:
    from paritygate.pipelines.run.workspace import RunFolder
    from paritygate.validate.samples.source import SampleSource

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _FiniteFloat(click.FloatRange):
    """A finite number: for Click, NaN is within every range, and infinity above every bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - as in click
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


# For amounts: of time, of money.
AMOUNT = _FiniteFloat(min=0, min_open=True)
FACTOR = _FiniteFloat(min=1)

metrics_option = click.option(
    "--metrics",
    "metrics_port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Show figures to Prometheus at this port of 127.0.0.1.",
)

max_answer_option = click.option(
    "--max-answer-mb",
    "max_answer_mb",
    type=AMOUNT,
    metavar="N",
    help="Largest server response in MiB, where no reference shows its size; 256 by default.",
)
time_limit_option = click.option(
    "--time-limit",
    "time_limit_s",
    default=3600.0,
    show_default=True,
    type=AMOUNT,
    metavar="SECONDS",
    help="Stop a conversion or comparison that takes longer than this; the others go on.",
)


sign_option = click.option(
    "--sign", type=LocalPath(path_type=Path), metavar="KEY", help="Sign the release with this private key, a PEM file."
)


def _limit_memory(ctx: click.Context, param: click.Parameter, text: str | None) -> None:
    """Limit the memory of every child that the command starts."""
    del param
    if text is None:
        return
    limit = bytes_of(text)
    if limit is None:
        raise click.BadParameter(f"{text!r} is not a size (allowed: {SIZES_ALLOWED})")
    ctx.with_resource(memory_limit(limit))


memory_limit_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    callback=_limit_memory,
    expose_value=False,
    show_default=f"{MEMORY_SHARE:.0%} of the memory of the machine or container",
    help=("Stop a job, with its processes, that uses more memory than this, such as 8GB. The other jobs go on."),
)


# Limits of the child processes that a command starts.
limit_options = all_of(time_limit_option, memory_limit_option)


device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where models run."
)
batch_size_option = click.option(
    "--batch-size",
    default=16,
    show_default=True,
    type=click.IntRange(min=1),
    help="Rows a batch, if the samples do not define it.",
)
pad_option = click.option(
    "--pad", multiple=True, metavar="INPUT=VALUE", help="The value that pads ragged lists of tables."
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


def samples_given(
    text: str, *, batch_size: int, columns: Iterable[str], cast: Iterable[str], pad: Iterable[str]
) -> SampleSource:
    """Return the samples of --samples and of the options above; paths start from the current directory."""
    from paritygate.validate.samples.source import SampleSource

    return SampleSource(
        text=text,
        folder=Path.cwd(),
        batch_size=batch_size,
        columns=column_lists(columns),
        cast=dtypes(pairs("--cast", cast, example="x=float32")),
        pad=numbers("--pad", pad, example="input_ids=0"),
    )


def two_file_options(command: _Command) -> Callable[..., Any]:
    """Give a command on two files the options of its samples, limits and output.

    The command gets `read`, which returns the samples of a text such as that of --samples.
    """

    @functools.wraps(command)
    def with_reader(*, batch_size: int, columns: str, cast: str, pad: str, **others: object) -> object:
        read = functools.partial(samples_given, batch_size=batch_size, columns=columns, cast=cast, pad=pad)
        return command(read=read, **others)

    samples = (batch_size_option, columns_option, cast_option, pad_option)
    return all_of(*samples, limit_options, output_options())(with_reader)


def _rule_option(rule: RuleOption) -> Callable[[_Command], _Command]:
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


rule_options = all_of(*map(_rule_option, RULES))

probes_option = _rule_option(PROBES)
_ROOT_KEY = "paritygate.root"


def _keep_root(ctx: click.Context, param: click.Parameter, root: Path) -> Path:
    """Keep the folder of runs, for the options that name one."""
    del param
    ctx.meta[_ROOT_KEY] = root
    return root


class _RunPath(click.Path):
    """A run folder: its path, or `latest`, `latest:MODEL`, the id of a run below --root, or the beginning of one."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path of the run folder, or raise a `UsageError` if there is no such run, or several match."""
        from paritygate.pipelines.past_runs.finding import find_run
        from paritygate.text import echo

        if ctx is None or ctx.resilient_parsing:
            return super().convert(value, param, ctx)
        folder = find_run(str(value), ctx.meta.get(_ROOT_KEY, Path("artifacts")))
        if folder != Path(value) and not ctx.params.get("quiet"):
            # Show at once which run it is.
            echo(f"run: {folder}", err=True)
        return super().convert(folder, param, ctx)


def _root_option(
    text: str, *, is_argument: bool = True, kind: type[LocalPath] = LocalPath
) -> Callable[[_Command], _Command]:
    return click.option(
        "--root",
        type=kind(file_okay=False, path_type=Path),
        default="artifacts",
        show_default=True,
        # Before a run is searched there.
        is_eager=True,
        expose_value=is_argument,
        callback=_keep_root,
        help=text,
    )


run_path = _RunPath()
_ROOT = "The folder of runs and repository."
root_option = _root_option(_ROOT)
# Of commands that make a run there.
written_root_option = _root_option(_ROOT, kind=WrittenPath)
run_option = click.option(
    "--run",
    "run_folder",
    type=run_path,
    metavar="DIR",
    help="The run folder, as export or run printed it; or latest, latest:MODEL, a run's id, or the beginning of one.",
)


# For commands that need no root themselves.
run_and_root_options = all_of(
    run_option, _root_option("The folder where --run latest and ids of runs are looked for.", is_argument=False)
)


def open_given_run(folder: Path | None, printed_by: str) -> RunFolder:
    """Return the run of --run, whose folder these commands print.

    Raises:
        UsageError: There is no --run.
        InputFileError: As `open_run`.
    """
    if folder is None:
        msg = f"{click.get_current_context().command.name} needs --run DIR"
        hint = f"give the run folder that {printed_by} printed, or use the latest run"
        raise UsageError(msg, hint=hint, command=_called_with("--run", "latest"))
    from paritygate.pipelines.run.workspace import open_run

    return open_run(folder)


def typed_params() -> list[click.Parameter]:
    """Return the arguments and options of the current command that were typed."""
    context = click.get_current_context()
    params = context.command.params
    return [each for each in params if context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE]


def words_of(params: Iterable[click.Parameter]) -> list[str]:
    """Return typed arguments and options as words of a command."""
    words: list[str] = []
    for param in params:
        value = click.get_current_context().params.get(str(param.name))
        if isinstance(param, click.Option) and param.is_flag:
            words += param.opts[:1] if value else param.secondary_opts[:1]
            continue
        option = param.opts[:1] if isinstance(param, click.Option) else []
        words += [word for item in (value if isinstance(value, tuple) else [value]) for word in (*option, str(item))]
    return words


def _called_with(*more: str) -> str:
    context = click.get_current_context()
    typed = [param for param in typed_params() if context.params.get(str(param.name)) is not None]
    return shlex.join(["convert-and-validate", str(context.command.name), *words_of(typed), *more])


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
    help="Make only this one of the spec's targets; then nothing is released. Repeatable.",
)
constraint_option = click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="NAME=VALUE",
    help="Limit on speed or size, such as latency_p95_ms=20 or size_mb=50, beside the spec's; may be repeated.",
)


def _look_below(ctx: click.Context, param: click.Parameter, root: Path | None) -> None:
    """Use the repository below a folder, unless --repository names another."""
    del param
    if root is not None:
        ctx.default_map = {"repository": str(root / "repository")}


def repository_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --repository, and a hidden --root as of run."""
    path = LocalPath(file_okay=False, path_type=Path)
    # Eager, so that it is known before the repository is searched.
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
    """Return the limits of a server in `--endpoint` and `--max-answer-mb`; raises as `numbers`."""
    limits = numbers("--endpoint", texts, example=example)
    return limits if max_answer_mb is None else {**limits, "max_answer_mb": max_answer_mb}
