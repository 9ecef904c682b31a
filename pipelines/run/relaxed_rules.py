"""Find what failed earlier of the same source, and refuse a spec that asks less since then without a reason.

Earlier evidence is that of other runs below the same root, and of this run before a new validation, of every device.
A failure stays in evidence with the rules of that time, so asking less again needs a reason again. Limits that the
variant had passed by before it failed need no reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.files import listed
from paritygate.models.digest import digest_of_model
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.rules.strictness import relaxed_checks, relaxed_limits
from paritygate.pipelines.run.evidence import EarlierFailure, Evidence, EvidenceEntry, read_evidence
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.pipelines.spec.errors import flow_yaml
from paritygate.precision import Variant
from paritygate.text import from_here
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.words.sentence import Words, render, say

_CHECKS_NAMED = 5
_RUNS_NAMED = 2
_EVIDENCE = "evidence.json"
# The verdict of a failed variant, and a field of each failure that evidence hands on.
_WORDS_OF_FAILURES = (b'"fail"', b'"asked_less"')


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """A failure in evidence: of which source, in which file, and whether that is about to be replaced."""

    failure: EarlierFailure
    source: str | None
    path: Path
    is_replaced: bool


def relaxed_rules(run: RunFolder, source: str | None, rules: Mapping[str, GateRules]) -> list[EarlierFailure]:
    """Return earlier failures that this run, about to be validated, replaces or asks less of.

    `source` is the digest of the source that answered. Without one, nothing is known to be the same.
    """
    same_source = (item for item in _known(run, rules) if source is not None and item.source == source)
    failed = (item.failure for item in same_source if item.failure.asked_less or item.is_replaced)
    return list({(item.run, item.variant, item.failed): item for item in failed}.values())


def holds_failures(evidence: Path) -> bool:
    """Return whether evidence has any failure, so that later runs of the same source must ask as much."""
    return any(document.earlier_failures or any(_failures_in(document)) for document in _documents(evidence))


def check_asks_enough(run: RunFolder) -> None:
    """Check, before the run makes anything, that its spec does not ask less than what failed earlier, or has a reason.

    The digest of a source that is code is known only after it answered, so it is checked then.

    Raises:
        InputFileError: The source cannot be read.
        UsageError: The spec asks less without a reason.
    """
    rules = {str(variant): run.resolved.rules(variant) for variant in run.resolved.variants}
    # The digest of a large model takes a while.
    if run.resolved.spec.reason or not any(item.failure.asked_less for item in _known(run, rules)):
        return
    check_reason(run, relaxed_rules(run, digest_of_model(run.resolved.source), rules))


def check_reason(run: RunFolder, failures: Iterable[EarlierFailure]) -> None:
    """Raise a `UsageError` if a spec asks less than what failed earlier without a reason."""
    weaker = [item for item in failures if item.asked_less]
    if not weaker or run.resolved.spec.reason:
        return
    first = weaker[0]
    others = [f"run {item.run} of {item.variant}: {'; '.join(item.asked_less)}" for item in weaker[1:]]
    more = "".join(f". So did {other}" for other in others[:_RUNS_NAMED])
    more += f". So did {len(others) - _RUNS_NAMED} more" if len(others) > _RUNS_NAMED else ""
    rules = run.resolved.rules(Variant.parse(first.variant))
    by_default = {first.variant: replace(rules, tolerance=DEFAULT_TOLERANCES[rules.precision])}
    same_run = (item for item in _known(run, by_default) if item.failure.run == first.run)
    known = next((item for item in same_run if item.failure.variant == first.variant), None)
    evidence = "" if known is None else f". Its evidence: {from_here(known.path)}"
    if known is not None and not known.failure.asked_less:
        evidence += (
            ". An earlier run passed by default limits, so these need no reason. They excuse no declared limit, "
            "because each output has its own default"
        )
    msg = (
        f"spec {run.resolved.origin} checks less of {first.variant} than run {first.run} of the same source, "
        f"which failed: {'; '.join(first.asked_less)}. The failure: {first.failed[0]}{evidence}{more}"
    )
    limits = _declared_again(weaker, rules, first.variant)
    again = f": tolerance: {flow_yaml({first.variant: limits})}" if limits else ""
    raise UsageError(msg, hint=f"restore the earlier rules{again}, or give a reason for less in the spec: reason: TEXT")


def _declared_again(failures: Iterable[EarlierFailure], rules: GateRules, variant: str) -> dict[str, float]:
    """Return the strictest limits of all outputs that were declared for a variant and are looser now."""
    now, strictest = to_data(rules.tolerance), dict[str, float]()
    for failure in failures:
        is_known = failure.asked is not None and failure.variant == variant
        then: Mapping[str, Any] = (failure.asked or {}).get("tolerance", {}) if is_known else {}
        for name in then.get("declared", ()):
            limit = min(then[name], strictest.get(name, then[name]))
            if name not in now["declared"] or now[name] is None or now[name] > limit:
                strictest[name] = limit
    return strictest


def _known(run: RunFolder, rules: Mapping[str, GateRules]) -> Iterator[_Known]:
    """Yield all known failures, each with what the rules ask less; nothing of a variant without rules."""
    files = list(_evidence_files(run))
    # Without any failure, skip parsing: a root may have the evidence of hundreds of runs.
    if not any(map(_may_hold_failures, files)):
        return
    documents = [(path, at, document) for path in files for at, document in enumerate(_documents(path))]
    passed = [item for _, _, document in documents for item in _passed_in(document, rules)]
    for path, at, document in documents:
        source = document.reference.model.get("digest")
        # Evidence of other devices stays.
        is_replaced = path == run.evidence_file and at == 0
        for failure in (*document.earlier_failures, *_failures_in(document)):
            had_passed = any((source, failure.variant) == item[:2] and item[2] < _begun(failure.run) for item in passed)
            less = _less_than(failure, rules.get(failure.variant), had_passed=had_passed)
            yield _Known(failure=replace(failure, asked_less=less), source=source, path=path, is_replaced=is_replaced)


def _less_than(failure: EarlierFailure, rules: GateRules | None, *, had_passed: bool) -> tuple[str, ...]:
    if rules is None:
        return ()
    if failure.asked is None:
        return failure.asked_less
    limits = () if had_passed else relaxed_limits(failure.asked, rules)
    return (*relaxed_checks(failure.asked, rules), *limits)


def _passed_in(document: Evidence, rules: Mapping[str, GateRules]) -> Iterator[tuple[str | None, str, str]]:
    """Yield source, variant and time of what passed by limits at least as loose as now, without a reason."""
    excused = {item.variant for item in document.earlier_failures if item.asked_less}
    for entry in document.variants:
        now = None if entry.variant in excused else rules.get(entry.variant)
        if entry.verdict == "pass" and entry.result is not None and now is not None:
            then = _asked_in(entry, entry.result)
            if not any(relaxed_checks(then, now)) and not any(relaxed_limits(then, now, is_any=True)):
                yield document.reference.model.get("digest"), entry.variant, _begun(document.run)


def _begun(run: str) -> str:
    """Return when a run began, by its id; runs of the same second have no order."""
    return run.partition("-")[0]


def _evidence_files(run: RunFolder) -> Iterator[Path]:
    """Yield the evidence of the other runs below the same root, the newest last, then the run's own."""
    if run.beside is not None:
        # Other runs add and remove folders meanwhile.
        folders = sorted(folder for model in listed(run.beside) for folder in listed(model) if folder != run.folder)
        yield from (folder / _EVIDENCE for folder in folders if (folder / _EVIDENCE).exists())
    yield run.evidence_file


