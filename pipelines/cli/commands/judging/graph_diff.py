"""`graph-diff`: which operators two ONNX files share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from paritygate.pipelines.cli.options import two_file_options
from paritygate.pipelines.cli.output import Output

if TYPE_CHECKING:
    from paritygate.validate.samples.source import SampleSource


@click.command("graph-diff")
@click.argument("a")
@click.argument("b")
@click.option(
    "--samples", required=True, metavar="FILE|MODULE:CALLABLE", help="The inputs of A, as for `compare`. 3 batches run."
)
@click.option(
    "--within",
    "tolerance",
    type=click.FloatRange(0, 0.1),
    default=1e-4,
    show_default=True,
    help="The relative error up to which values are equal.",
)
@two_file_options
def command(
    a: str,
    b: str,
    *,
    samples: str,
    tolerance: float,
    read: Callable[[str], SampleSource],
    time_limit_s: float,
    output: Output,
) -> int:
    """Match the nodes of the ONNX files A and B by the values that they compute.

    Names need not be equal. The first divergence is the first node of B that reads equal values and computes
    another one. To find what makes outputs differ, use `diagnose`.

    The exit code is 0 if each node has a partner, 1 if some have none, 5 if a model cannot run.

    \b
    Example:
      convert-and-validate graph-diff model.onnx model-wrong.onnx \\
        --samples inputs.npz
    """
    from paritygate.codec import to_data
    from paritygate.models.source import SourceKind
    from paritygate.pipelines.diagnose.diagnose import graph_diff, request_of
    from paritygate.pipelines.report.terminal.divergence import print_graph_diff

    request = request_of(a, b, read(samples), kinds={SourceKind.ONNX})
    with output.progress("graph-diff") as progress:
        diff = graph_diff(request, tolerance, progress, time_limit_s=time_limit_s)
    if not output.to_stderr:
        print_graph_diff(diff, is_verbose=output.is_verbose)
    files = {"a": str(request.reference.path), "b": str(request.candidate.path)}
    output.write({"files": files, **to_data(diff)})
    return 0 if diff.is_equal else 1
