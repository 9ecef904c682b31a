"""`promote`: release a validated run."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import WrittenRepositoryPlace
from paritygate.roots import Root


@click.command("promote")
@shared.run_option
@click.option(
    "--repository",
    "--to",
    "repository",
    type=WrittenRepositoryPlace(),
    metavar="DIR|URL",
    help="Release into this repository instead of the spec's: a folder, or an address such as s3://bucket/prefix.",
)
@click.option("--alias", help="Move this alias instead of the spec's.")
@click.option(
    "--for",
    "devices",
    multiple=True,
    metavar="DEVICE",
    help="The device that the release will run on, such as cpu. Only variants verified on it are released. Repeatable.",
)
@click.option(
    "--despite",
    metavar="REASON",
    default="",
    help="Release although a required variant did not pass; the release records the reason.",
)
@click.option(
    "--trust",
    metavar="DIGEST",
    default="",
    help="Trust the evidence of the pack with this digest, which pack printed. The release records it.",
)
@shared.sign_option
@shared.if_current_option
@shared.constraint_option
@shared.root_option
@output_options()
def command(
    *,
    run_folder: Path | None,
    repository: Root | None,
    alias: str | None,
    devices: tuple[str, ...],
    if_current: int | None,
    despite: str,
    trust: str,
    sign: Path | None,
    constraints: tuple[str, ...],
    root: Path,
    output: Output,
) -> int:
    """Release the variants of a run that passed within the limits.

    If none passed, the source is released where the spec allows it. The spec's promote.prefer decides which variants;
    the command choose shows them first. A run in which a required variant did not pass needs --despite. Evidence that
    came with a pack needs --trust.

    Views that follow the alias are written again (docs/triton.md), and the spec's promote.after is run. If one of them
    fails, the exit code shows it, and the release stays.

    \b
    Example:
      convert-and-validate promote \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --alias prod
      convert-and-validate promote \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --constraint size_mb=50
      convert-and-validate promote \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --for cpu --for cuda:sm90
    """
    from paritygate.pipelines.cli.moving import move_and_follow
    from paritygate.pipelines.cli.signing import signing_key
    from paritygate.pipelines.release.after_command import run_after_command
    from paritygate.pipelines.release.promote import promote_stage
    from paritygate.pipelines.release.repository.commit import Commit
    from paritygate.pipelines.release.repository.release import StoredRelease
    from paritygate.pipelines.release.repository_of_run import promote_command, repository_of
    from paritygate.pipelines.report.terminal.release import print_next_of_release, print_release
    from paritygate.pipelines.spec.limits import parse_constraints

    limits = parse_constraints(constraints)
    signer = signing_key(sign)
    run = shared.open_given_run(run_folder, "run or validate")
    place = repository or repository_of(run, root)

    def work(commit: Commit[StoredRelease]) -> StoredRelease:
        return promote_stage(
            run,
            repository=place,
            alias=alias or run.resolved.spec.promote.alias,
            devices=devices or None,
            limits=limits,
            if_current=if_current,
            despite=despite.strip(),
            trust=trust.strip(),
            signer=signer,
            commit=commit,
        )

    return move_and_follow(
        place,
        work,
        show=lambda release: print_release(release, place, output),
        show_last=lambda release: print_next_of_release(release, place, output),
        follow=lambda release: run_after_command(run, place, release),
        again=promote_command(run, place, *(("--alias", alias) if alias else ())),
        output=output,
    )
