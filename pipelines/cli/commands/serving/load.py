"""`load`: send many requests to a server, and compare every answer with the released file's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paritygate.pipelines.cli.live_options import live_options
from paritygate.pipelines.cli.options import AMOUNT

if TYPE_CHECKING:
    from paritygate.pipelines.live.metrics import Metrics


@click.command("load")
@click.argument("url")
@click.option("--users", metavar="N,...", help="Users that wait for each answer: one loop for each number.")
@click.option("--rate", "rates", metavar="N,...", help="Requests a second, sent whatever the server does.")
@click.option("--spawn-rate", type=AMOUNT, metavar="N", help="Users that begin a second; all at once if absent.")
@click.option("--seconds", default=5.0, show_default=True, type=AMOUNT, help="How long each loop takes.")
@click.option(
    "--callers", default=64, show_default=True, type=click.IntRange(1, 1024), help="No more of a rate wait at once."
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
@click.option("--server-metrics", metavar="URL", help="Triton's own page, such as http://127.0.0.1:8002/metrics.")
@click.option("--stress", is_flag=True, help="Then send twice the highest sustained rate, and wait for every answer.")
@click.option("--stress-seconds", default=10.0, show_default=True, type=AMOUNT, help="How long --stress sends.")
@live_options
def command(
    *,
    live: dict[str, Any],
    metrics: Metrics,
    users: str | None,
    rates: str | None,
    spawn_rate: float | None,
    seconds: float,
    callers: int,
    arrivals: str,
    seed: int,
    budget: str | None,
    server_metrics: str | None,
    stress: bool,
    stress_seconds: float,
    report: Path | None,
    quiet: bool,
    verbose: bool,
    json_target: str | None,
) -> int:
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
    from paritygate.codec import to_data
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.live.load import load
    from paritygate.pipelines.live.loops import Arrivals
    from paritygate.pipelines.live.page import write_load_page
    from paritygate.pipelines.live.result import LoadRequest, Step
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.printing import Shown
    from paritygate.pipelines.report.terminal.serving.load import print_load, print_step
    from paritygate.pipelines.tuning.words import microseconds, rates_of, whole_values
    from paritygate.text import counted

    shown = Shown.of(quiet=quiet, verbose=verbose, json_target=json_target)
    default = "" if rates else "1,2,4,8"
    request = LoadRequest(
        **live,
        users=whole_values("--users", users or default) if users or default else (),
        rates=rates_of("--rate", rates) if rates else (),
        spawn_rate=spawn_rate,
        seconds=seconds,
        arrivals=Arrivals(arrivals),
        seed=seed,
        most_callers=callers,
        limit_s=None if budget is None else microseconds("--latency-budget", budget) / 1e6,
        stress_s=stress_seconds if stress else 0.0,
        server_metrics=server_metrics,
    )

    def watch(step: Step) -> None:
        print_step(step, shown)
        metrics.add(step.answered * request.rows, step.flips, step.p50_ms, step.p99_ms)

    with progress_of(request.model, is_quiet=quiet) as progress, stage(progress, "loading") as did:
        result = load(request, progress=progress, watch=watch)
        did(f"sent {counted(result.requests, 'request')}")
    write_load_page(result, report)
    write_json(json_target, {"schema_version": 1, **to_data(result), "exit_code": int(result.exit_code)})
    print_load(result, report, shown)
    if not result.is_interrupted:
        metrics.verdict = result.verdict
    return result.exit_code
