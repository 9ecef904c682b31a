"""`push`: copy a release to an OCI registry."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("push")
@click.argument("release", metavar="MODEL@ALIAS")
@click.argument("reference", metavar="HOST/NAME[:TAG]")
@repository_option
@output_options("quiet", "json")
def command(release: str, reference: str, *, repository: Root, output: Output) -> int:
    """Copy a release to an OCI registry, after its files are verified. The default TAG is the version.

    The artifact has all files of the release. Evidence, signature and bill of materials refer to it. Its status is
    validated only if the run and every variant passed. A TAG that is a version never moves; others do.
    The login is that of docker login.

    \b
    Example:
      convert-and-validate push scores@prod registry.example/team/scores
      convert-and-validate push scores@3 registry.example/team/scores:prod
    """
    from paritygate.errors import UsageError
    from paritygate.pipelines.release.compared import parse_release
    from paritygate.pipelines.release.oci.push import push
    from paritygate.pipelines.release.oci.reference import parse_reference
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.screen import wrapped

    model, which, variant = parse_release(release)
    if variant is not None:
        raise UsageError(f"{release} is a variant (expected the whole release)", hint=f"write {model}@{which}")
    place = parse_reference(reference)
    with output.progress(f"push {model}") as progress:
        pushed = push(repository, model, which, place, progress)
    done = "pushed" if pushed.uploaded else "tagged, its files were there" if pushed.is_new else "there already"
    status = "validated" if pushed.is_validated else "none, because not every variant passed in its own runtime"
    end = f"status of the release: {status}" if pushed.is_new else "pull checks its files"
    line = f"{model} version {pushed.version}, tag {pushed.tag}: {done}: {pushed.reference}, {end}"
    print_lines(wrapped(line), err=output.to_stderr)
    output.write(pushed)
    return 0
