"""What earlier evidence about the same source failed, and whether a run asks less of it: a gate is not talked round.

Earlier evidence is that of the other runs below the same root, and that which a new validation of a run replaces, of
every device. A failure stays in evidence with what was asked then: to ask less again needs a reason again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.run.evidence_shape import read_evidence_file
from paritygate.pipelines.run.other_machines import OTHERS, is_evidence
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.probes.catalogue import in_order

__all__ = ["EARLIER_FAILURES", "EarlierFailure", "check_reason", "earlier_failures", "read_earlier_failures"]

EARLIER_FAILURES = "earlier_failures"
_CHECKS_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierFailure:
    """A variant of the same source that failed earlier, and is replaced now or held to less.

    Attributes:
        run: The run that it failed in.
        variant: The variant.
        failed: The checks that failed, in words.
        asked_less: What the run now asks less of the variant than was asked then, in words; empty for nothing.
        asked: What was asked then: `probes`, `tolerance`, the outputs with `decisions`, `min_cosine_similarity` and
            `valid_where`.
    """

    run: str
    variant: str
    failed: tuple[str, ...]
    asked_less: tuple[str, ...]
    asked: Mapping[str, Any] = field(default_factory=dict)

    def held_against(self, job: ComparisonJob | None) -> EarlierFailure:
        """Return the failure with what a comparison that is about to be made asks less; None for no comparison."""
        if job is None:
            return replace(self, asked_less=())
        return replace(self, asked_less=tuple(_asked_less(self.asked, job))) if self.asked else self


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
            if source is None or document["reference"]["model"].get("digest") != source:
                continue
            # What was found on other devices stays evidence.
            is_replaced = is_own and at == 0
            for failure in (*read_earlier_failures(document), *_failures_in(document)):
                item = failure.held_against(jobs.get(failure.variant))
                if item.asked_less or is_replaced:
                    found[item.run, item.variant, item.failed] = item
    return list(found.values())


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


def read_earlier_failures(document: Mapping[str, Any]) -> list[EarlierFailure]:
    """Return the earlier failures that evidence names."""
    return [from_data(EarlierFailure, item) for item in document.get(EARLIER_FAILURES, ())]


def _evidence_files(run: RunFolder) -> Iterator[Path]:
    """Yield the evidence of the other runs below the same root, the newest last, then what the run itself had."""
    runs = run.folder.parent.parent
    # Where a run was unpacked or copied to a place of its own, its neighbours are not ours to look at.
    if runs.name == "runs" and run.folder.parent.name == run.resolved.name:
        yield from (path for path in sorted(runs.glob("*/*/evidence.json")) if path.parent != run.folder)
    yield run.evidence_file


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the evidence in a file, the last validation first; what cannot be read shows nothing that failed."""
    try:
        document = read_evidence_file(path) if path.is_file() else None
    except (OSError, InputFileError):
        document = None
    if document is not None:
        yield from (document, *filter(is_evidence, document.get(OTHERS, ())))


def _failures_in(document: Mapping[str, Any]) -> Iterator[EarlierFailure]:
    for entry in document["variants"]:
        if entry["verdict"] == "fail":
            yield EarlierFailure(
                run=document["run"],
                variant=str(entry["variant"]),
                failed=tuple(_failed(entry)),
                asked_less=(),
                asked={
                    "probes": list(in_order(_asked_probes(entry))),
                    "tolerance": dict(entry.get("tolerance", {})),
                    "decisions": list(entry.get("decisions", {})),
                    "min_cosine_similarity": _asked_cosines(entry),
                    "valid_where": [
                        check["output"] for check in entry.get("checks", ()) if check["name"] == "valid_where"
                    ],
                },
            )


def _failed(entry: Mapping[str, Any]) -> Iterator[str]:
    lines = [
        f"{check['name']}{' [' + check['output'] + ']' if check['output'] else ''}: {check['detail']}"
        for check in entry.get("checks", ())
        if check["status"] == "fail"
    ]
    yield from lines[:_CHECKS_NAMED] or ["the evidence does not say which check"]
    if len(lines) > _CHECKS_NAMED:
        yield f"and {len(lines) - _CHECKS_NAMED} more checks"


def _asked_less(asked: Mapping[str, Any], job: ComparisonJob) -> Iterator[str]:
    """Yield what the job asks less than was asked then, in words."""
    probes = set(asked["probes"]) - set(job.rules.probes)
    if probes:
        yield f"without the probes {', '.join(in_order(probes))}"
    yield from _loosened(asked["tolerance"], job)
    decided = {decision.output for decision in job.rules.decisions}
    for output in asked["decisions"]:
        if output not in decided:
            yield f"no decision on {output}"
    for output, mask in job.rules.valid_where.items():
        if output not in asked.get("valid_where", ()):
            yield f"{output} is compared only where {mask} is set"
    for output, least in asked.get("min_cosine_similarity", {}).items():
        now = job.rules.min_cosine_similarity.get(output)
        if now is None:
            yield f"no min_cosine_similarity is asked of {output}, and {least:g} was"
        elif now < least:
            yield f"min_cosine_similarity of {output} is {now:g}, and was {least:g}"


def _asked_cosines(entry: Mapping[str, Any]) -> dict[str, float]:
    checks = (check for check in entry.get("checks", ()) if check["name"] == "min_cosine_similarity")
    return {check["output"]: check["limit"] for check in checks if None not in (check["output"], check["limit"])}


def _asked_probes(entry: Mapping[str, Any]) -> set[str]:
    probes = entry.get("probes", {})
    return {*probes.get("asked", ()), *probes.get("not_recorded", ())}


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
