"""The command `convert-and-validate`, also `python -m paritygate`; errors are printed and exit codes set here only."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from types import FrameType

import click

from paritygate.errors import ExitCode, ParitygateError, UnsupportedOperatorsError
from paritygate.printing import echo, echo_block

__all__ = ["main"]


class _Terminated(BaseException):
    """SIGTERM arrived; raised so that everything is tidied up on the way out."""


def _terminate(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _Terminated


def main(args: list[str] | None = None) -> None:
    """Run the command line and end the process with the exit code of what happened."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run(sys.argv[1:] if args is None else args))


def _run(args: list[str]) -> int:  # noqa: PLR0911 - one return a cause
    from paritygate.pipelines.cli import cli

    is_debug = "--debug" in args or bool(os.environ.get("PARITYGATE_DEBUG"))
    try:
        code = cli.main(args=args, prog_name="convert-and-validate", standalone_mode=False)
        return int(code or 0)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        echo("interrupted: nothing is published half, what was finished is kept", err=True)
        return int(ExitCode.INTERRUPTED)
    except _Terminated:
        echo("terminated: nothing is published half, what was finished is kept", err=True)
        return int(ExitCode.TERMINATED)
    except click.ClickException as err:
        # Click's own message names the option and the command; its exit code is ours for wrong usage.
        said = io.StringIO()
        err.show(file=said)
        echo_block(said.getvalue().rstrip("\n"), err=True)
        return int(ExitCode.USAGE)
    except ParitygateError as err:
        _print_error(err, is_debug=is_debug)
        return int(err.exit_code)
    except (BrokenPipeError, SystemExit):
        # The reader of standard output went away, which rich turns into SystemExit(1), and 1 means that parity
        # failed. Point the output elsewhere so that the interpreter's flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.NOT_MEASURED)
    except Exception as err:  # noqa: BLE001 - an uncaught exception must not end in Python's exit code 1
        if is_debug:
            echo_block(traceback.format_exc(), err=True)
        text = str(err).strip().splitlines()
        echo(f"error: unexpected {type(err).__name__}: {text[0] if text else ''}", err=True)
        echo("hint: run again with --debug for the traceback, and report it as a bug of paritygate", err=True)
        return int(ExitCode.NOT_MEASURED)


def _print_error(err: ParitygateError, *, is_debug: bool) -> None:
    if is_debug:
        echo_block(traceback.format_exc(), err=True)
    echo(f"error: {err}", err=True)
    if isinstance(err, UnsupportedOperatorsError):
        for operator, node, reason, hint in err.rows:
            echo(f"  {operator}  at {node}: {reason}" + (f"  ({hint})" if hint else ""), err=True)
    if err.hint:
        echo(f"hint: {err.hint}", err=True)


if __name__ == "__main__":
    main()
