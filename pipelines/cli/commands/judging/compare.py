"""`compare`: the gate without a spec."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paritygate.errors import UsageError
from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.engine_options import compare_with, engine_of, engine_options
from paritygate.pipelines.cli.formats import Result, result_options
from paritygate.pipelines.cli.places import OwnPath, WrittenPath
from paritygate.pipelines.rules.table import ABOUT_OUTPUTS, ABOUT_VERDICT, RULES

if TYPE_CHECKING:
    # Read by type checkers alone: a comparison of files loads no repository.
    from paritygate.pipelines.compare.job import ComparisonJob
    from paritygate.roots import Root

_ABOUT_PLACE = (
    *("--device", "--provider", "--emulate", "--batch-size", "--endpoint", "--endpoint-json", "--max-answer-mb"),
    *("--repository", "--time-limit", "--memory-limit", "--shard", "--out", "--engine", "--workers", "--ray-address"),
)
_TITLES = ("Options", ABOUT_OUTPUTS, ABOUT_VERDICT, "Options about where it runs")
# The section of the help by option; all others have the first title.
_SECTIONS = {
    **{rule.name: rule.section for rule in RULES if rule.section},
    **dict.fromkeys(("--columns", "--cast", "--pad"), ABOUT_OUTPUTS),
    "--failures": ABOUT_VERDICT,
    **dict.fromkeys(_ABOUT_PLACE, _TITLES[-1]),
}


class _InSections(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        by_section: dict[str, list[tuple[str, str]]] = {title: [] for title in _TITLES}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                by_section[_SECTIONS.get(param.opts[0], _TITLES[0])].append(record)
        for title, records in by_section.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command("compare", cls=_InSections)
@click.argument("reference")
@click.argument("candidate")
@click.option(
    "--samples",
    required=True,
    metavar="FILE|MODULE:CALLABLE",
    help="The inputs: .npz, .npy, .safetensors, .csv, .jsonl, .parquet, a data set, or a function that yields batches.",
)
@shared.rule_options
@shared.batch_size_option
@shared.columns_option
@shared.cast_option
@shared.pad_option
@click.option(
    "--emulate",
    is_flag=True,
    help="Run the candidate (ONNX) as a device of --precision fp16 or bf16 would: every value rounded to it.",
)
@click.option(
    "--source",
    metavar="MODEL",
    help="The model that REFERENCE, a folder of outputs, was recorded from. It runs again on rows that fail.",
)
@click.option(
    "--repair",
    type=WrittenPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="If CANDIDATE, in FP16 or INT8, fails: write a file made from REFERENCE here, with some operators in FP32.",
)
@click.option(
    "--failures",
    type=OwnPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write every batch of a probe that the candidate fails here, with the outputs of both.",
)
@click.option(
    "--shard",
    "shard_text",
    metavar="I/N",
    help="Measure the I-th of N parts of the batches, for merge; REFERENCE is the reference folder of a run.",
)
@click.option(
    "--out",
    type=WrittenPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of the part, for --shard. An existing part is not made again.",
)
@engine_options("Measure shards by so many workers at a time, and merge them; REFERENCE is as for --shard.")
@shared.device_option
@click.option(
    "--provider",
    type=click.Choice(["cpu", "cuda", "tensorrt"]),
    default=None,
    help="ONNX Runtime's execution provider for the candidate (ONNX); that of --device if absent.",
)
@click.option(
    "--endpoint",
    "endpoint",
    multiple=True,
    metavar="NAME=VALUE",
    help="Limits on requests to a server: requests_per_second (200 by default), requests (100000), timeout_s (30).",
)
@click.option(
    "--endpoint-json",
    "endpoint_json",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Map inputs and outputs to fields of a server's JSON, if the server speaks no known protocol.",
)
@shared.max_answer_option
@shared.repository_option
@shared.time_limit_option
@shared.memory_limit_option
@result_options(has_report=True)
def command(
    reference: str,
    candidate: str,
    *,
    samples: str,
    batch_size: int,
    columns: tuple[str, ...],
    cast: tuple[str, ...],
    pad: tuple[str, ...],
    emulate: bool,
    source: str | None,
    repair: Path | None,
    failures: Path | None,
    shard_text: str | None,
    out: Path | None,
    engine: str | None,
    workers: int | None,
    ray_address: str | None,
    device: str,
    provider: str | None,
    endpoint: tuple[str, ...],
    endpoint_json: Path | None,
    max_answer_mb: float | None,
    repository: Root,
    time_limit_s: float,
    written: Result,
    **options: object,
) -> int:
    """Compare CANDIDATE with REFERENCE on the same samples and give a verdict.

    Each can be a model file: .onnx, .keras, .pt, .ts, .pt2, .xml, .tflite or a SavedModel folder. It can be
    module:callable, which returns a PyTorch or Keras model, or takes and returns a dict of arrays. It can be
    a folder of save_pretrained with safetensors, which is loaded offline and without its code. It can be
    recorded outputs: an .npz file with the samples' keys, or a folder made by `record`. It can be a release:
    MODEL@ALIAS or MODEL@VERSION, with /VARIANT for another than the preferred variant. It can be a model on a
    server: http://HOST:PORT/v2/models/NAME, grpc://HOST:PORT/NAME or http://HOST:PORT/v1/models/NAME (TensorFlow
    Serving). For any other http:// address, add --endpoint-json.

    With --repair, 40 % of the samples choose the fewest operators to keep in FP32. The gate judges the repaired file
    on the others. The verdict stays that of CANDIDATE. The exit code is 4 if no operators suffice.

    The exit code is 0 for pass, 1 for fail, 3 for inconclusive, 5 if the comparison could not be made.

    \b
    Example:
      convert-and-validate compare model.onnx model-fp16.onnx \\
        --samples inputs.npz --precision fp16 --decision logits:threshold=3 \\
        --repeat 3 --json result.json
      convert-and-validate compare model.onnx \\
        http://127.0.0.1:8000/v2/models/model --samples inputs.npz
    """
    from paritygate.models.json_mapping import read_json_mapping
    from paritygate.pipelines.compare.arguments import comparison_of
    from paritygate.pipelines.compare.job import ComparisonJob, compare
    from paritygate.pipelines.compare.models import check_mapping_is_used
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.release.compared import model_or_release
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.rules.gate_rules import gate_rules_of, values_of_options
    from paritygate.pipelines.spec.roles import parse_roles
    from paritygate.text import counted

    here = Path.cwd()
    values = values_of_options(options)
    inputs = shared.samples_given(samples, batch_size=batch_size, columns=columns, cast=cast, pad=pad)
    mapping = None if endpoint_json is None else read_json_mapping(endpoint_json)
    one = model_or_release(reference, here, repository, endpoint_json=mapping)
    other = model_or_release(candidate, here, repository, rename=values["rename"], endpoint_json=mapping)
    check_mapping_is_used((one, other), mapping)
    job = comparison_of(
        ComparisonJob(
            reference=one,
            candidate=other,
            samples=inputs,
            rules=gate_rules_of(values),
            roles=parse_roles(values["roles"]),
            is_emulated=emulate,
            failures=failures,
            source=None if source is None else model_or_release(source, here, repository),
            device=device,
        ),
        signatures=values["signatures"],
        takes=values["takes"],
        endpoint=shared.endpoint_limits(endpoint, max_answer_mb, example="requests_per_second=50"),
        provider=provider,
    )
    without = {"--shard": shard_text, "--out": out, "--repair": repair}
    if (by_workers := engine_of(engine, workers, ray_address, without)) is not None:
        return compare_with(by_workers, job, written, time_limit_s=time_limit_s)
    if shard_text is not None or out is not None:
        if written.reports or repair is not None or written.form != "text":
            named = "--report" if written.reports else f"--format {written.form}"
            raise _no_verdict("--repair" if repair is not None else named)
        return _measure_shard(job, shard_text, out, time_limit_s=time_limit_s, written=written)
    if repair is not None:
        from paritygate.pipelines.repair.pair import check_repair

        check_repair(job, repair)
    with written.shown.progress(Path(candidate).name) as progress, stage(progress, "comparing") as did:
        result = compare(job, time_limit_s=time_limit_s, progress=progress)
        did(f"compared {counted(result.rows, 'row')}" if result.is_measured else "")
    written.show_comparison(result, job)
    if repair is not None and result.verdict == "fail":
        _repair(job, repair, time_limit_s=time_limit_s, written=written)
    elif repair is not None and not written.shown.is_quiet:
        print_lines([f"--repair made nothing, because the verdict is {result.verdict}"], err=True)
    return result.exit_code


def _no_verdict(option: str) -> UsageError:
    msg = f"--shard gives no verdict, so it accepts no {option}"
    if option == "--repair":
        return UsageError(msg, hint="leave it out")
    return UsageError(msg, hint="give it to merge", command="convert-and-validate merge")


def _measure_shard(
    job: ComparisonJob, text: str | None, out: Path | None, *, time_limit_s: float, written: Result
) -> int:
    """Measure one shard, and print where its part is."""
    from paritygate.pipelines.compare.shards.shard import measure_shard, parse_shard
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.text import counted

    if text is None or out is None:
        msg = "--out is the file of a shard, but --shard is missing" if text is None else "--shard needs --out FILE"
        raise UsageError(msg, hint="write for example --shard 1/7 --out part-1.json")
    shard = parse_shard(text)
    with written.shown.progress(job.candidate.name) as progress, stage(progress, "comparing") as did:
        result = measure_shard(job, shard, out, time_limit_s=time_limit_s, progress=progress)
        did(f"compared {counted(result.rows, 'row')}")
    written.shown.write(result)
    where = f"batches {result.first + 1} to {result.last}" if result.first < result.last else "no batch"
    made = "is unchanged" if result.is_unchanged else "is written"
    lines = [f"{out} {made}: shard {shard}, {where} of {result.batches}"]
    if not written.shown.is_quiet:
        parts = shlex.quote(str(out)) if shard.of == 1 else f"{shlex.quote(str(out))} ..."
        lines.append(f"next, when all {counted(shard.of, 'part')} are there: convert-and-validate merge {parts}")
    print_lines(lines, err=written.shown.to_stderr)
    return 0


def _repair(job: ComparisonJob, folder: Path, *, time_limit_s: float, written: Result) -> None:
    from paritygate.pipelines.repair.pair import repair_pair
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.repair import repair_lines

    with written.shown.progress("repair") as progress:
        repaired = repair_pair(job, folder, time_limit_s=time_limit_s, progress=progress)
    print_lines(list(repair_lines(repaired)), err=written.shown.to_stderr)
