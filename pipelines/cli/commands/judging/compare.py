"""`compare`: the gate without a spec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from paritygate.codec import to_data
from paritygate.pipelines.cli.formats import Result, format_option
from paritygate.pipelines.cli.options import (
    LocalPath,
    batch_size_option,
    device_option,
    endpoint_limits,
    json_option,
    limits,
    max_answer_option,
    memory_limit_option,
    numbers,
    pad_option,
    pairs,
    probe_names,
    probes_option,
    quiet_option,
    reasons_by_name,
    repository_option,
    time_limit_option,
    verbose_option,
    whole_numbers,
)
from paritygate.validate.gate.bounds import COVERED_ROWS

__all__ = ["command"]


# All other options stand under the first title.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Options": (),
    "Options about outputs and inputs": (
        *("--map", "--outputs", "--ignore", "--argmax-of", "--match", "--axis", "--valid-where", "--role"),
        *("--signature", "--takes", "--non-finite", "--pad"),
    ),
    "Options about the verdict": (
        *("--tolerance", "--min-cosine-similarity", "--constant-decision", "--gold", "--min-rows", "--repeat"),
        *("--probes", "--edge", "--failures", "--seed"),
    ),
    "Options about where it runs": (
        *("--device", "--provider", "--emulate", "--batch-size", "--endpoint", "--endpoint-json", "--max-answer-mb"),
        *("--repository", "--time-limit", "--memory-limit"),
    ),
}


class _InSections(click.Command):
    """A command whose help groups its options by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of one section together."""
        titles = {option: title for title, options in _SECTIONS.items() for option in options}
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                found[next((titles[each] for each in param.opts if each in titles), "Options")].append(record)
        for title, records in found.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command("compare", cls=_InSections)
@click.argument("reference")
@click.argument("candidate")
@click.option(
    "--samples",
    required=True,
    metavar="FILE|MODULE:CALLABLE",
    help="The inputs: .npz, .safetensors, .jsonl, .parquet, a data set, or a function that yields batches.",
)
@click.option(
    "--precision", default="fp32", show_default=True, help="Precision of the candidate: selects the default tolerances."
)
@click.option(
    "--decision",
    "decisions",
    multiple=True,
    metavar="OUTPUT:RULE",
    help="How an output becomes an answer: logits:threshold=3 (positive is above; threshold=>=3 for at least), "
    "logits:argmax, logits:top_k=5, logits:multilabel=0.5, each with ,axis=N (needed above rank 2).",
)
@click.option(
    "--constant-decision",
    "constant_decisions",
    multiple=True,
    metavar="OUTPUT=REASON",
    help="Why it is right, below FP32, that all rows are decided alike; recorded.",
)
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="[OUTPUT:]NAME=VALUE",
    help="A limit in place of the default: max_abs_diff, mean_abs_diff, max_row_rel_diff, "
    "repeat_max_abs_diff, decision_mismatches, mismatch_rate_upper_95. OUTPUT:NAME=V,default,... sets one a column.",
)
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Run the whole sequence of batches this often in one session, and compare every pass.",
)
@click.option(
    "--map",
    "rename",
    multiple=True,
    metavar="CANDIDATE=REFERENCE",
    help="The candidate's name for an input or output, and the reference's.",
)
@click.option(
    "--signature",
    "signatures",
    multiple=True,
    metavar="SIDE=NAME",
    help="Which signature of a SavedModel is meant, where it is not serving_default: reference=NAME, candidate=NAME.",
)
@click.option(
    "--takes",
    "takes",
    multiple=True,
    metavar="SIDE=NAME,...",
    help="What of the samples a side takes, where the other takes other columns of the same rows, such as a server "
    "that prepares raw text itself: candidate=text. Then the samples alone are asked, and no probes.",
)
@click.option(
    "--outputs",
    "outputs",
    multiple=True,
    metavar="NAME",
    help="Compare these outputs only; the others are recorded as left out.",
)
@click.option(
    "--argmax-of",
    "argmax_of",
    multiple=True,
    metavar="LABEL=SCORES",
    help="Declare an integer output the argmax of another: it may differ where the scores are within the limits.",
)
@click.option(
    "--gold",
    "gold",
    multiple=True,
    metavar="METRIC:OUTPUT",
    help="A metric against the gold that samples carry: pearson:logits, spearman, accuracy, f1, f1_macro, auc, or "
    "MODULE:CALLABLE:OUTPUT; with ,ratio=0.99, ,mlperf=99 (or 99.9) or ,max_drop=D a limit, with ,gold_above=V "
    "labels of gold that is none.",
)
@click.option(
    "--match",
    "matches",
    multiple=True,
    metavar="NAME:boxes=B,scores=S,...",
    help="Outputs that are lists of detections, matched before they are compared: NAME:boxes=B,scores=S with "
    ",classes=C ,num=N ,iou=0.9 ,score_tolerance=0.01 ,score_floor=0.3 ,max_box_diff=D ,format=xyxy|xywh|cxcywh. "
    "Detections in one output: NAME:output=O,boxes=0:4,scores=4,classes=5 with ,axis=1 ,picture=0 ,other_tolerance=D.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="OUTPUT=REASON",
    help="Do not compare this output; recorded with the reason.",
)
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="OUTPUT=N",
    help="The channel axis of an output, whose entries get scales of their own.",
)
@click.option(
    "--min-cosine-similarity",
    "cosines",
    multiple=True,
    metavar="OUTPUT=V",
    help="The least cosine similarity of the two answers to any row, -1 to 1.",
)
@click.option(
    "--valid-where",
    "valid_where",
    multiple=True,
    metavar="OUTPUT=INPUT",
    help="Which positions of an output count: those where the input is set, such as logits=attention_mask.",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="INPUT=ROLE",
    help="What an input is: id, mask, length, image, number or text; or all that roles of a spec say of it, such as "
    "attention_mask={empty: false, padding: right}.",
)
@click.option(
    "--non-finite",
    type=click.Choice(["refuse", "match"]),
    default="refuse",
    show_default=True,
    help="Refuse a reference with NaN or infinity, or declare that they belong there and must match.",
)
@click.option(
    "--min-rows",
    default=COVERED_ROWS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Fewer rows are inconclusive.",
)
@batch_size_option
@pad_option
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Seed of the choice of rows that the reference answers twice.",
)
@click.option(
    "--emulate",
    is_flag=True,
    help="Run the candidate (ONNX) as a device of --precision fp16 or bf16 would: every value rounded to it.",
)
@probes_option
@click.option(
    "--edge",
    type=click.Choice(["fail", "warn", "off"]),
    default="warn",
    show_default=True,
    help="What a difference in made-up rows unlike every sample comes to: a failure, a finding, or none are asked.",
)
@click.option(
    "--failures",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Put every batch of a probe that the candidate fails here, with the answers of both.",
)
@device_option
@click.option(
    "--provider",
    type=click.Choice(["cpu", "cuda", "tensorrt"]),
    default=None,
    help="What of ONNX Runtime runs the candidate (ONNX); that of --device if absent.",
)
@click.option(
    "--endpoint",
    "endpoint",
    multiple=True,
    metavar="NAME=VALUE",
    help="How a server may be asked: requests_per_second (200 by default), requests (100000), timeout_s (30).",
)
@click.option(
    "--endpoint-json",
    "endpoint_json",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Which field of a server's JSON is which input and output, where its address is of no known protocol.",
)
@max_answer_option
@repository_option
@time_limit_option
@memory_limit_option
@quiet_option
@verbose_option
@format_option
@click.option(
    "--report",
    type=LocalPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a report of the comparison: .html, one page with drawings, or .md, which names no rows.",
)
@json_option
def command(
    reference: str,
    candidate: str,
    *,
    samples: str,
    precision: str,
    decisions: tuple[str, ...],
    constant_decisions: tuple[str, ...],
    tolerances: tuple[str, ...],
    repeat: int,
    rename: tuple[str, ...],
    signatures: tuple[str, ...],
    takes: tuple[str, ...],
    outputs: tuple[str, ...],
    argmax_of: tuple[str, ...],
    gold: tuple[str, ...],
    matches: tuple[str, ...],
    ignored: tuple[str, ...],
    axes: tuple[str, ...],
    cosines: tuple[str, ...],
    valid_where: tuple[str, ...],
    roles: tuple[str, ...],
    non_finite: str,
    min_rows: int,
    batch_size: int,
    pad: tuple[str, ...],
    seed: int,
    emulate: bool,
    probes: str | None,
    edge: str,
    failures: Path | None,
    device: str,
    provider: str | None,
    endpoint: tuple[str, ...],
    endpoint_json: Path | None,
    max_answer_mb: float | None,
    repository: Path,
    time_limit: float,
    quiet: bool,
    verbose: bool,
    form: str,
    report: Path | None,
    json_target: str | None,
) -> int:
    """Hold CANDIDATE against REFERENCE on the same samples and give a verdict.

    Each is a model (.onnx, .keras, a SavedModel folder, TorchScript in .pt or .ts, torch.export in .pt2, OpenVINO in
    .xml, .tflite, or module:callable, a function that returns a PyTorch module or Keras model, or that takes a dict of
    arrays and returns one), or outputs recorded before (an .npz file with the samples' keys, or a folder made by
    `record`), or a release (MODEL@ALIAS or MODEL@VERSION, with /VARIANT another than the preferred variant), or the
    address of a model on a server (http://HOST:PORT/v2/models/NAME, grpc://HOST:PORT/NAME,
    http://HOST:PORT/v1/models/NAME of TensorFlow Serving, any other http:// with --endpoint-json).
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
    from paritygate.pipelines.cli.console import progress_of
    from paritygate.pipelines.compare.arguments import comparison_of
    from paritygate.pipelines.compare.job import compare
    from paritygate.pipelines.compare.models import check_mapping_is_used
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.release.compared import model_or_release
    from paritygate.pipelines.report.terminal.comparison import print_comparison
    from paritygate.pipelines.spec.roles import parse_roles
    from paritygate.text import counted
    from paritygate.validate.samples.source import SampleSource

    if report is not None:
        from paritygate.pipelines.report.comparison_page import check_report_file

        check_report_file(report)
    written = Result(form=form, json_target=json_target)
    shown = written.shown(quiet=quiet, verbose=verbose)
    here = Path.cwd()
    names = pairs("--map", rename, example="output_0=logits")
    fill = numbers("--pad", pad, example="input_ids=0")
    mapping = None if endpoint_json is None else read_json_mapping(endpoint_json)
    models = (
        model_or_release(reference, here, repository, endpoint_json=mapping),
        model_or_release(candidate, here, repository, rename=names, endpoint_json=mapping),
    )
    check_mapping_is_used(models, mapping)
    job = comparison_of(
        *models,
        SampleSource(text=samples, folder=here, batch_size=batch_size, pad=fill),
        precision=precision,
        decisions=decisions,
        constant_decisions=reasons_by_name(
            "--constant-decision", constant_decisions, example="all rows are of one class"
        ),
        tolerance=limits("--tolerance", tolerances, example="max_abs_diff=1e-3"),
        repeat=repeat,
        outputs=outputs,
        argmax_of=pairs("--argmax-of", argmax_of, example="label=logits"),
        gold=gold,
        matches=matches,
        ignored=reasons_by_name("--ignore", ignored, example="random by design"),
        axes=whole_numbers("--axis", axes),
        min_cosine_similarity=numbers("--min-cosine-similarity", cosines, example="embedding=0.999"),
        valid_where=pairs("--valid-where", valid_where, example="logits=attention_mask"),
        roles=parse_roles(pairs("--role", roles, example="attention_mask=mask")),
        non_finite=non_finite,
        min_rows=min_rows,
        seed=seed,
        emulate=emulate,
        probes=probe_names(probes),
        edge=edge,
        failures=failures,
        device=device,
        provider=provider,
        signatures=pairs("--signature", signatures, example="reference=serving_default"),
        takes=pairs("--takes", takes, example="candidate=text"),
        endpoint=endpoint_limits(endpoint, max_answer_mb, example="requests_per_second=50"),
    )
    with progress_of(Path(candidate).name, is_quiet=quiet) as progress, stage(progress, "comparing") as did:
        result = compare(job, time_limit_s=time_limit, progress=progress)
        did(f"compared {counted(result.rows, 'row')}" if result.is_measured else "")
    if report is not None:
        from paritygate.pipelines.report.comparison_page import write_comparison_report

        write_comparison_report(result, report)
    written.add_comparison(result)
    written.write(to_data(result))
    with written.printing():
        print_comparison(result, shown)
    return result.exit_code
