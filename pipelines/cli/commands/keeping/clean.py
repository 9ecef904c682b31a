"""`clean`: remove old runs and the stage cache."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import releases_option, root_option
from paritygate.pipelines.cli.output import Output, output_options


@click.command("clean")
@click.argument("model", required=False)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="Remove all runs but the N newest ones of each model."
)
@click.option("--cache", "with_cache", is_flag=True, help="Remove the stage cache; the next run does everything again.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Remove it without asking.")
@root_option
@releases_option
@output_options("json")
def command(
    model: str | None,
    *,
    keep: int | None,
    with_cache: bool,
    is_dry: bool,
    is_sure: bool,
    root: Path,
    repositories: tuple[Path, ...],
    output: Output,
) -> int:
    """Remove the old runs of MODEL or of all models, and with --cache the cached results of stages.

    A run stays if it is in use, has a release or holds files of yours. Releases are looked up below --root, in the
    specs of the runs, in each --releases, and wherever the run was released. If one of these cannot be read, all runs
    of the model stay.
    The evidence of a failed variant stays, because later specs may not ask for less without a reason.

    Links are not followed, and other files in the cache folder stay.

    \b
    Example:
      convert-and-validate clean --keep 3 --dry-run
      convert-and-validate clean klue-sts --keep 1 --yes
      convert-and-validate clean --cache --yes
    """
    import sys

    from paritygate.errors import UsageError
    from paritygate.pipelines.past_runs.cleaning import CleaningPlan, plan_cleaning, remove, shown_and_still_planned
    from paritygate.pipelines.report.terminal.past_runs import plan_lines
    from paritygate.pipelines.report.terminal.printing import print_lines

    if keep is None and not with_cache:
        msg = "clean needs --keep N or --cache"
        raise UsageError(msg, hint="see the list", command="convert-and-validate clean --keep 3 --cache --dry-run")
    if keep is None and model is not None:
        msg = f"clean --cache takes no model, because all models share the stage cache (got {model!r})"
        raise UsageError(msg, hint="leave the model out, or give the number of its runs to keep: --keep N")

    def planned() -> CleaningPlan:
        return plan_cleaning(root, model=model, keep=keep, with_cache=with_cache, repositories=repositories)

    plan = planned()
    to_stderr = output.to_stderr
    is_asked = not (is_dry or is_sure or plan.is_empty)
    if is_dry or is_asked:
        print_lines(plan_lines(plan, is_done=False), err=to_stderr)
    if is_asked:
        if not sys.stdin.isatty():
            msg = "clean asks before it removes anything, but there is no terminal to ask on"
            raise UsageError(msg, hint="remove it without asking with --yes, or see the list with --dry-run")
        click.confirm("remove it?", abort=True, err=True)
        plan = shown_and_still_planned(plan, planned())
    if not is_dry:
        plan = remove(plan)
        print_lines(plan_lines(plan, is_done=True), err=to_stderr)
    output.write({"is_dry_run": is_dry, **plan.to_json()})
    return 0
