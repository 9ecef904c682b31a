"""`init`: write a starter spec of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.options import columns_option, limit_options
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import WrittenPath


@click.command("init")
@click.argument("model")
@click.option(
    "--samples",
    metavar="FILE|FOLDER|MODULE:CALLABLE",
    help="Real inputs: .npz, .npy, .safetensors, .csv, .jsonl, .parquet, a folder of pictures, or a function. Without "
    "this option the rows are random.",
)
@columns_option
@click.option(
    "--out",
    type=WrittenPath(dir_okay=False, path_type=Path),
    default="spec.yaml",
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--name",
    help=(
        "The model's name in runs and releases. Two models need two names. Guessed from the file, module"
        " or callable if absent."
    ),
)
@click.option("--signature", metavar="NAME", help="The signature of a SavedModel, if not serving_default.")
@click.option("--force", "is_replacing", is_flag=True, help="Replace the file if it exists.")
@limit_options
@output_options("quiet", "json")
def command(
    *,
    columns: tuple[str, ...],
    time_limit_s: float,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Write a starter spec for MODEL. It reads what it can, guesses the rest, and marks every guess with the reason.

    MODEL is a path (.onnx, .keras, .pt, .ts, .pt2, a SavedModel folder) or module:callable, which returns a PyTorch
    or Keras model. Name, dims, masks, decisions and targets are guessed. Without samples the spec uses random rows,
    and its run is inconclusive. For a SavedModel with several signatures it prints the one it used and the others.

    \b
    Example:
      convert-and-validate init model.onnx --samples inputs.npz
      convert-and-validate init model:load --samples samples.jsonl \\
        --out classifier.yaml --name classifier
    """
    from paritygate.pipelines.inspecting.init import InitRequest, write_spec
    from paritygate.pipelines.report.terminal.inspection import print_written_spec
    from paritygate.pipelines.rules.pairs import column_lists

    request = InitRequest(here=Path.cwd(), columns=column_lists(columns), **options)
    with output.progress("init") as progress:
        written = write_spec(request, time_limit_s=time_limit_s, progress=progress)
    if not output.to_stderr:
        print_written_spec(written)
    output.write(written)
    return 0
