"""Options of the commands that send requests to a running server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.options import (
    AMOUNT,
    WrittenPath,
    endpoint_limits,
    json_option,
    max_answer_option,
    metrics_option,
    pad_option,
    quiet_option,
    repository_option,
    time_limit_option,
    verbose_option,
)
from paritygate.pipelines.rules.pairs import numbers

_OPTIONS = (
    click.option("--against", required=True, metavar="MODEL@ALIAS", help="The release, as for compare."),
    click.option(
        "--samples", required=True, metavar="FILE|MODULE:CALLABLE", help="Real inputs: the requests that are sent."
    ),
    click.option("--rows", default=1, show_default=True, type=click.IntRange(min=1), help="Rows a request."),
    pad_option,
    click.option("--i-may-load", "host", metavar="HOST", help="Another machine that you may load."),
    click.option(
        "--pid", type=click.IntRange(min=1), metavar="N", help="The server's process; found by its port if absent."
    ),
    click.option(
        "--most-seconds",
        "most_s",
        default=600.0,
        show_default=True,
        type=AMOUNT,
        help="The longest time in which requests are sent.",
    ),
    click.option(
        "--endpoint",
        "endpoint",
        multiple=True,
        metavar="NAME=VALUE",
        help="Limits on the requests: requests (1000000 by default), timeout_s (30).",
    ),
    click.option(
        "--endpoint-json",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Which field of a server's JSON is which input and output, as for compare.",
    ),
    max_answer_option,
    repository_option,
    time_limit_option,
    click.option(
        "--report",
        type=WrittenPath(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write a page with the tables and a chart: .html.",
    ),
    metrics_option,
    quiet_option,
    verbose_option,
    json_option,
)


def live_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the server, release and samples; it gets `live`, and `metrics`."""

    @functools.wraps(command)
    def with_request(  # noqa: PLR0913 - the options
        *,
        url: str,
        against: str,
        samples: str,
        pad: tuple[str, ...],
        endpoint: tuple[str, ...],
        endpoint_json: Path | None,
        max_answer_mb: float | None,
        time_limit: float,
        report: Path | None,
        metrics_port: int | None,
        **others: Any,  # noqa: ANN401 - the options of the command
    ) -> object:
        from paritygate.errors import ParitygateError
        from paritygate.models.json_mapping import read_json_mapping
        from paritygate.pipelines.cli.console import write_json
        from paritygate.pipelines.live.metrics import Metrics, released_at, served
        from paritygate.pipelines.live.page import check_page
        from paritygate.pipelines.live.result import limits_of_load
        from paritygate.pipelines.release.compared import parse_release
        from paritygate.validate.samples.source import SampleSource

        check_page(report)
        model, which, variant = parse_release(against)
        live = {
            **{name: others.pop(name) for name in ("repository", "rows", "host", "pid", "most_s")},
            "url": url,
            "model": model,
            "which": which,
            "variant": variant,
            "samples": SampleSource(text=samples, folder=Path.cwd(), pad=numbers("--pad", pad, example="input_ids=0")),
            "mapping": None if endpoint_json is None else read_json_mapping(endpoint_json),
            "limits": limits_of_load(endpoint_limits(endpoint, max_answer_mb, example="timeout_s=60")),
            "time_limit_s": time_limit,
        }
        try:
            created = None if metrics_port is None else released_at(live["repository"], model, which)
            metrics = Metrics(command=click.get_current_context().command.name or "", model=model, released=created)
            with served(metrics, metrics_port):
                return command(live=live, report=report, metrics=metrics, **others)
        except ParitygateError as err:
            failed = {"schema_version": 1, "model": model, "verdict": "error", "error": err.to_json()}
            write_json(others["json_target"], {**failed, "exit_code": int(err.exit_code)})
            raise

    changed: Callable[..., Any] = with_request
    for option in reversed(_OPTIONS):
        changed = option(changed)
    return changed
