"""The command group. Commands are imported when they are called; their short helps stand here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

import click

from paritygate import __version__
from paritygate.errors import ExitCode, UsageError
from paritygate.text import echo_block

# Short helps stand here because Click would import every command to get them.
COMMANDS: Mapping[str, str] = {
    "init": "Write a first spec of a model: what it says is read, the rest is guessed and marked.",
    "inspect": "Show what a model is: inputs, outputs, operators, precision, size.",
    "run": "Do everything one or several specs ask for: export, record, validate, benchmark, report, promote.",
    "plan": "Show what a run would take over from earlier runs, what it would do, and why.",
    "compare": "Hold one model against another, or against recorded outputs: the gate without a spec.",
    "export": "Convert a spec's model to its target formats.",
    "build": "Make the targets that a run lacks, such as engines, from what it has.",
    "record": "Record the reference outputs of a spec's model, or of a model file.",
    "validate": "Hold every exported variant of a run against the recorded reference.",
    "selftest": "Plant faults into a spec's own model, and say which of them the gate catches.",
    "gate": "Fail where a run is worse than the released version, by more than declared factors.",
    "choose": "Say which variant of a run would be released within limits on speed and size, and why.",
    "benchmark": "Measure how fast the variants of a run are, beside its source.",
    "report": "Set two runs side by side: verdicts, differences, size, speed, and what was changed.",
    "promote": "Release the variants of a run that passed.",
    "rollback": "Move an alias back to the version that it was at before.",
    "alias": "Point an alias to a release.",
    "runs": "List the runs that are there: verdict, what was released, size on disk.",
    "clean": "Remove old runs, and the stage cache; never a run that something was released of.",
    "triton": "Write a release to where a Triton server looks for models.",
    "tune": "Search the settings of a running server under a limit on latency, every answer checked.",
    "tfserving": "Write a release to where a TensorFlow Serving looks for models.",
    "kserve": "Write a release as KServe runs it: an InferenceService on its Triton.",
    "views": "List the views on model servers that follow an alias, or forget one.",
    "pack": "Make one file of a run folder, for another machine.",
    "unpack": "Restore a run from the file that pack made, every digest checked.",
    "list": "List the models and releases in a repository.",
    "show": "Show one release: variants, numbers, aliases, history.",
    "verify": "Check a release byte for byte against its manifest.",
    "backends": "List frameworks and runtimes: which are there, and how to install the others.",
    "schema": "Print a JSON Schema: of a spec, of a comparison's result, or of a selftest's.",
}
# The folder in `commands/` that each command lies in.
FOLDERS: Mapping[str, tuple[str, ...]] = {
    "starting": ("init", "inspect", "backends", "schema"),
    "running": ("run", "plan", "export", "build", "record", "benchmark"),
    "judging": ("compare", "validate", "selftest", "gate", "choose", "report"),
    "releasing": ("promote", "rollback", "alias", "list", "show", "verify"),
    "serving": ("triton", "tune", "tfserving", "kserve", "views"),
    "keeping": ("runs", "clean", "pack", "unpack"),
}


# Options of other tools for what is a tolerance here: what they are called as a limit of ours.
_LIMITS_ELSEWHERE: Mapping[str, str] = {
    "--atol": "max_abs_diff",
    "--rtol": "max_row_rel_diff",
    "--absolute-tolerance": "max_abs_diff",
    "--relative-tolerance": "max_row_rel_diff",
}


def _limit_meant(command: click.Command, option: str) -> UsageError:
    limit = _LIMITS_ELSEWHERE[option]
    hint = f"compare takes --tolerance {limit}=1e-3; in a spec write tolerance: {{onnx-fp32: {{{limit}: 1e-3}}}}"
    if any("--tolerance" in parameter.opts for parameter in command.params):
        hint = f"write for example --tolerance {limit}=1e-3"
    return UsageError(f"{command.name} has no option {option}", hint=hint)


class _LazyGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            echo_block(ctx.get_help(), err=True)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - what the command returns
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as err:
            if err.option_name in _LIMITS_ELSEWHERE and err.ctx is not None:
                raise _limit_meant(err.ctx.command, err.option_name) from err
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        folder = next(folder for folder, names in FOLDERS.items() if cmd_name in names)
        module = importlib.import_module(f"paritygate.pipelines.cli.commands.{folder}.{cmd_name}")
        return cast("click.Command", module.command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            known = f"did you mean {close[0]!r}?" if close else f"commands are: {', '.join(COMMANDS)}"
            msg = f"No such command {args[0]!r}; {known}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="convert-and-validate")
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
def cli(*, debug: bool) -> None:
    """Convert trained models, prove that they still answer like the original, release only those that do.

    Exit codes: 0 pass, 1 parity failed, 2 wrong usage, spec or input file, 3 inconclusive, 4 a required
    artifact could not be built, 5 could not measure, 130 and 143 on a signal.

    \b
    Example:
      convert-and-validate run klue-sts
      convert-and-validate compare reference.onnx candidate.onnx \\
        --samples inputs.npz --precision fp16
    """
    del debug  # Read where errors are printed.
