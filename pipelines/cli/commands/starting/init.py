"""`init`: write a starter spec of a model."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import WrittenPath, columns_option, json_option, limit_options, quiet_option


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
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@limit_options
@quiet_option
@json_option
def command(
    model: str,
    *,
    samples: str | None,
    out: Path,
    name: str | None,
    signature: str | None,
    columns: tuple[str, ...],
    force: bool,
    time_limit: float,
    quiet: bool,
    json_target: str | None,
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
    from paritygate.codec import to_data
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.inspecting.init import InitRequest, write_spec
    from paritygate.pipelines.report.terminal.inspection import print_written_spec
    from paritygate.pipelines.rules.pairs import column_lists

    request = InitRequest(
        model=model,
        samples=samples,
        here=Path.cwd(),
        out=out,
        name=name,
        signature=signature,
        columns=column_lists(columns),
        is_replacing=force,
    )
    with progress_of("init", is_quiet=quiet) as progress:
        written = write_spec(request, time_limit_s=time_limit, progress=progress)
    if json_target != "-":
        print_written_spec(written)
    write_json(json_target, {"schema_version": 1, **to_data(written)})
    return 0