def _may_hold_failures(path: Path) -> bool:
    """Return whether the text has a word that all evidence with failures has."""
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return any(word in text for word in _WORDS_OF_FAILURES)


def _documents(path: Path) -> Iterator[Evidence]:
    """Yield the evidence in a file, the last validation first; nothing where it cannot be read."""
    try:
        yield from read_evidence(path).documents() if path.is_file() else ()
    except (OSError, InputFileError):
        return


def _failures_in(document: Evidence) -> Iterator[EarlierFailure]:
    for entry in document.variants:
        if entry.verdict == "fail" and entry.result is not None:
            words = tuple(_failed(entry.result))
            yield EarlierFailure(
                run=document.run,
                variant=entry.variant,
                failed=tuple(map(render, words)),
                failed_words=words,
                asked_less=(),
                asked=_asked_in(entry, entry.result),
            )


def _asked_in(entry: EvidenceEntry, result: ComparisonResult) -> Mapping[str, Any]:
    """Return the rules of an entry; evidence of earlier versions holds these in its result alone."""
    if entry.asked is not None:
        return entry.asked
    floors = [check for check in result.checks if check.name == "min_cosine_similarity"]
    return {
        "decisions": list(result.decisions),
        "tolerance": result.tolerance,
        "repeat": result.passes,
        "min_cosine_similarity": {item.output: item.limit for item in floors if item.output and item.limit is not None},
        "valid_where": [check.output for check in result.checks if check.name == "valid_where" and check.output],
        "probes": list(in_order({*result.probes.asked, *result.probes.not_recorded})),
        "edge": result.probes.edge,
    }


def _failed(result: ComparisonResult) -> Iterator[Words]:
    messages = [
        say("of_check", check=f"{check.name}{f'[{check.output}]' if check.output else ''}", difference=check.words)
        for check in result.checks
        if check.status == "fail"
    ]
    yield from messages[:_CHECKS_NAMED] or [say("earlier.unknown")]
    if len(messages) > _CHECKS_NAMED:
        yield say("earlier.more", count=len(messages) - _CHECKS_NAMED)
