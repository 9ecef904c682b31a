"""`verify`: check a release byte for byte."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import json_option, repository_option
from paritygate.roots import Root


@click.command("verify")
@click.argument("model")
@click.argument("which", required=False, metavar="[VERSION|ALIAS]")
@repository_option
@json_option
def command(model: str, which: str | None, *, repository: Root, json_target: str | None) -> int:
    """Check every file of a release of MODEL against its manifest. The exit code is 0 if all match, else 5.

    \b
    Example:
      convert-and-validate verify klue-sts prod
    """
    from paritygate.errors import ExitCode
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.release.repository.inspect import verify_release
    from paritygate.pipelines.report.terminal.release import print_verification

    with progress_of(f"verify {model}") as progress:
        verification = verify_release(repository, model, which, progress)
    print_verification(verification, to_stderr=json_target == "-")
    write_json(json_target, {"schema_version": 1, **verification.to_json()})
    return int(ExitCode.PASS if verification.is_intact else ExitCode.NOT_MEASURED)
