"""`record`: record the reference's outputs, for a run or for a model file."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import WrittenPath
from paritygate.pipelines.rules.pairs import pairs

# A run's spec has these.
_OF_MODEL = frozenset(
    {"samples", "out", "signature", "batch_size", "columns", "cast", "pad", "valid_where", "non_finite", "seed"}
)


def _check_options(*, is_of_run: bool) -> None:
    from paritygate.errors import UsageError

    names = [param.opts[0] for param in shared.typed_params() if param.name in _OF_MODEL]
    if is_of_run and names:
        msg = f"record --run takes no {names[0]}, because the run's spec sets it"
        raise UsageError(msg, hint="leave it out, or start a new run", command="convert-and-validate export SPEC")


@click.command("record")
@click.argument("model", required=False)
@shared.run_and_root_options
@click.option("--samples", metavar="FILE|MODULE:CALLABLE", help="The inputs, for MODEL.")
@click.option("--out", type=WrittenPath(path_type=Path), help="The folder to write, for MODEL.")
@click.option(
    "--signature",
    default=None,
    metavar="NAME",
    help="The signature of a SavedModel, if not serving_default.",
)
@shared.batch_size_option
@shared.columns_option
@shared.cast_option
@shared.pad_option
@click.option(
    "--valid-where",
    "valid_where",
    multiple=True,
    metavar="OUTPUT=INPUT",
    help="Count only positions of an output where this input is set; give compare the same.",
)
@click.option(
    "--non-finite",
    type=click.Choice(["refuse", "match"]),
    default="refuse",
    show_default=True,
    help="Refuse NaN and infinity in the outputs, or accept them.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Seed for the choice of rows that run twice.",
)
@shared.device_option
@shared.limit_options
@output_options("quiet", "json")
def command(
    model: str | None,
    *,
    run_folder: Path | None,
    samples: str | None,
    out: Path | None,
    signature: str | None,
    batch_size: int,
    columns: tuple[str, ...],
    cast: tuple[str, ...],
    pad: tuple[str, ...],
    valid_where: tuple[str, ...],
    non_finite: str,
    seed: int,
    device: str,
    time_limit_s: float,
    output: Output,
) -> int:
    """Record the outputs of the reference: of a run's source with --run, or of a MODEL file with --samples and --out.

    A reference that is not finite, not equal to itself when it is run twice, or constant is refused.

    \b
    Example:
      convert-and-validate record \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
      convert-and-validate record model.onnx --samples inputs.npz --out reference
    """
    from paritygate.errors import UsageError
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.screen import wrapped
    from paritygate.pipelines.run.record import RecordRequest, record_model, record_stage
    from paritygate.pipelines.run.workspace import open_run

    if (model is None) == (run_folder is None):
        msg = "record takes either --run DIR or a MODEL"
        raise UsageError(msg, hint="see both forms", command="convert-and-validate record --help")
    _check_options(is_of_run=run_folder is not None)
    with output.progress("record") as progress:
        if run_folder is not None:
            recording = record_stage(open_run(run_folder), time_limit_s=time_limit_s, progress=progress, device=device)
        else:
            if model is None or samples is None or out is None:
                msg = "record MODEL needs --samples and --out"
                raise UsageError(
                    msg, command="convert-and-validate record model.onnx --samples inputs.npz --out reference"
                )
            recording = record_model(
                RecordRequest(
                    model=model,
                    samples=shared.samples_given(samples, batch_size=batch_size, columns=columns, cast=cast, pad=pad),
                    out=out,
                    valid_where=pairs("--valid-where", valid_where, example="logits=attention_mask"),
                    is_non_finite_declared=non_finite == "match",
                    seed=seed,
                    device=device,
                    signature_key=signature,
                ),
                time_limit_s=time_limit_s,
                progress=progress,
            )
    to_stderr = output.to_stderr
    words = (f"recorded {recording.rows} rows in {recording.folder}", *map(": ".join, recording.health))
    print_lines((line for text in words for line in wrapped(text)), err=to_stderr)
    output.write(
        {
            "folder": str(recording.folder),
            "rows": recording.rows,
            "samples_digest": recording.samples_digest,
            "health": [list(item) for item in recording.health],
        },
    )
    return 0
