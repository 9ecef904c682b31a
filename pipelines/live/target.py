"""Prepare the load of a server: its address, the release, and the right answer to each request."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TypeVar

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.machine import machine_facts
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.models.source import ModelRef
from paritygate.pipelines.compare.served_version import ReleaseNumber
from paritygate.pipelines.live.judge import check_judgeable
from paritygate.pipelines.live.loops import Sent
from paritygate.pipelines.live.processes import ProcessWatch, watch_of
from paritygate.pipelines.live.questions import questions_of, recorded
from paritygate.pipelines.live.result import LiveRequest, LiveResult, Served
from paritygate.pipelines.live.server import (
    check_host,
    check_mapping,
    connect,
    description_differences,
    served_names,
)
from paritygate.pipelines.live.traffic import Outcome, Tally, Traffic
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release.released_rules import rules_of, variant_of
from paritygate.pipelines.release.repository.inspect import check_release, show
from paritygate.precision import Variant
from paritygate.signature import Signature
from paritygate.text import counted
from paritygate.validate.gate.rules import GateRules

# The most requests that are sent one at a time, before the load and after stress.
_LOOKS = 64
# Each request to a server that hangs takes the whole time limit.
_MOST_LOST = 3
# Why nothing is known for sure.
_INTERRUPTED = "interrupted before the end of the load"
_Result = TypeVar("_Result", bound=LiveResult)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A server that may be loaded."""

    served: Served
    traffic: Traffic
    watch: ProcessWatch
    described_otherwise: tuple[str, ...]  # how its description differs from the release

    def look(self) -> Tally:
        """Send each different request once, one at a time, and return what came back.

        Raises:
            MeasurementError: The server does not answer the very first request.
            BackendError: It answers that with an error.
        """
        traffic = self.traffic
        count = min(_LOOKS, len(traffic.questions.inputs), traffic.left)
        first = traffic.sent
        # Of a model that is not there, nothing is measured.
        exchanges = [traffic.must_answer(first)] if count and not first else []
        while len(exchanges) < count and sum(each.outcome is Outcome.LOST for each in exchanges) < _MOST_LOST:
            exchanges.append(traffic.send(first + len(exchanges)))
        traffic.sent += len(exchanges)
        return traffic.tally([Sent(at=0.0, latency=0.0, answer=each) for each in exchanges])

    def version_notes(self) -> tuple[str, ...]:
        """Return a note where the server's answers name another version than that of the release."""
        served, versions = self.served, self.traffic.server.described.versions
        release = ReleaseNumber(model=served.model, version=str(served.version))
        name = parse_endpoint(served.url, is_mapped=True).model
        if len(versions) <= 1 and not any(release.differs(version, name) for version in versions):
            return ()
        return (f"the server answers as version {' and '.join(versions)}, and the release is version {served.version}",)


def check_time(seconds: float, most_s: float) -> None:
    """Raise UsageError for a load that takes longer than allowed."""
    if seconds > most_s:
        msg = f"the load takes {seconds:.0f} s (allowed: {most_s:.0f} s)"
        raise UsageError(msg, hint=f"allow it with --most-seconds {math.ceil(seconds)}, or send fewer requests")


def prepare(request: LiveRequest, command: str, *, callers: int, progress: Progress) -> Target:
    """Return the server with the right answer of the released file to each request.

    Raises:
        UsageError: The host may not be loaded, there is no such release or process, or its rules fit no single answer.
        MeasurementError: The server does not answer.
        BackendError: It answers with an error.
        ParitygateError: The released file fails on the samples.
    """
    endpoint = check_host(request.url, request.host, is_mapped=request.mapping is not None)
    details = show(request.repository, request.model, request.which)
    check_release(request.repository, details)
    variant = variant_of(details, request.variant)
    rules = rules_of(details, Variant.parse(variant))
    artifact = Artifact.read_record(details.local_folder() / variant)
    if request.reference is None:
        _check_fit(request, artifact.signature, rules, command)
    watch = watch_of(endpoint, request.pid)
    server = connect(endpoint, request.limits, request.mapping, callers=callers)
    described = server.described
    description = described.signature()
    samples = replace(request.samples, batch_size=max(request.rows, 1))
    model = artifact if request.reference is None else _limited(request.reference, request.limits)
    with recorded(model, rules, samples, time_limit_s=request.time_limit_s, progress=progress) as recording:
        released = recording.signature
        if request.reference is not None:
            rules = _rules_that_fit(rules, released)
            _check_fit(request, released, rules, command)
        served = served_names(description, released)
        compared = _compared(served, released, rules.ignored)
        questions = questions_of(recording, samples, served, rules, rows=request.rows)
    differences = description_differences(description, compared)
    return Target(
        served=Served(
            model=details.model,
            version=details.version,
            variant=variant,
            digest=artifact.digest,
            reference="" if request.reference is None else request.reference.name,
            url=request.url,
            server=described.server,
            server_version=described.version,
            transport=described.transport,
            machine=machine_facts(),
            measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ),
        traffic=Traffic(
            server=server,
            questions=questions,
            outputs=compared.outputs,
            run=f"{command}-{secrets.token_hex(4)}",
            most=int(request.limits.requests),
        ),
        watch=watch,
        described_otherwise=differences,
    )


