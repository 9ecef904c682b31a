"""`shadow`: judge the answers that a server gave to real requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.options import metrics_option, repository_option, time_limit_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("shadow")
@click.argument("model")
@click.argument("which", required=False, metavar="[VERSION|ALIAS]")
@click.option(
    "--captured",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Requests and answers, one JSON mapping a line: see docs/shadow.md.",
)
@click.option("--variant", metavar="NAME", help="The released variant that is served; the preferred one if absent.")
@click.option(
    "--decision",
    "decisions",
    multiple=True,
    metavar="OUTPUT:RULE",
    help="A decision, as for compare, instead of the release's decisions. Repeatable.",
)
@click.option(
    "--max-flip-rate",
    type=float,
    default=0.0005,
    show_default=True,
    metavar="RATE",
    help="The share of answers that may change.",
)
@click.option("--most", type=click.IntRange(min=1), metavar="N", help="Judge no more than the first N requests.")
@repository_option
@time_limit_option
@metrics_option
@output_options()
def command(
    model: str,
    which: str | None,
    *,
    variant: str | None,
    repository: Root,
    metrics_port: int | None,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Judge the answers that a server gave to real requests, by a release of MODEL, by default that at prod.

    The released file answers the same requests. A changed answer is another decision, outside of what the limits
    explain. ROLLBACK: more answers change than allowed. PROMOTE: the share of changed answers is below twice the
    allowed one. HOLD: the requests are too few. The verdict may be read at any time: it is wrong in 1 of 100 cases at
    most.

    MODEL@ALIAS and MODEL@VERSION name a release, too.

    The exit code is 0 for PROMOTE, 1 for ROLLBACK and 3 for HOLD.

    \b
    Example:
      convert-and-validate shadow klue-sts --captured traffic.jsonl
    """
    from paritygate.pipelines.live.metrics.shown import shown_to_prometheus
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.serving.shadow import print_shadow
    from paritygate.pipelines.shadow.shadow import ShadowRequest, shadow
    from paritygate.text import counted

    model, which, variant = _release(model, which, variant)
    request = ShadowRequest(repository=repository, model=model, which=which, variant=variant, **options)
    with shown_to_prometheus("shadow", repository, model, which, metrics_port) as metrics:
        with output.progress(model) as progress, stage(progress, "judging") as did:
            result = shadow(request, progress=progress)
            did(f"judged {counted(result.requests, 'request')}")
        output.write(result, exit_code=int(result.exit_code))
        print_shadow(result, request, output)
        metrics.add(result.rows, result.changed)
        metrics.verdict = result.verdict
    return result.exit_code


def _release(model: str, which: str | None, variant: str | None) -> tuple[str, str, str | None]:
    """Return model, version or alias, and variant of the arguments; each is named once."""
    from paritygate.errors import UsageError
    from paritygate.pipelines.release.compared import parse_release

    if "@" not in model:
        return model, which or "prod", variant
    name, of_name, own = parse_release(model)
    if which is not None or (own and variant):
        msg = f"{model} names its release, and so does {f'--variant {variant}' if which is None else which}"
        raise UsageError(msg, hint=f"name it once, such as shadow {name}@{of_name}")
    return name, of_name, variant or own
