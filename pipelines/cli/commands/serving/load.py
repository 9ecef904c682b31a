"""`load`: send many requests to a server, and compare every answer with the released file's."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.live_options import Load, live_options, open_loop_options
from paritygate.pipelines.cli.options import AMOUNT


@click.command("load")
@click.argument("url")
@click.option("--users", metavar="N,...", help="Users that wait for each answer: one loop for each number.")
@click.option("--rate", "rates", metavar="N,...", help="Requests a second, sent without waiting for answers.")
@click.option("--spawn-rate", type=AMOUNT, metavar="N", help="Users that start per second; all at once if absent.")
@click.option("--seconds", default=5.0, show_default=True, type=AMOUNT, help="How long each loop runs.")
@click.option("--latency-budget", "budget", metavar="TIME", help="Limit on p99 of a sustained load, such as 20ms.")
@click.option("--server-metrics", metavar="URL", help="Triton's metrics page, such as http://127.0.0.1:8002/metrics.")
@click.option("--stress", is_flag=True, help="Then send twice the highest sustained rate, and wait for all answers.")
@click.option("--stress-seconds", default=10.0, show_default=True, type=AMOUNT, help="How long --stress sends.")
@open_loop_options
@live_options
def command(
    *,
    live: dict[str, Any],
    users: str | None,
    rates: str | None,
    open_loop: dict[str, Any],
    budget: str | None,
    stress: bool,
    stress_seconds: float,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> Load:
    """Load the model at URL, and compare every answer with that of a released file.

    Each loop of --users or --rate shows throughput, latency, errors and wrong answers. Without either, 1, 2, 4 and 8
    users are tried. The latency of a rate counts from the planned time. Only servers on this machine are loaded, unless
    --i-may-load names the host. At most 1,000,000 requests are sent, in 10 minutes.

    The exit code is 0 if all answers are right. It is 1 if one is wrong, missing or an error, or if no load is
    sustained.

    \b
    Example:
      convert-and-validate load http://127.0.0.1:8000/v2/models/scores \\
        --against scores@prod --samples inputs.npz --users 1,4,16 --stress
    """
    from paritygate.pipelines.live.load import load
    from paritygate.pipelines.live.page import write_load_page
    from paritygate.pipelines.live.result import LoadRequest
    from paritygate.pipelines.report.terminal.serving.live import print_load, print_step
    from paritygate.pipelines.tuning.words import microseconds, rates_of, whole_values

    default = "" if rates else "1,2,4,8"
    request = LoadRequest(
        **live,
        **open_loop,
        **options,
        users=whole_values("--users", users or default) if users or default else (),
        rates=rates_of("--rate", rates) if rates else (),
        limit_s=None if budget is None else microseconds("--latency-budget", budget) / 1e6,
        stress_s=stress_seconds if stress else 0.0,
    )
    return Load(request=request, run=load, watch=print_step, write=write_load_page, show=print_load)