def loaded(result: _Result, target: Target, run: Callable[[_Result], _Result]) -> _Result:
    """Return the result of a load that `run` makes, or why the server is not loaded."""
    begin = time.monotonic()
    differences = target.described_otherwise
    result = replace(result, described_otherwise=differences, not_watched=target.watch.why)
    if differences:
        return replace(result, reasons=("the server describes another model, so it was not loaded",))
    with target.watch.watching():
        result = run(result)
    notes = (*target.version_notes(), *result.notes)
    return replace(result, notes=notes, seconds=time.monotonic() - begin)


def _limited(reference: ModelRef, limits: EndpointLimits) -> ModelRef:
    """Return a reference whose servers have the limits of one answer; the others count requests of the load."""
    return replace(
        reference, endpoint_limits=EndpointLimits(timeout_s=limits.timeout_s, max_answer_mb=limits.max_answer_mb)
    )


def _check_fit(request: LiveRequest, signature: Signature, rules: GateRules, command: str) -> None:
    """Raise UsageError where the mapping or the rules do not fit the model whose answers are right."""
    compared = _compared(signature, signature, rules.ignored)
    check_mapping(request.mapping, compared)
    check_judgeable(rules, {spec.name: spec.dtype for spec in compared.outputs}, command)


def _rules_that_fit(rules: GateRules, signature: Signature) -> GateRules:
    """Return the rules of a release without those on outputs that another reference lacks."""
    names = {spec.name for spec in (*signature.inputs, *signature.outputs)}

    def of_its_own(pairs: Mapping[str, str]) -> dict[str, str]:
        return {one: other for one, other in pairs.items() if {one, other} <= names}

    return replace(
        rules,
        decisions=tuple(decision for decision in rules.decisions if decision.output in names),
        argmax_of=of_its_own(rules.argmax_of),
        valid_where=of_its_own(rules.valid_where),
    )


def _compared(served: Signature, released: Signature, ignored: Mapping[str, str]) -> Signature:
    """Return a signature under the names of a server, without outputs that the release ignores."""
    outputs = zip(served.outputs, released.outputs, strict=True)
    return replace(served, outputs=tuple(spec for spec, own in outputs if own.name not in ignored))


def judged(result: _Result, target: Target, tally: Tally, *, wrong: Sequence[str], unclear: Sequence[str]) -> _Result:
    """Return a result with the counts of a load, and the verdict by what is wrong or else unclear."""
    traffic = target.traffic
    unclear = [_INTERRUPTED] if traffic.is_interrupted else unclear
    counts = ("wrong", "unreadable", "flips", "errors", "lost", "statuses", "largest_share")
    return replace(
        result,
        verdict="fail" if wrong else "inconclusive" if unclear else "pass",
        reasons=tuple(wrong or unclear),
        is_interrupted=traffic.is_interrupted,
        requests=traffic.sent,
        answers=tally.answered,
        first_failure=tally.first,
        **{name: getattr(tally, name) for name in counts},
    )


def failures(tally: Tally, *, when: str = "", is_gone: bool = False, unsent: int = 0) -> list[str]:
    """Return why what came back is a fail; `is_gone` if the server stopped answering, so that it got no more."""
    found = []
    if tally.unreadable:
        found.append(f"{counted(tally.unreadable, 'answer')} that cannot be read{when}")
    if tally.wrong > tally.unreadable:
        found.append(f"{counted(tally.wrong - tally.unreadable, 'answer')} beyond the limits{when}")
    if tally.lost:
        found.append(f"{counted(tally.lost, 'request')} without an answer{when}")
    if tally.errors:
        causes = ", ".join(tally.statuses)
        found.append(f"{counted(tally.errors, 'request')} answered with an error ({causes}){when}")
    if is_gone:
        found.append("the server stopped answering, so it got no more")
    if unsent:
        found.append(f"{counted(unsent, 'request')} not sent")
    return found
