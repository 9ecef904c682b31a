"""`inspect`: describe a model."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import json_option, memory_limit_option, quiet_option, time_limit_option


@click.command("inspect")
@click.argument("model")
@click.option(
    "--samples",
    metavar="FILE|MODULE:CALLABLE",
    help="Rows to run the model on, if it does not declare its inputs and outputs, such as a PyTorch module.",
)
@time_limit_option
@memory_limit_option
@quiet_option
@json_option
def command(model: str, *, samples: str | None, time_limit: float, quiet: bool, json_target: str | None) -> int:
    """Show the inputs, outputs, operators, weight precision, size and versions of MODEL.

    MODEL is a path (.onnx, .keras, .pt, .ts, .pt2, .xml, .tflite, .plan, a SavedModel folder) or module:callable,
    which returns a PyTorch or Keras model. Unknown values are shown as unknown.

    \b
    Example:
      convert-and-validate inspect model.onnx
      convert-and-validate inspect model:load --samples inputs.npz --json -
    """
    from paritygate.codec import to_data
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.inspecting.init import inspect_model
    from paritygate.pipelines.report.terminal.inspection import print_inspection

    with progress_of("inspect", is_quiet=quiet) as progress:
        inspection = inspect_model(model, samples, here=Path.cwd(), time_limit_s=time_limit, progress=progress)
    if json_target != "-":
        print_inspection(inspection)
    write_json(json_target, {"schema_version": 1, **to_data(inspection)})
    return 0
