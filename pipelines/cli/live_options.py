"""Options of the commands that send requests to a running server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.options import (
    AMOUNT,
    endpoint_limits,
    max_answer_option,
    metrics_option,
    pad_option,
    repository_option,
    time_limit_option,
)
from paritygate.pipelines.cli.output import Output, all_of, output_options
from paritygate.pipelines.cli.places import OwnPath, check_suffix
from paritygate.pipelines.rules.pairs import numbers

_OF_REQUESTS = (
    click.option(
        "--samples", required=True, metavar="FILE|MODULE:CALLABLE", help="Real inputs: the requests that are sent."
    ),
    click.option("--rows", default=1, show_default=True, type=click.IntRange(min=1), help="Rows a request."),
    pad_option,
    click.option(
        "--endpoint",
        "endpoint",
        multiple=True,
        metavar="NAME=VALUE",
        help="Limits on the requests: requests (1000000 by default), timeout_s (30).",
    ),
    max_answer_option,
    repository_option,
    time_limit_option,
    output_options(),
)
_OF_OPEN_LOOPS = (
    click.option(
        "--callers", default=64, show_default=True, type=click.IntRange(1, 1024), help="Limit on waiting requests."
    ),
    click.option(
        "--arrivals",
        type=click.Choice(["poisson", "constant"]),
        default="poisson",
        show_default=True,
        help="When requests of a rate are sent: at random times, or at equal distances.",
    ),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the random times."),
)
_OF_LOADS = (
    click.option("--against", required=True, metavar="MODEL@ALIAS", help="The release, as for compare."),
    click.option(
        "--reference",
        metavar="MODEL",
        help="Compare with this model instead of the released file, such as a list of stages for raw text.",
    ),
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
        "--endpoint-json",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Map inputs and outputs to fields of a server's JSON, as for compare.",
    ),
    click.option(
        "--report",
        type=OwnPath(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write a page with the tables and a chart: .html.",
    ),
    metrics_option,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The load that a command makes: how it runs, and where its results go."""

    request: Any
    run: Callable[..., Any]  # takes the request, `progress`, and `watch` for each part
    watch: Callable[..., None]  # prints a part
    write: Callable[..., None]  # writes the page
    show: Callable[..., None]  # prints the result


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of its requests and output; it gets `sent`, fields of LiveRequest and TuneRequest.

    An error is written as JSON, too.
    """

    @functools.wraps(command)
    def with_samples(
        *,
        samples: str,
        pad: tuple[str, ...],
        endpoint: tuple[str, ...],
        max_answer_mb: float | None,
        time_limit_s: float,
        **others: Any,  # noqa: ANN401 - the options of the command
    ) -> object:
        from paritygate.errors import ParitygateError
        from paritygate.pipelines.live.result import limits_of_load
        from paritygate.validate.samples.source import SampleSource

        sent = {
            **{name: others.pop(name) for name in ("repository", "rows")},
            "samples": SampleSource(text=samples, folder=Path.cwd(), pad=numbers("--pad", pad, example="input_ids=0")),
            "limits": limits_of_load(endpoint_limits(endpoint, max_answer_mb, example="timeout_s=60")),
            "time_limit_s": time_limit_s,
        }
        try:
            return command(sent=sent, **others)
        except ParitygateError as err:
            model = others.get("model") or others["against"].partition("@")[0]
            failed = {"model": model, "verdict": "error", "error": err.to_json()}
            others["output"].write(failed, exit_code=int(err.exit_code))
            raise

    return all_of(*_OF_REQUESTS)(with_samples)


def open_loop_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of requests at a rate; it gets `open_loop`, fields of LoadRequest and TuneRequest."""

    @functools.wraps(command)
    def with_loop(*, callers: int, arrivals: str, seed: int, **others: Any) -> object:  # noqa: ANN401 - as above
        from paritygate.pipelines.live.loops import Arrivals

        return command(open_loop={"most_callers": callers, "arrivals": Arrivals(arrivals), "seed": seed}, **others)

    return all_of(*_OF_OPEN_LOOPS)(with_loop)


def live_options(command: Callable[..., Load]) -> Callable[..., Any]:
    """Give a command the options of the server and the release; it gets `live`, fields of LiveRequest.

    The load that it returns is made, and its result is written and printed.
    """

    @functools.wraps(command)
    def loaded(  # noqa: PLR0913 - the options
        *,
        against: str,
        reference: str | None,
        endpoint_json: Path | None,
        report: Path | None,
        metrics_port: int | None,
        output: Output,
        sent: dict[str, Any],
        **others: Any,  # noqa: ANN401 - as above
    ) -> int:
        from paritygate.models.json_mapping import read_json_mapping
        from paritygate.models.source import parse_source
        from paritygate.pipelines.live.metrics.shown import shown_to_prometheus
        from paritygate.pipelines.process.stages import stage
        from paritygate.pipelines.release.compared import parse_release
        from paritygate.text import counted

        check_suffix("--report", report, "load.html")
        model, which, variant = parse_release(against)
        live = {
            **sent,
            **{name: others.pop(name) for name in ("url", "host", "pid", "most_s")},
            "model": model,
            "which": which,
            "variant": variant,
            "reference": None if reference is None else parse_source(reference, Path.cwd()),
            "mapping": None if endpoint_json is None else read_json_mapping(endpoint_json),
        }
        load = command(live=live, **others)
        name = click.get_current_context().command.name or ""
        with shown_to_prometheus(name, sent["repository"], model, which, metrics_port) as metrics:

            def watch(part: Any) -> None:  # noqa: ANN401 - a loop or a period
                load.watch(part, output)
                metrics.add(part.answered * sent["rows"], part.flips, part.p50_ms, part.p99_ms)

            what = ", ".join(dict.fromkeys(each.model for each in _with_others(load.request)))
            with output.progress(what) as progress, stage(progress, "loading") as did:
                result = load.run(load.request, progress=progress, watch=watch)
                did(f"sent {counted(sum(each.requests for each in _with_others(result)), 'request')}")
            load.write(result, report)
            output.write(result, exit_code=int(result.exit_code))
            load.show(result, report, output)
            if not result.is_interrupted:
                metrics.verdict = result.verdict
        return int(result.exit_code)

    return all_of(*_OF_LOADS)(request_options(loaded))


def _with_others(one: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a request or result of each command
    """Return a request or a result, and those of the models that are loaded at the same time."""
    return one, *getattr(one, "also", ())
