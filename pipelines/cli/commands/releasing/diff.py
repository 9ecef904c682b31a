"""`diff`: two releases side by side."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import json_option, repository_option, verbose_option
from paritygate.roots import Root


@click.command("diff")
@click.argument("one", metavar="MODEL@RELEASE")
@click.argument("other", metavar="[MODEL@]RELEASE")
@repository_option
@verbose_option
@json_option
def command(one: str, other: str, *, repository: Root, verbose: bool, json_target: str | None) -> int:
    """Compare two releases: variants, inputs and outputs, tolerances, measured differences, speed and size.

    A release is MODEL@VERSION or MODEL@ALIAS; the second may leave out the model. The exit code is 1 if inputs or
    outputs changed. With -v, unchanged facts are printed too.

    \b
    Example:
      convert-and-validate diff klue-sts@1 klue-sts@2
      convert-and-validate diff klue-sts@prod canary
    """
    from paritygate.codec import to_data
    from paritygate.errors import UsageError
    from paritygate.pipelines.cli.console import write_json
    from paritygate.pipelines.release.diff import diff_releases
    from paritygate.pipelines.release.repository.inspect import show
    from paritygate.pipelines.report.terminal.printing import Shown
    from paritygate.pipelines.report.terminal.release_diff import print_diff

    model, at, which = one.partition("@")
    if not (model and at and which):
        msg = f"{one!r} is no release"
        raise UsageError(msg, hint="write MODEL@VERSION or MODEL@ALIAS, such as klue-sts@1")
    now_model, at, now_which = other.rpartition("@")
    was, now = show(repository, model, which), show(repository, now_model if at else model, now_which)
    difference = diff_releases(was, now)
    print_diff(difference, Shown.of(quiet=False, verbose=verbose, json_target=json_target))
    write_json(json_target, to_data(difference))
    return difference.exit_code
