"""`inspect`: what a model is."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import json_option, memory_limit_option, quiet_option, time_limit_option


@click.command("inspect")
@click.argument("model")
@click.option(
    "--samples",
    metavar="FILE|MODULE:CALLABLE",
    help="Rows that the model answers: needed for inputs and outputs of what does not say them, such as a PyTorch "
    "module.",
)
@time_limit_option
@memory_limit_option
@quiet_option
@json_option
def command(model: str, *, samples: str | None, time_limit: float, quiet: bool, json_target: str | None) -> int:
    """Show what MODEL is: inputs, outputs, operators, precision of the weights, size, versions.

    MODEL is a path (.onnx, .keras, a SavedModel folder, TorchScript in .pt or .ts, torch.export in .pt2, OpenVINO in
    .xml, .tflite, .plan with its engine.json), or module:callable, a function that returns a PyTorch module or Keras
    model. What cannot be known is said to be so.

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
        found = inspect_model(model, samples, here=Path.cwd(), time_limit_s=time_limit, progress=progress)
    if json_target != "-":
        print_inspection(found)
    write_json(json_target, {"schema_version": 1, **to_data(found)})
    return 0
