"""`deploy`: write manifests of Kubernetes or KServe for a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import WrittenPath
from paritygate.roots import Root


@click.command("deploy")
@click.argument("release", metavar="MODEL@ALIAS")
@click.option("--for", "target", required=True, type=click.Choice(["kubernetes", "kserve"]), help="Kind of cluster.")
@click.option(
    "--server",
    default="triton",
    show_default=True,
    type=click.Choice(["triton", "tensorflow-serving"]),
    help="The server that answers requests.",
)
@click.option("--image", required=True, help="The server's image, with a tag or a digest.")
@click.option("--init-image", required=True, help="An image with paritygate, which verifies the release.")
@click.option(
    "--out",
    required=True,
    type=WrittenPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder for NAME.kubernetes.yaml or NAME.kserve.yaml.",
)
@click.option("--name", help="The name of the service; MODEL if not given.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(min=1), help="The number of pods.")
@click.option("--volume-claim", "claim", metavar="NAME", help="The claim of a volume that holds the repository.")
@click.option("--secret", metavar="NAME", help="A secret with the variables that the object store needs.")
@repository_option
@output_options("quiet", "json")
def command(
    release: str,
    *,
    out: Path,
    name: str | None,
    repository: Root,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Write manifests with which a cluster verifies a release, and then serves it.

    The pod names the version and the digest of its manifest, not the alias. An init container verifies the release,
    and another one writes its files for the server. Memory and processors come from the benchmark of the release.
    Every file of the release is verified here as well.

    \b
    Example:
      convert-and-validate deploy scores@prod --for kubernetes --out manifests \\
        --image nvcr.io/nvidia/tritonserver:25.10-py3 \\
        --init-image team/paritygate:0.3.0 --volume-claim releases
      convert-and-validate deploy scores@3 --for kserve --out manifests \\
        --image nvcr.io/nvidia/tritonserver:25.10-py3 \\
        --init-image team/paritygate:0.3.0 \\
        --repository s3://models/releases --secret models-read
    """
    from paritygate.pipelines.release.compared import parse_release
    from paritygate.pipelines.release.deploy import deploy
    from paritygate.pipelines.report.terminal.serving.views import print_deployed
    from paritygate.pipelines.serving.manifests import PodRequest

    named = parse_release(release)
    deployed = deploy(repository, named, PodRequest(name=name or named[0], **options), out)
    print_deployed(deployed, is_quiet=output.is_quiet, to_stderr=output.to_stderr)
    output.write(deployed)
    return 0
