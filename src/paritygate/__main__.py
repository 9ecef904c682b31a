"""Run the command `convert-and-validate` or `python -m paritygate`; only this prints errors and sets exit codes."""

from __future__ import annotations

import contextlib
import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib would be looked for there, too
    # `python -m` puts the current directory first, where a file may have the name of a Python module.
    del sys.path[0]

from typing import TYPE_CHECKING

# Few imports here, so that Ctrl-C during slow imports reaches `main` and prints no traceback.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import TextIO

    import click

    from paritygate.errors import ParitygateError

_STDERR = 2
_OBJECTS_BEFORE_COLLECTING = 50_000
# The state that a stopped command leaves, by its name and in general.
_LEFT = dict.fromkeys(("compare", "load", "endurance"), "nothing is kept")
_LEFT_OTHERWISE = "nothing was published in part, and what was finished is kept"
_GO_ON = "next: the same command goes on from there"
_BEGIN_ANEW = "next: the same command starts again, since nothing is cached"
_A_BUG = "hint: run again with --debug for the traceback, and report it as a bug of paritygate"
_CUT_OFF = (
    "hint: Python's bytecode was cut off, as a full disk leaves it: delete the folders __pycache__ below "
    f"{os.path.dirname(os.path.abspath(__file__))} and {sys.prefix}"  # noqa: PTH100, PTH120 - as above
)


class _Terminated(BaseException):
    """SIGTERM arrived; raised so that everything is tidied up on the way out."""


