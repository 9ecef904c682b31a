"""`tfserving`: write a release for TensorFlow Serving."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli.view_options import base_path_option, view_options, write_view


@click.command("tfserving")
@view_options(
    "The folder of all models of the server. The command writes DIR/NAME/VERSION/, DIR/models.config, which the "
    "server is started with, and DIR/batching-NAME.config."
)
@base_path_option
def command(**options: Any) -> int:  # noqa: ANN401 - the values of the options
    """Write a release of MODEL, by default the one at prod, into a TensorFlow Serving model folder.

    Every file of the release is verified first. The folder of the version is written before the list of models that
    names it, so a polling server sees the new version at once. When promote, run, rollback or alias moves the alias,
    they write the view again, unless --no-follow was given.

    \b
    Example:
      convert-and-validate tfserving klue-sts-tf --out models-tfserving
      convert-and-validate tfserving klue-sts-tf canary \\
        --out models-tfserving --base-path /models
    """
    return write_view("tfserving", **options)
