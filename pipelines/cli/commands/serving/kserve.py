"""`kserve`: write a release for KServe's Triton."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.view_options import view_options, warm_up_option, write_view


@click.command("kserve")
@view_options(
    "A folder on this machine. The command writes DIR/NAME/inferenceservice.yaml, which kubectl applies, and "
    "DIR/NAME/VERSION/, which is yours to copy to where --storage-uri says."
)
@click.option(
    "--storage-uri",
    metavar="URI",
    help="The cluster's address of DIR, such as pvc://CLAIM/PATH, pvc://CLAIM/ for the whole volume of the "
    "claim, or s3://BUCKET/PATH.  [required]",
)
@click.option(
    "--server",
    metavar="YY.MM",
    help="The release of Triton that KServe is to run, such as 25.10: refuse an ONNX file that is too new for it.  "
    "[required]",
)
@warm_up_option
def command(**options: Any) -> int:  # noqa: ANN401 - the values of the options
    """Write a release of MODEL, by default the one at prod, as a KServe InferenceService on Triton.

    Before anything is written, every file of the release is verified, and the configuration is checked against the
    known rules of Triton. Each version has its own folder, which you copy to --storage-uri. The service that names
    it is written last. When promote, run, rollback or alias moves the alias, they write the view again, unless
    --no-follow was given.

    \b
    Example:
      convert-and-validate kserve klue-sts --out models-kserve \\
        --storage-uri pvc://team-claim/models --server 25.10
      convert-and-validate kserve klue-sts canary --out models-kserve \\
        --name klue-sts-canary --storage-uri s3://team/models --server 25.10
    """
    return write_view("kserve", **options)
