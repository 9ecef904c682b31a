"""The command group. Commands are imported when they are called; their short helps are here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, cast

import click

from paritygate import __version__
from paritygate.errors import ExitCode, UsageError
from paritygate.pipelines.serving import SERVERS
from paritygate.text import echo_block, meant, print_tracebacks

# The short help of each command, by the folder of its file: Click would import every command to get it.
FOLDERS: Mapping[str, Mapping[str, str]] = {
    "starting": {
        "init": "Write a starter spec for a model. Guesses are marked.",
        "inspect": "Show the inputs, outputs, operators, precision and size of a model.",
        "backends": "List installed frameworks and runtimes, and how to install the others.",
        "schema": "Print the JSON Schema of a spec, of a comparison result or of a selftest result.",
    },
    "running": {
        "run": "Run all steps of one or more specs: export, record, validate, benchmark, report, promote.",
        "plan": "Show which steps a run would reuse and which it would redo.",
        "export": "Convert a spec's model to its target formats.",
        "build": "Build the missing targets of a run, such as engines.",
        "record": "Record the reference outputs of a spec's model, or of a model file.",
        "benchmark": "Measure the speed of a run's variants and of the source model.",
    },
    "judging": {
        "compare": "Compare a model with a reference model or recorded outputs. No spec needed.",
        "merge": "Give the verdict of a comparison that was measured in parts.",
        "diagnose": "Name the operators at which two models part.",
        "repair": "Keep the fewest operators of a failed variant in FP32.",
        "graph-diff": "Match the nodes of two ONNX files by the values that they compute.",
        "validate": "Compare every exported variant of a run with the recorded reference.",
        "selftest": "Plant faults into a spec's model and report which ones the gate catches.",
        "gate": "Fail if a run is worse than the released version.",
        "choose": "Show which variant of a run meets the limits on speed and size, and why.",
        "report": "Compare two runs: verdicts, differences, size, speed and changes.",
    },
    "releasing": {
        "promote": "Release the variants of a run that passed.",
        "rollback": "Move an alias back to its previous version.",
        "alias": "Point an alias to a release.",
        "list": "List the models and releases in a repository.",
        "show": "Show one release: variants, numbers, aliases, history.",
        "history": "Print the log of a model.",
        "diff": "Compare two releases. The exit code is 1 if inputs or outputs changed.",
        "verify": "Check the files of a release against its manifest.",
        "push": "Copy a release to an OCI registry.",
        "pull": "Copy a release from an OCI registry into a repository.",
        "gc": "Delete releases that neither an alias nor a recent record names.",
    },
    "serving": {
        **{command: server.summary for command, server in SERVERS.items()},
        "deploy": "Write manifests with which Kubernetes or KServe verifies and serves a release.",
        "tune": "Find the fastest settings of a running server within a latency limit.",
        "load": "Load a running server, and compare every answer with the released file.",
        "endurance": "Load a running server for a long time: leaks, latency and drift.",
        "capture": "Write live requests and their answers to a file for shadow.",
        "shadow": "Judge the answers that a server gave to real requests.",
        "views": "List the model-server views that follow an alias, or forget one.",
    },
    "keeping": {
        "runs": "List runs with verdict, releases and size on disk.",
        "clean": "Remove old runs and the stage cache. Released runs stay.",
        "pack": "Pack a run folder into one file for another machine.",
        "unpack": "Restore a packed run and check every digest.",
    },
}
COMMANDS: Mapping[str, str] = {name: text for commands in FOLDERS.values() for name, text in commands.items()}
# Other tools' options for a tolerance, and the name of the limit here.
_LIMITS_ELSEWHERE: Mapping[str, str] = {
    "--atol": "max_abs_diff",
    "--rtol": "max_row_rel_diff",
    "--absolute-tolerance": "max_abs_diff",
    "--relative-tolerance": "max_row_rel_diff",
}


# Commands whose arguments users guess otherwise.
_FORMS: Mapping[str | None, str] = {"alias": "MODEL ALIAS VERSION", "rollback": "MODEL --alias ALIAS"}


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
        except click.UsageError as err:
            name = None if err.ctx is None else err.ctx.command.name
            form = _FORMS.get(name)
            if form is None or (isinstance(err, click.BadParameter) and not isinstance(err, click.MissingParameter)):
                raise
            raise UsageError(
                err.format_message().rstrip("."), hint="write", command=f"convert-and-validate {name} {form}"
            ) from err

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        folder = next(folder for folder, commands in FOLDERS.items() if cmd_name in commands)
        module = importlib.import_module(f"paritygate.pipelines.cli.commands.{folder}.{cmd_name.replace('-', '_')}")
        return cast("click.Command", module.command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = meant(args[0], COMMANDS) or f" (commands: {', '.join(COMMANDS)})"
            raise click.UsageError(f"no such command {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="convert-and-validate")
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
def cli(*, debug: bool) -> None:
    """Convert trained models, check them against the original, and release only those that pass.

    Exit codes: 0 pass, 1 parity failed, 2 wrong usage or input, 3 inconclusive, 4 required artifact not built, 5 not
    measured, 130 and 143 on a signal.

    \b
    Example:
      convert-and-validate run klue-sts
      convert-and-validate compare reference.onnx candidate.onnx \\
        --samples inputs.npz --precision fp16
    """
    # Errors that end the command are printed after it.
    print_tracebacks(is_debug=debug or bool(os.environ.get("PARITYGATE_DEBUG")))
