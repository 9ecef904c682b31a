"""`load`: send many requests to a server, and compare every answer with the released file's."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.live_options import live_options
from paritygate.pipelines.cli.options import AMOUNT
from paritygate.pipelines.live.result import LiveRequest


@click.command("load")
@click.argument("url")
@live_options
@click.option(
    "--users", default=None, metavar="N,...", help="Users that wait for each answer, one loop for each number."
)
@click.option(
    "--rate", "rates", default=None, metavar="N,...", help="Requests a second, sent whatever the server does."
)
@click.option("--spawn-rate", type=AMOUNT, metavar="N", help="Users that begin a second; all at once if absent.")
@click.option("--seconds", default=5.0, show_default=True, type=AMOUNT, help="How long each loop takes.")
@click.option(
    "--callers",
    default=64,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="The most requests of a rate at once.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant"]),
    default="poisson",
    show_default=True,
    help="When requests of a rate are sent: at random times, or at equal distances.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the random times.")
@click.option("--latency-budget", "budget", metavar="TIME", help="Limit on p99 of a sustained load, such as 20ms.")
@click.option("--stress", is_flag=True, help="Then send twice the highest sustained rate; every answer is awaited.")
@click.option("--stress-seconds", default=10.0, show_default=True, type=AMOUNT, help="How long --stress sends.")
def command(
    request: LiveRequest,
    *,
    users: str | None,
    rates: str | None,
    spawn_rate: float | None,
    seconds: float,
    callers: int,
    arrivals: str,
    seed: int,
    budget: str | None,
    stress: bool,
    stress_seconds: float,
    quiet: bool,
    verbose: bool,
    report: Path | None,
    json_target: str | None,
) -> int:
    """Load the model at URL, and compare every answer with that of a released file.

    Each loop of --users or --rate shows throughput, latency, errors and wrong answers. Without either, 1, 2, 4 and 8
    users are tried. Latency of a rate counts from the planned time, so that waiting counts. Only servers on this
    machine are loaded, unless --i-may-load names the host. At most 100,000 requests are sent in 10 minutes.

    The exit code is 0 if all answers are right, and 1 for a wrong, missing or failed answer, or if no load is
    sustained.

    \b
    Example:
      convert-and-validate load http://127.0.0.1:8000/v2/models/scores \\
        --against scores@prod --samples inputs.npz --users 1,4,16 --stress
    """