def _terminate(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _Terminated


def _stopped(how: str, args: list[str]) -> list[str]:
    command = next((text for text in args if not text.startswith("-")), "")
    lines = [f"{how}: {_LEFT.get(command, _LEFT_OTHERWISE)}"]
    if command == "run":
        is_kept = "--no-cache" not in args and os.environ.get("PARITYGATE_CACHE") != "off"
        lines.append(_GO_ON if is_kept else _BEGIN_ANEW)
    return lines


def _write(*lines: str) -> None:
    # The printing module may be the one that was being imported, or does not import.
    with contextlib.suppress(OSError):
        os.write(_STDERR, "".join(f"{line}\n" for line in lines).encode())


def main(args: list[str] | None = None) -> None:
    """Run the command line and end the process with the exit code of the outcome."""
    arguments = sys.argv[1:] if args is None else args
    try:
        import signal

        _open_missing_streams()
        signal.signal(signal.SIGTERM, _terminate)
        code = _run(arguments)
    except KeyboardInterrupt:
        _write(*_stopped("interrupted", arguments))
        code = 130
    except EOFError as err:
        _write(f"error: unexpected EOFError: {err}", _CUT_OFF if "marshal data" in str(err) else _A_BUG)
        code = 5
    _end(code)


def _open_missing_streams() -> None:
    """Open the standard streams that the parent process closed, so that no file gets their numbers.

    Printing to such a stream remains an error, but a library that prints never writes into a file of ours.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # Opened for the other direction, so that each use fails.
            opened = os.open(os.devnull, os.O_WRONLY if mode == "r" else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - a number


def _end(code: int) -> None:
    """End the process with an exit code that no signal and no full stream can change."""
    # Ctrl-C may have interrupted its import.
    signal = sys.modules.get("signal")
    if signal is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    sys.exit(code)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        # The interpreter would write the buffer again at its end, fail, and exit with 120.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(args: list[str]) -> int:  # noqa: PLR0911 - one return a cause
    import gc
    import traceback

    import click

    # Most objects live until the end, so that looking for cycles among them every 700 objects takes long.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)

    from paritygate.errors import ExitCode, ParitygateError
    from paritygate.pipelines.cli.app import cli
    from paritygate.text import echo_block

    is_verbose = not {"-v", "--verbose"}.isdisjoint(args)
    is_debug = "--debug" in args or bool(os.environ.get("PARITYGATE_DEBUG"))
    try:
        _check_encoding(args)
        code = cli.main(args=args, prog_name="convert-and-validate", standalone_mode=False)
        return int(code or 0)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort) as err:
        _raise_end_of_file(err, is_debug=is_debug)
        _print_errors(*_stopped("interrupted", args), is_verbose=is_verbose)
        return int(ExitCode.INTERRUPTED)
    except _Terminated:
        _print_errors(*_stopped("terminated", args), is_verbose=is_verbose)
        return int(ExitCode.TERMINATED)
    except click.ClickException as err:
        _print_errors(*_messages_of_click(err), is_verbose=is_verbose)
        return int(ExitCode.USAGE)
    except ParitygateError as err:
        if is_debug:
            echo_block(traceback.format_exc(), err=True)
        _print_errors(*_messages(err), is_verbose=is_verbose)
        return int(err.exit_code)
    except (BrokenPipeError, SystemExit):
        # The reader of standard output closed it. rich turns that into SystemExit(1), but 1 means that parity
        # failed. Redirect the output, so that the interpreter's flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.NOT_MEASURED)
    except Exception as err:  # noqa: BLE001 - an uncaught exception must not end in Python's exit code 1
        if is_debug:
            echo_block(traceback.format_exc(), err=True)
        text = str(err).strip().splitlines()
        _print_errors(
            f"error: unexpected {type(err).__name__}: {text[0] if text else ''}", _A_BUG, is_verbose=is_verbose
        )
        return int(ExitCode.NOT_MEASURED)


def _raise_end_of_file(err: BaseException, *, is_debug: bool) -> None:
    # paritygate has no prompts, so a file ended early, such as truncated bytecode, which click mistakes for
    # Ctrl-D.
    if not isinstance(err.__cause__, EOFError):
        return
    if is_debug:
        import traceback

        from paritygate.text import echo_block

        echo_block(traceback.format_exc(), err=True)
    raise err.__cause__


def _check_encoding(args: list[str]) -> None:
    """Raise UsageError for an argument or current directory outside UTF-8, because JSON and reports cannot hold it."""
    from pathlib import Path

    from paritygate.errors import UsageError
    from paritygate.utf8 import is_utf8

    for what, text in (*(("the argument", text) for text in args), ("the current directory", str(Path.cwd()))):
        if not is_utf8(text):
            raise UsageError(f"{what} {text} is not UTF-8", hint="rename the file or folder, and give its new name")


def _print_errors(*messages: str, is_verbose: bool) -> None:
    # Imported only to print, because help has to be instant.
    from paritygate.pipelines.report.terminal.printing import print_errors

    print_errors(*messages, is_verbose=is_verbose)


def _messages_of_click(err: click.ClickException) -> Iterator[str]:
    import click

    # Click's own message names the option.
    context = err.ctx if isinstance(err, click.UsageError) else None
    if isinstance(err, click.NoSuchOption) and context is not None:
        from paritygate.text import meant

        options = (item for item in context.command.get_params(context) if isinstance(item, click.Option))
        names = (name for option in options if not option.hidden for name in (*option.opts, *option.secondary_opts))
        yield f"error: no such option {err.option_name!r}{meant(err.option_name, names)}"
    else:
        yield f"error: {err.format_message()}"
    if context is not None:
        needed = (item for item in context.command.params if isinstance(item, click.Option) and item.required)
        required = (f"{item.opts[0]} {item.make_metavar(context)}" for item in needed)
        usage = " ".join((context.command_path, *context.command.collect_usage_pieces(context), *required))
        yield f"hint: {usage}; for more: {context.command_path} --help"


def _messages(err: ParitygateError) -> Iterator[str]:
    from paritygate.errors import UnsupportedOperatorsError
    from paritygate.text import hint_lines

    yield f"error: {err}"
    if isinstance(err, UnsupportedOperatorsError):
        for operator, node, reason, hint in err.rows:
            yield f"  {operator}  at {node}: {reason}" + (f"  ({hint})" if hint else "")
    yield from hint_lines(**err.next_step)


if __name__ == "__main__":
    main()
