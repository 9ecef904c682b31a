"""`capture`: write live requests and their answers to a file for `shadow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.errors import UsageError
from paritygate.pipelines.cli.options import metrics_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import WrittenPath

_MIB = 1 << 20


@click.command("capture")
@click.option(
    "--out", required=True, type=WrittenPath(dir_okay=False, path_type=Path), metavar="FILE", help="A new file."
)
@click.option(
    "--send-to",
    "server",
    metavar="URL",
    help="The server that answers the copies; without a path, at that of the request. Not needed for KServe's logger.",
)
@click.option(
    "--listen",
    default="127.0.0.1:9090",
    show_default=True,
    metavar="[HOST:]PORT",
    help="The address to receive copies of requests at.",
)
@click.option(
    "--requests", "most", default=10_000, show_default=True, type=click.IntRange(min=1), metavar="N", help="At most."
)
@click.option(
    "--seconds",
    default=3600.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="At most.",
)
@click.option("--max-mb", default=1024, show_default=True, type=click.IntRange(min=1), metavar="MB", help="At most.")
@metrics_option
@output_options()
def command(
    *,
    out: Path,
    server: str | None,
    listen: str,
    max_mb: int,
    metrics_port: int | None,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Write copies of live requests, with a server's answers, to a file that `shadow` judges.

    A proxy mirrors requests to this command, which accepts each at once and lets the server at --send-to answer it. It
    also takes the events of KServe's logger. It stops at the first limit, or by Ctrl-C.

    The exit code is 5 if no request came, or none got an answer without an error.

    The file holds the values of the requests, and only its owner may read it.

    \b
    Example:
      convert-and-validate capture --send-to http://localhost:80 --out a.jsonl
    """
    import sys

    from paritygate.addresses import shown_address
    from paritygate.errors import ExitCode, MeasurementError
    from paritygate.pipelines.live.metrics.shown import Metrics, served
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.serving.shadow import print_capture
    from paritygate.pipelines.shadow.sending import CaptureRequest
    from paritygate.pipelines.shadow.sink import capture
    from paritygate.text import counted

    host, port = _place(listen)
    asked = CaptureRequest(
        host=host,
        port=port,
        server=None if server is None else _server(server),
        out=out,
        most_bytes=max_mb * _MIB,
        **options,
    )
    # On a terminal, the progress shows the address all the time.
    is_told = not output.is_quiet and not sys.stderr.isatty()
    metrics = Metrics(command="capture", requests=0)
    with (
        served(metrics, metrics_port),
        output.progress("capture") as progress,
        stage(progress, "") as did,
    ):

        def report(text: str, captured: int, most: int) -> None:
            metrics.requests = captured
            progress(text, captured, most)

        result = capture(asked, progress=report, began=_tell if is_told else lambda _: None)
        did(f"captured {counted(result.captured, 'request')}")
    code = ExitCode.PASS if result.is_answered else ExitCode.NOT_MEASURED
    output.write(result, exit_code=int(code))
    print_capture(result, output)
    if server is not None and not result.is_answered:
        count = counted(result.captured, "captured request")
        msg = f"none of {count} got a readable answer without an error from --send-to {shown_address(server)}"
        raise MeasurementError(msg, hint=f"start the model there, or name another address; {out} is kept")
    return ExitCode.PASS


def _tell(address: str) -> None:
    from paritygate.text import echo

    echo(f"listening at {address}", err=True)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    most = 65535
    if not (port.isascii() and port.isdecimal() and int(port) <= most):
        msg = f"--listen {text!r} is not a port (allowed: PORT or HOST:PORT, with a port up to {most})"
        raise UsageError(msg, hint="write for example --listen 9090")
    return host or "127.0.0.1", int(port)


def _server(address: str) -> str:
    from urllib.parse import urlsplit

    from paritygate.addresses import shown_address

    try:
        parts = urlsplit(address)
        is_right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or parts.username is not None or parts.query:
        msg = f"--send-to {shown_address(address)} is not an address of a server"
        raise UsageError(msg, hint="write for example --send-to http://127.0.0.1:8000")
    return address
