"""Past runs in the terminal, and their removal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from paritygate.pipelines.past_runs.cleaning import CleaningPlan
from paritygate.pipelines.past_runs.listing import ListedRun
from paritygate.pipelines.past_runs.releases import ReleaseOfRun
from paritygate.pipelines.report.figures import size_words
from paritygate.pipelines.report.tables.table import Cell, Table, status, table_of, text
from paritygate.pipelines.report.terminal.screen import screen_table, wrapped
from paritygate.text import counted, from_here

_WHEN = "%Y-%m-%d %H:%M"
# Names of kept files, of which there may be many.
_NAMED = 5
# Characters that fit next to the other columns.
_MOST_RELEASED = 10
_COLUMNS = ("verdict", "run", "begun (UTC)", "released", ">size")


def runs_lines(listed: Sequence[ListedRun], root: Path, cache: Path | None, cache_bytes: int) -> list[str]:
    """Return the runs (the newest first) as lines, a table per model; `cache` is None where it is off."""
    lines: list[str] = []
    for model in dict.fromkeys(item.run.model for item in listed):
        runs = [item for item in listed if item.run.model == model]
        lines += [*screen_table(_table(model, runs)), *_unknown(runs), ""]
    if not listed:
        lines += wrapped(f"no run exists below {from_here(root / 'runs')}")
    if cache is not None and cache_bytes:
        lines += wrapped(f"stage cache: {size_words(cache_bytes)} in {from_here(cache)}")
    if not listed:
        lines += wrapped("next: convert-and-validate run SPEC")
    return lines[:-1] if lines[-1:] == [""] else lines


def _table(model: str, runs: Sequence[ListedRun]) -> Table:
    total = size_words(sum(item.size_bytes for item in runs))
    return table_of(
        f"{model}: {counted(len(runs), 'run')}, {total}",
        _COLUMNS,
        (
            (
                status(_verdict(item), remark=item.problem),
                item.run.run_id,
                item.run.begun.strftime(_WHEN),
                _released(item.releases),
                size_words(item.size_bytes),
            )
            for item in runs
        ),
    )


def _verdict(item: ListedRun) -> str:
    return item.verdict if item.exit_code is None else f"{item.verdict} ({item.exit_code})"


def _released(releases: Sequence[ReleaseOfRun]) -> Cell | str:
    if not releases:
        return "-"
    newest = max(releases, key=lambda item: item.version)
    more = f" +{len(releases) - 1}" if len(releases) > 1 else ""
    version = f"{newest.version}{more}"
    aliases = ", ".join(dict.fromkeys(alias for item in releases for alias in item.aliases))
    words = f"{version} ({aliases})" if aliases else version
    return words if len(words) <= _MOST_RELEASED else text(version, remark=aliases)


def _unknown(runs: Sequence[ListedRun]) -> Iterator[str]:
    reasons = dict.fromkeys(item.unknown_releases for item in runs if item.unknown_releases)
    for reason in reasons:
        yield from wrapped(f"note: the releases are unknown: {reason}")


def plan_lines(plan: CleaningPlan, *, is_done: bool) -> list[str]:
    """Return lines about what is, or was, removed, and about old runs that stay."""
    lines: list[str] = []
    for item in plan.kept:
        lines += wrapped(f"stays: {item.run.run.model}/{item.run.run.run_id}: {item.why}")
    verb = "removed" if is_done else "would remove"
    for run in plan.runs:
        words = f"{_verdict(run)}, {size_words(run.size_bytes)}"
        lines += wrapped(f"{verb}: {run.run.model}/{run.run.run_id}: {words}")
    lines += _evidence_lines(plan, is_done=is_done)
    for folder, size in plan.sizes.items():
        what = "the stage cache" if folder == plan.cache else "left over of an earlier call:"
        lines += wrapped(f"{verb}: {what} {from_here(folder)} ({size_words(size)})")
    if plan.beside_cache:
        names = ", ".join(plan.beside_cache[:_NAMED]) + (" ..." if len(plan.beside_cache) > _NAMED else "")
        lines += wrapped(f"stays: the folder of the stage cache, because it holds {names}")
    if plan.is_empty:
        return [*lines, "there is nothing to remove"]
    freed = size_words(plan.freed_bytes)
    return [*lines, f"{'freed' if is_done else 'would free'}: {freed}"]


def _evidence_lines(plan: CleaningPlan, *, is_done: bool) -> Iterator[str]:
    paths = sorted(plan.evidence.values())
    if paths:
        what, places = ("stays" if is_done else "would stay"), ", ".join(from_here(path) for path in paths)
        yield from wrapped(
            f"{what}: the evidence of what failed, since a later spec may not check less of the same source without a "
            f"reason: {places}"
        )
