"""`endurance`: load a server for a long time, and look for leaks and drift."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.live_options import Load, live_options
from paritygate.pipelines.cli.options import AMOUNT, FACTOR


@click.command("endurance")
@click.argument("url")
@click.option("--minutes", default=5.0, show_default=True, type=AMOUNT, help="How long to send requests.")
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Send no more requests than this.")
@click.option("--users", type=click.IntRange(1, 1024), help="Users that wait for each answer; 4 if absent.")
@click.option("--rate", type=AMOUNT, metavar="N", help="Requests a second at random times, instead of --users.")
@click.option(
    "--max-growth",
    "most_growth",
    default=1.0,
    show_default=True,
    type=AMOUNT,
    help="Limit on the growth of memory, MiB a minute.",
)
@click.option(
    "--max-slowdown",
    "most_slowdown",
    type=FACTOR,
    metavar="FACTOR",
    help="Limit on the growth of latency, such as 1.5.",
)
@click.option(
    "--max-batch",
    "most_batch",
    default=16,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="Repeat one row in batches of up to this size.",
)
@click.option(
    "--also",
    nargs=3,
    multiple=True,
    metavar="URL MODEL@ALIAS FILE",
    help="Load another model at the same time: its address, release and samples.",
)
@click.option("--without-memory", is_flag=True, help="Judge a server even if its memory cannot be measured.")
@live_options
def command(
    *,
    live: dict[str, Any],
    minutes: float,
    users: int | None,
    rate: float | None,
    also: tuple[tuple[str, str, str], ...],
    without_memory: bool,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> Load:
    """Load the model at URL for a long time, and find leaks, slower answers and answers that drift.

    Every answer is compared with that of a released file. Memory counts after a warm-up of a third of the time. Before
    and after the load, one row is repeated in growing batches.

    The exit code is 0 for pass. It is 1 for wrong or missing answers, a rate that is not kept, a leak, or drift. It is
    3 if nothing was sent, if memory is not measured, or if the time is too short to judge growth. With --also, each
    model is judged by itself, and the worst verdict counts.

    \b
    Example:
      convert-and-validate endurance http://127.0.0.1:8000/v2/models/scores \\
        --against scores@prod --samples inputs.npz --minutes 10 --rate 50
    """
    from dataclasses import replace
    from urllib.parse import urlsplit

    from paritygate.errors import UsageError
    from paritygate.pipelines.live.endurance import endurance
    from paritygate.pipelines.live.endurance_page import write_endurance_page
    from paritygate.pipelines.live.endurance_result import EnduranceRequest
    from paritygate.pipelines.release.compared import parse_release
    from paritygate.pipelines.report.terminal.serving.live import print_endurance, print_period

    if users is not None and rate is not None:
        msg = "--users and --rate exclude each other"
        raise UsageError(msg, hint="give one of them: users wait for each answer, a rate does not")
    request = EnduranceRequest(
        **live,
        seconds=minutes * 60,
        users=users or 4,
        rate=rate,
        **options,
        is_memory_needed=not without_memory,
    )
    others = []
    for url, against, samples in also:
        model, which, variant = parse_release(against)
        others.append(
            replace(
                request,
                url=url,
                model=model,
                which=which,
                variant=variant,
                samples=replace(request.samples, text=samples),
                mapping=None,
                reference=None,
                # Another server is another process, whose memory counts.
                pid=request.pid if urlsplit(url).netloc == urlsplit(request.url).netloc else None,
            )
        )
    request = replace(request, also=tuple(others))
    return Load(request=request, run=endurance, watch=print_period, write=write_endurance_page, show=print_endurance)
