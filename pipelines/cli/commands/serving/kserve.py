"""`kserve`: a release as KServe runs it on its Triton."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.view_options import view_options, write_view_asked_for

__all__ = ["command"]


@click.command("kserve")
@view_options
@click.option(
    "--storage-uri",
    required=True,
    metavar="URI",
    help="That folder as the cluster reads it, such as pvc://CLAIM/models or s3://BUCKET/models.",
)
@click.option(
    "--server",
    required=True,
    metavar="YY.MM",
    help="The release of Triton that KServe is to run, such as 25.10: refuse an ONNX file that is too new for it.",
)
@click.option(
    "--samples",
    metavar="FILE|MODULE:CALLABLE",
    help="Warm the server up with the first row of these inputs before it says that it is ready.",
)
def command(**asked: Any) -> int:  # noqa: ANN401 - the values of the options
    """Write a release of MODEL, by default the one at prod, as KServe runs it: an InferenceService on its Triton.

    Every file of the release is verified, and every rule that Triton is known to have is held against the
    configuration, before anything is written. Each version has a folder of its own, which is yours to copy to where
    --storage-uri says; the service that names it is written last. When promote, run, rollback or alias moves the alias,
    they write the view again, unless --no-follow was given.

    \b
    Example:
      convert-and-validate kserve klue-sts --out models \\
        --storage-uri pvc://models --server 25.10
      convert-and-validate kserve klue-sts canary --out models \\
        --name klue-sts-canary \\
        --storage-uri s3://team/models --server 25.10
    """
    from paritygate.pipelines.cli.serving_summary import print_kserve_view

    return write_view_asked_for("kserve", print_kserve_view, **asked)
