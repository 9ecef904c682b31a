"""`triton`: write a release for a Triton server."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.view_options import view_options, warm_up_option, write_view


@click.command("triton")
@view_options(
    "The folder, or s3://BUCKET/PREFIX, that the server looks for models in (tritonserver --model-repository). The "
    "command writes DIR/NAME/config.pbtxt, DIR/NAME/VERSION/ and DIR/NAME/warmup/.",
    is_address=True,
)
@warm_up_option
@click.option(
    "--server",
    metavar="YY.MM",
    help="The release of Triton that will serve it, such as 25.10: refuse an ONNX file that is too new for it.",
)
def command(**options: Any) -> int:  # noqa: ANN401 - the values of the options
    """Write a release of MODEL, by default the one at prod, into a Triton model repository.

    Before anything is written, every file of the release is verified, and the configuration is checked against the
    known rules of Triton. In a folder, a polling server never sees half a version. When promote, run, rollback or
    alias moves the alias, they write the view again, unless --no-follow was given.

    \b
    Example:
      convert-and-validate triton klue-sts --out models
      convert-and-validate triton klue-sts canary --out models \\
        --name klue-sts-canary --samples inputs.npz --server 25.10
    """
    return write_view("triton", **options)
