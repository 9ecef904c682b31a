"""`diagnose`: which operators make the difference."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import (
    batch_size_option,
    cast_option,
    columns_option,
    json_option,
    memory_limit_option,
    pad_option,
    quiet_option,
    samples_given,
    time_limit_option,
    verbose_option,
)


@click.command("diagnose")
@click.argument("reference")
@click.argument("candidate")
@click.option(
    "--samples",
    required=True,
    metavar="FILE|MODULE:CALLABLE",
    help="The inputs, as for `compare`. The batches that differ most are used.",
)
@batch_size_option
@columns_option
@cast_option
@pad_option
@time_limit_option
@memory_limit_option
@quiet_option
@verbose_option
@json_option
def command(
    reference: str,
    candidate: str,
    *,
    samples: str,
    batch_size: int,
    columns: tuple[str, ...],
    cast: tuple[str, ...],
    pad: tuple[str, ...],
    time_limit: float,
    quiet: bool,
    verbose: bool,
    json_target: str | None,
) -> int:
    """Name the operators at which the ONNX file CANDIDATE parts from the ONNX file REFERENCE.

    Inner tensors are matched by their values, so names need not be equal. A place is proven if the outputs agree
    once the reference's values are put there. For a TensorRT engine, give the ONNX file that it was built from.

    The exit code is 0 if the outputs agree, 1 if they differ, 5 if a model cannot run.

    \b
    Example:
      convert-and-validate diagnose model.onnx model-wrong.onnx \\
        --samples inputs.npz
      convert-and-validate diagnose model.onnx model-fp16.onnx \\
        --samples inputs.npz --json diagnosis.json
    """
    from paritygate.codec import to_data
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest, diagnose
    from paritygate.pipelines.report.terminal.divergence import print_divergence
    from paritygate.validate.divergence.result import EQUAL

    request = DiagnosisRequest(
        reference=reference,
        candidate=candidate,
        samples=samples_given(samples, batch_size=batch_size, columns=columns, cast=cast, pad=pad),
        time_limit_s=time_limit,
    )
    with progress_of("diagnose", is_quiet=quiet) as progress:
        divergence = diagnose(request, progress)
    if json_target != "-":
        print_divergence(divergence, is_verbose=verbose)
    write_json(json_target, {"schema_version": 1, **to_data(divergence)})
    return 0 if divergence.outcome == EQUAL else 1
