"""`inspect`: describe a model."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import memory_limit_option, time_limit_option
from paritygate.pipelines.cli.output import Output, output_options


@click.command("inspect")
@click.argument("model")
@click.option(
    "--samples",
    metavar="FILE|MODULE:CALLABLE",
    help="Rows to run the model on, if it does not declare its inputs and outputs, such as a PyTorch module.",
)
@time_limit_option
@memory_limit_option
@output_options("quiet", "json")
def command(model: str, *, samples: str | None, time_limit_s: float, output: Output) -> int:
    """Show the inputs, outputs, operators, weight precision, size and versions of MODEL.

    MODEL is a path (.onnx, .keras, .pt, .ts, .pt2, .xml, .tflite, .plan, a SavedModel folder) or module:callable,
    which returns a PyTorch or Keras model. Unknown values are shown as unknown.

    \b
    Example:
      convert-and-validate inspect model.onnx
      convert-and-validate inspect model:load --samples inputs.npz --json -
    """
    from paritygate.pipelines.inspecting.init import inspect_model
    from paritygate.pipelines.report.terminal.inspection import print_inspection

    with output.progress("inspect") as progress:
        inspection = inspect_model(model, samples, here=Path.cwd(), time_limit_s=time_limit_s, progress=progress)
    if not output.to_stderr:
        print_inspection(inspection)
    output.write(inspection)
    return 0
