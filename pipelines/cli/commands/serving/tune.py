"""`tune`: find the settings of a running server under a limit on latency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.live_options import open_loop_options, request_options
from paritygate.pipelines.cli.options import AMOUNT
from paritygate.pipelines.cli.output import Output
from paritygate.pipelines.cli.places import WrittenPath


@click.command("tune")
@click.argument("model")
@click.argument("which", required=False, default="prod", metavar="[VERSION|ALIAS]")
@click.option("--url", required=True, metavar="URL", help="The server, such as http://127.0.0.1:8000.")
@click.option(
    "--out",
    "root",
    required=True,
    type=WrittenPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder that `triton` wrote the view to. The best settings are written there.",
)
@click.option("--latency-budget", "budget", required=True, metavar="TIME", help="The limit, such as 20ms.")
@click.option(
    "--percentile",
    default=99.0,
    show_default=True,
    type=click.FloatRange(min=50, max=99.99),
    help="The percentage of answers that must be within it.",
)
@click.option("--name", metavar="NAME", help="The model's name on the server; MODEL if not given.")
@click.option("--variant", metavar="NAME", help="The variant that is served, as for `triton`.")
@click.option("--instances", default="1,2,4", show_default=True, metavar="N,...", help="Instances to try.")
@click.option(
    "--max-batch-size",
    "sizes",
    metavar="N,...",
    help="The largest batches to try; powers of two up to the view's if not given.",
)
@click.option(
    "--queue-delay",
    "delays",
    metavar="TIME,...",
    help="The times to try that a request may wait for others; 0,100us,1ms if not given.",
)
@click.option("--seconds", default=2.0, show_default=True, type=AMOUNT, help="How long one measurement takes.")
@click.option(
    "--metrics",
    metavar="URL",
    help="The server's metrics page, such as http://127.0.0.1:8002/metrics, for CPU, memory and GPU of each point.",
)
@open_loop_options
@request_options
def command(
    model: str,
    *,
    sent: dict[str, Any],
    open_loop: dict[str, Any],
    budget: str,
    instances: str,
    sizes: str | None,
    delays: str | None,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Search batch size, instances and queue delay of a server that runs a release of MODEL, by default that at prod.

    Closed-loop callers find the settings with the most rows per second within the latency limit. Requests at random
    times confirm them, and they are written into the view. Every answer is compared with the released file's. A
    wrong answer ends the search, and nothing is written. Triton loads each setting, and afterwards the best or the
    original one. Other servers are measured as they are.

    The exit code is 0 for pass, 1 if an answer is wrong or no settings are fast enough, 3 if it cannot be decided.

    \b
    Example:
      convert-and-validate tune klue-sts --url http://127.0.0.1:8000 \\
        --out models --samples inputs.npz --latency-budget 20ms
    """
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.printing import print_errors
    from paritygate.pipelines.report.terminal.serving.tune import print_point, print_tuned
    from paritygate.pipelines.tuning.request import TuneRequest
    from paritygate.pipelines.tuning.tune import tune
    from paritygate.pipelines.tuning.words import microseconds, whole_values

    request = TuneRequest(
        **sent,
        **open_loop,
        **options,
        model=model,
        limit_s=microseconds("--latency-budget", budget) / 1e6,
        max_batch_size=None if sizes is None else whole_values("--max-batch-size", sizes),
        instances=whole_values("--instances", instances),
        queue_delay_us=None
        if delays is None
        else [round(microseconds("--queue-delay", each, is_zero_allowed=True)) for each in delays.split(",")],
    )
    with output.progress(model) as progress, stage(progress, "measuring") as did:
        result = tune(
            request,
            progress=progress,
            watch=lambda point: print_point(point, request.percentile, output),
            warn=lambda text: print_errors(text, is_verbose=output.is_verbose),
        )
        did(f"made {result.measurements} measurements")
    output.write(result, exit_code=int(result.exit_code))
    print_tuned(result, request.root, output)
    return result.exit_code
