"""What earlier evidence about the same source failed, and whether a run asks less of it: a gate is not talked round.

Earlier evidence is that of the other runs below the same root, and that which a new validation of a run replaces, of
every device. A failure stays in evidence with what was asked then: to ask less again needs a reason again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.run.evidence import Asked, EarlierFailure, Evidence, read_evidence
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.gate.rules import EdgeRule
from paritygate.validate.probes.catalogue import in_order

__all__ = ["check_reason", "earlier_failures", "holds_failures"]

_CHECKS_NAMED = 5


def _held_against(failure: EarlierFailure, job: ComparisonJob | None) -> EarlierFailure:
    """Return the failure with what a comparison that is about to be made asks less; None for no comparison."""
    if job is None:
        return replace(failure, asked_less=())
    return failure if failure.asked is None else replace(failure, asked_less=tuple(_asked_less(failure.asked, job)))


def earlier_failures(run: RunFolder, source: str | None, jobs: Mapping[str, ComparisonJob]) -> list[EarlierFailure]:
    """Return what failed earlier and is replaced by what the run now measures, or held to less by it.

    Args:
        run: The run, about to be validated.
        source: Digest of the source that answered; None where it has none: then nothing is known to be the same.
        jobs: The comparison that is about to be made of each variant.
    """
    found: dict[tuple[object, ...], EarlierFailure] = {}
    for path in _evidence_files(run):
        is_own = path == run.evidence_file
        for at, document in enumerate(_documents(path)):
            if source is None or document.reference.model.get("digest") != source:
                continue
            # What was found on other devices stays evidence.
            is_replaced = is_own and at == 0
            for failure in (*document.earlier_failures, *_failures_in(document)):
                item = _held_against(failure, jobs.get(failure.variant))
                if item.asked_less or is_replaced:
                    found[item.run, item.variant, item.failed] = item
    return list(found.values())


def holds_failures(evidence: Path) -> bool:
    """Return whether evidence says of anything that it failed: later runs of the same source are held to it."""
    return any(document.earlier_failures or any(_failures_in(document)) for document in _documents(evidence))


def check_reason(run: RunFolder, failures: Iterable[EarlierFailure]) -> None:
    """Check that a spec which asks less than what failed earlier says why.

    Raises:
        UsageError: It does not.
    """
    weaker = [item for item in failures if item.asked_less]
    if not weaker or run.resolved.spec.reason:
        return
    first = weaker[0]
    more = f" (and of {len(weaker) - 1} more that failed)" if len(weaker) > 1 else ""
    msg = (
        f"spec {run.resolved.origin} asks less of {first.variant} than run {first.run} of the same source did, which "
        f"failed{more}: {'; '.join(first.asked_less)}. It failed: {first.failed[0]}"
    )
    hint = "ask as much again, or say in the spec why less is enough, as a key of its own: reason: TEXT"
    raise UsageError(msg, hint=hint)


def _evidence_files(run: RunFolder) -> Iterator[Path]:
    """Yield the evidence of the other runs below the same root, the newest last, then what the run itself had."""
    runs = run.folder.parent.parent
    # Where a run was unpacked or copied to a place of its own, its neighbours are not ours to look at.
    if runs.name == "runs" and run.folder.parent.name == run.resolved.name:
        yield from (path for path in sorted(runs.glob("*/*/evidence.json")) if path.parent != run.folder)
    yield run.evidence_file


def _documents(path: Path) -> Iterator[Evidence]:
    """Yield the evidence in a file, the last validation first; what cannot be read shows nothing that failed."""
    try:
        yield from read_evidence(path).documents() if path.is_file() else ()
    except (OSError, InputFileError):
        return


def _failures_in(document: Evidence) -> Iterator[EarlierFailure]:
    for entry in document.variants:
        if entry.verdict == "fail" and entry.result is not None:
            yield EarlierFailure(
                run=document.run,
                variant=entry.variant,
                failed=tuple(_failed(entry.result)),
                asked_less=(),
                asked=Asked(
                    probes=in_order({*entry.result.probes.asked, *entry.result.probes.not_recorded}),
                    edge=entry.result.probes.edge,
                    tolerance=entry.result.tolerance,
                    decisions=tuple(entry.result.decisions),
                    min_cosine_similarity=_asked_cosines(entry.result),
                    valid_where=tuple(
                        check.output for check in entry.result.checks if check.name == "valid_where" and check.output
                    ),
                ),
            )


def _failed(result: ComparisonResult) -> Iterator[str]:
    lines = [
        f"{check.name}{f'[{check.output}]' if check.output else ''}: {check.detail}"
        for check in result.checks
        if check.status == "fail"
    ]
    yield from lines[:_CHECKS_NAMED] or ["the evidence does not say which check"]
    if len(lines) > _CHECKS_NAMED:
        yield f"and {len(lines) - _CHECKS_NAMED} more checks"


def _asked_less(asked: Asked, job: ComparisonJob) -> Iterator[str]:
    """Yield what the job asks less than was asked then, in words."""
    probes = set(asked.probes) - set(job.rules.probes)
    if probes:
        yield f"without the probes {', '.join(in_order(probes))}"
    edges = [str(EdgeRule.OFF), str(EdgeRule.WARN), str(EdgeRule.FAIL)]
    if edges.index(asked.edge) > edges.index(str(job.rules.edge)):
        yield f"edge: {job.rules.edge}, and it was {asked.edge}"
    yield from _loosened(asked.tolerance, job)
    decided = {decision.output for decision in job.rules.decisions}
    for output in asked.decisions:
        if output not in decided:
            yield f"no decision on {output}"
    for output, mask in job.rules.valid_where.items():
        if output not in asked.valid_where:
            yield f"{output} is compared only where {mask} is set"
    for output, least in asked.min_cosine_similarity.items():
        now = job.rules.min_cosine_similarity.get(output)
        if now is None:
            yield f"no min_cosine_similarity is asked of {output}, and {least:g} was"
        elif now < least:
            yield f"min_cosine_similarity of {output} is {now:g}, and was {least:g}"


def _asked_cosines(result: ComparisonResult) -> dict[str, float]:
    checks = (check for check in result.checks if check.name == "min_cosine_similarity")
    return {check.output: check.limit for check in checks if check.output is not None and check.limit is not None}


def _loosened(then: Mapping[str, Any], job: ComparisonJob) -> Iterator[str]:
    """Yield the limits that were declared then, and are higher now or no longer declared.

    A limit that is declared for the first time is the service's own word on what it bears, and recorded as such.
    """
    now = to_data(job.rules.tolerance)
    for name in then.get("declared", ()):
        if name not in now["declared"]:
            yield f"{name} is no longer declared, and was {then[name]:g}"
        elif now[name] > then[name]:
            yield f"{name} is {now[name]:g}, and was {then[name]:g}"
