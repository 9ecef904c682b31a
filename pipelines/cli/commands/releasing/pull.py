"""`pull`: copy a release from an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import LocalPath, json_option, quiet_option, repository_option
from paritygate.roots import Root


@click.command("pull")
@click.argument("reference", metavar="HOST/NAME:TAG")
@click.option(
    "--key",
    type=LocalPath(path_type=Path),
    metavar="PUB",
    help="Require that the release is signed by this public key, a PEM file.",
)
@repository_option
@quiet_option
@json_option
def command(reference: str, *, key: Path | None, repository: Root, quiet: bool, json_target: str | None) -> int:
    """Copy a release from an OCI registry into a repository, under the version that it has. No alias moves.

    Digests are checked before anything is published. A version that is there already, with other files, stays.
    HOST/NAME@sha256:DIGEST names the artifact that push printed. The login is that of docker login.

    \b
    Example:
      convert-and-validate pull registry.example/team/scores:3 --key key.pub
      convert-and-validate verify scores 3 --key key.pub
    """
    import platform

    from paritygate.codec import to_data
    from paritygate.machine import user_name
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.release.oci.pull import pull
    from paritygate.pipelines.release.oci.reference import parse_reference
    from paritygate.pipelines.release.repository.aliases import Note
    from paritygate.pipelines.release.signing.keys import read_verifying_key
    from paritygate.pipelines.report.terminal.registry import print_pulled

    place, verifying_key = parse_reference(reference), None if key is None else read_verifying_key(key)
    note = Note(who=user_name(), host=platform.node())
    with progress_of(f"pull {place}", is_quiet=quiet) as progress:
        pulled = pull(repository, place, progress, note=note, key=verifying_key)
    print_pulled(pulled, repository, is_quiet=quiet, to_stderr=json_target == "-")
    write_json(json_target, {"schema_version": 1, **to_data(pulled)})
    return 0
