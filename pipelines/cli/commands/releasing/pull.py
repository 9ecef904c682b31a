"""`pull`: copy a release from an OCI registry."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("pull")
@click.argument("reference", metavar="HOST/NAME:TAG")
@repository_option
@output_options("quiet", "json")
def command(reference: str, *, repository: Root, output: Output) -> int:
    """Copy a release from an OCI registry into a repository, under the version that it has. No alias moves.

    Digests are checked before anything is published. A version that is there already, with other files, stays.
    HOST/NAME@sha256:DIGEST names the artifact that push printed. The login is that of docker login.

    \b
    Example:
      convert-and-validate pull registry.example/team/scores:3
    """
    import platform

    from paritygate.machine import user_name
    from paritygate.pipelines.release.oci.pull import pull
    from paritygate.pipelines.release.oci.reference import parse_reference
    from paritygate.pipelines.release.repository.commands import command_on
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.screen import command_lines, wrapped

    place = parse_reference(reference)
    with output.progress(f"pull {place}") as progress:
        pulled = pull(repository, place, progress, who=user_name(), host=platform.node())
    done = "pulled" if pulled.is_new else "there already"
    print_lines(wrapped(f"{pulled.model} version {pulled.version}: {done}: {pulled.reference}"), err=output.to_stderr)
    if not output.is_quiet:
        verify = command_on(repository, "verify", pulled.model, str(pulled.version))
        print_lines(command_lines(f"next: {verify}"), err=output.to_stderr)
    output.write(pulled)
    return 0
