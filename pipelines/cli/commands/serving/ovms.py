"""`ovms`: write a release for OpenVINO Model Server."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.view_options import base_path_option, view_options, write_view


@click.command("ovms")
@view_options(
    "The folder of all models of the server. The command writes DIR/NAME/VERSION/ and DIR/config.json, which the "
    "server is started with."
)
@base_path_option
def command(**options: Any) -> int:  # noqa: ANN401 - the values of the options
    """Write a release of MODEL, by default the one at prod, into an OpenVINO Model Server folder.

    The OpenVINO variant is taken, or else the ONNX variant. Every file of the release is verified first. The list of
    models pins the precision that the release was verified in. When promote, run, rollback or alias moves the alias,
    they write the view again, unless --no-follow was given.

    \b
    Example:
      convert-and-validate ovms klue-sts --out models-ovms
      convert-and-validate ovms klue-sts canary \\
        --out models-ovms --name klue-sts-canary --base-path /models
    """
    return write_view("ovms", **options)
