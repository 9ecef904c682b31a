"""`verify`: check a release byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import LocalPath
from paritygate.roots import Root


@click.command("verify")
@click.argument("model")
@click.argument("which", required=False, metavar="[VERSION|ALIAS]")
@click.option(
    "--key",
    type=LocalPath(path_type=Path),
    metavar="PUB",
    help="Require that the release is signed by this public key, a PEM file.",
)
@click.option(
    "--manifest",
    metavar="DIGEST",
    help="Require that manifest.json has this digest, as deploy writes it, whatever the log names.",
)
@click.option(
    "--enforce/--warn",
    "is_enforcing",
    default=True,
    show_default=True,
    help="Exit with 5 if the check fails, or only print the differences.",
)
@repository_option
@output_options("json")
def command(
    model: str,
    which: str | None,
    *,
    key: Path | None,
    manifest: str | None,
    is_enforcing: bool,
    repository: Root,
    output: Output,
) -> int:
    """Check every file of a release of MODEL against its manifest. The exit code is 0 if all match, else 5.

    \b
    Example:
      convert-and-validate verify klue-sts prod
      convert-and-validate verify klue-sts prod --key key.pub
    """
    from paritygate.errors import ExitCode, UsageError
    from paritygate.pipelines.release.repository.inspect import verify_release
    from paritygate.pipelines.release.signing.keys import read_verifying_key
    from paritygate.pipelines.report.terminal.release import print_verification

    if manifest is not None and re.fullmatch(r"sha256:[0-9a-f]{64}", manifest) is None:
        msg = f"--manifest is {manifest!r} (expected sha256: and 64 digits from 0 to f)"
        raise UsageError(msg, hint="copy the digest from the manifests that deploy wrote")
    verifying_key = None if key is None else read_verifying_key(key)
    with output.progress(f"verify {model}") as progress:
        verification = verify_release(repository, model, which, progress, key=verifying_key, manifest_digest=manifest)
    print_verification(verification, repository, to_stderr=output.to_stderr)
    output.write(verification.to_json())
    return int(ExitCode.PASS if verification.is_accepted or not is_enforcing else ExitCode.NOT_MEASURED)
