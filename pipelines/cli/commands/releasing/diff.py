"""`diff`: two releases side by side."""

from __future__ import annotations

import shlex

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root

_TWO, _MODEL_AND_TWO = 2, 3


@click.command("diff")
@click.argument("releases", nargs=-1, required=True, metavar="MODEL@RELEASE [MODEL@]RELEASE")
@repository_option
@output_options("verbose", "json")
def command(releases: tuple[str, ...], *, repository: Root, output: Output) -> int:
    """Compare two releases: variants, inputs and outputs, rules, measured differences, speed and size.

    A release is MODEL@VERSION or MODEL@ALIAS; the second may leave out the model. MODEL RELEASE RELEASE works too. The
    exit code is 1 if inputs or outputs changed. With -v, unchanged facts are printed too.

    \b
    Example:
      convert-and-validate diff klue-sts@1 klue-sts@2
      convert-and-validate diff klue-sts prod canary
    """
    from paritygate.pipelines.release.diff import diff_releases
    from paritygate.pipelines.release.repository.inspect import show
    from paritygate.pipelines.report.terminal.release_diff import print_diff

    was, now = (show(repository, model, which) for model, which in _two_releases(releases))
    difference = diff_releases(was, now)
    print_diff(difference, output)
    output.write(difference)
    return difference.exit_code


def _two_releases(words: tuple[str, ...]) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return model and release of both sides; raise UsageError if the words name no two releases."""
    from paritygate.errors import UsageError

    if len(words) == _MODEL_AND_TWO and not any("@" in word for word in words):
        model, one, other = words
        return (model, one), (model, other)
    model, at, which = words[0].partition("@")
    if len(words) != _TWO or not (model and at and which):
        msg = f"diff compares two releases of a model (got {' '.join(words)})"
        if len(words) == _TWO and all(word.endswith(".onnx") for word in words):
            command = shlex.join(["convert-and-validate", "graph-diff", *words])
            raise UsageError(msg, hint=f"compare two files with: {command} --samples FILE")
        if not at and model.isdecimal():
            model, words = "MODEL", ("", *words)
        model, given = model or "MODEL", [word for word in (which, *words[1:]) if word][:_TWO]
        command = " ".join(["convert-and-validate diff", model, *given, *["VERSION"] * (_TWO - len(given))])
        raise UsageError(msg, hint=f"write both: {command}")
    now_model, at, now_which = words[1].rpartition("@")
    return (model, which), (now_model if at else model, now_which)
