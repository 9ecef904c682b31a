"""Run `shadow`: let the released file answer captured requests, and judge the server's answers by its own."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.artifact import Artifact
from paritygate.codec import with_fields_of
from paritygate.errors import InputFileError, MeasurementError, UsageError
from paritygate.files import temporary_folder
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.compare.served_version import ReleaseNumber
from paritygate.pipelines.live.judge import Answered, AnswerJudge, check_judgeable
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release.released_rules import rules_of, variant_of
from paritygate.pipelines.release.repository.inspect import ReleaseDetails, check_release, show
from paritygate.pipelines.run.record import record_outputs
from paritygate.pipelines.shadow.capture import CapturedFile, Exchange
from paritygate.pipelines.shadow.drift import InputComparison, comparison_of
from paritygate.pipelines.shadow.result import ShadowResult
from paritygate.pipelines.shadow.sequential import SequentialTest, Verdict
from paritygate.precision import Variant
from paritygate.roots import Root
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.limits import limits_of
from paritygate.validate.measure.valid_positions import ValidWhere, only_valid, valid_positions
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from paritygate.validate.reference.recording import StoredBatch

DEFAULT_RATE = 0.0005
# From here on, twice the rate would say nothing.
_TOO_HIGH = 0.4
_REQUESTS = "paritygate.pipelines.shadow.capture:requests"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowRequest:
    """What is asked of `shadow`."""

    repository: Root
    model: str
    which: int | str  # a version, or an alias
    captured: Path
    variant: str | None = None  # None for the preferred one
    decisions: Sequence[str] = ()  # in place of the release's
    max_flip_rate: float = DEFAULT_RATE
    most: int | None = None  # requests to judge; None for all
    time_limit_s: float = 3600.0  # for the released file


def shadow(request: ShadowRequest, *, progress: Progress = lambda *_: None) -> ShadowResult:
    """Judge captured answers by those of the released file to the same requests.

    Raises:
        UsageError: There is no such release or variant, or its rules or a rate do not fit.
        InputFileError: The captured file cannot be read, or the release accepts none of its requests.
        InputFileError: It holds no request.
        MeasurementError: The answers may be those of another release.
        ParitygateError: The released file fails on a request.
    """
    details = show(request.repository, request.model, request.which)
    check_release(request.repository, details)
    variant = variant_of(details, request.variant)
    rules = rules_of(details, Variant.parse(variant), request.decisions)
    if not 0 < request.max_flip_rate < _TOO_HIGH:
        msg = f"--max-flip-rate {request.max_flip_rate:g} is not allowed (allowed: above 0 and below {_TOO_HIGH:g})"
        raise UsageError(msg, hint="write for example --max-flip-rate 0.0005, which is one answer of 2,000")
    artifact = Artifact.read_record(details.local_folder() / variant)
    check_judgeable(rules, {spec.name: spec.dtype for spec in artifact.signature.outputs}, "shadow")
    positions = valid_positions(rules.valid_where, [artifact.signature])
    test, strict = (SequentialTest(request.max_flip_rate) for _ in range(2))
    tally = _Tally(test=test, strict=strict, inputs=comparison_of(details))
    with temporary_folder("shadow") as folder:
        captured = _by_versions(_copied(request, artifact, folder), details, tally)
        tally.is_last_line_cut_off = captured.is_cut_off
        if not any(exchange.outputs is not None for exchange in captured.exchanges()):
            # A server that answers nothing is no reason to stop.
            for exchange in captured.exchanges():
                tally.add(exchange, None)
            _check_accepted(captured, tally)
            return _result(request, details, variant, tally)
        _check_names(captured, rules, artifact)
        # Two processes, because what differs between them is noise.
        first, again = (_recorded(artifact, captured, rules, folder / each, request, progress) for each in "12")
        judge = AnswerJudge(rules=rules, limits=limits_of(rules.tolerance, first.profiles.values()))
        progress("judging the answers", 0, first.rows)
        for exchange, answers in _pairs(captured, first, again):
            tally.add(exchange, None if answers is None else _judged(judge, exchange, answers, positions))
    return _result(request, details, variant, tally)


def _by_versions(captured: CapturedFile, details: ReleaseDetails, tally: _Tally) -> CapturedFile:
    """Return the file without the answers of other releases, as far as the numbers in the answers show them.

    A server that never reports the number of this release may number models freely, such as always 1. Its values show
    what it serves.
    """
    numbers = dict.fromkeys(str(record.version) for record in details.history if record.version is not None)
    release = ReleaseNumber(model=details.model, version=str(details.version), others=tuple(numbers))
    reported = dict.fromkeys((each.version, each.served) for each in captured.exchanges())
    is_numbered = any(version == release.version and model in {"", release.model} for version, model in reported)
    others = [each for each in reported if release.is_other(*each)]
    left_out = others if is_numbered else []
    tally.reported_versions = tuple(each[0] for each in reported if release.differs(*each) and each not in left_out)
    tally.is_doubtful = bool(others) and not is_numbered
    return replace(captured, release=release) if is_numbered else captured


def _check_doubt(tally: _Tally, details: ReleaseDetails) -> None:
    """Raise MeasurementError where the server seems to serve another release, by its number and by most values."""
    if tally.is_doubtful and tally.agreement < 0:
        versions, own = " and ".join(tally.reported_versions), details.version
        msg = f"most answers differ from version {own}, and the server reports version {versions}"
        hint = "if it numbers models freely, leave model_version out of the captured answers"
        raise MeasurementError(msg, hint=f"restart the server with version {own}, and capture again; {hint}")


def _check_accepted(captured: CapturedFile, tally: _Tally) -> None:
    """Raise InputFileError where the release accepts no request of the file."""
    if tally.first_unfit is not None and not tally.counts["rows"] and not tally.counts["refused"]:
        msg = f"{captured.name}, line {tally.first_unfit}: the release does not accept this request, nor any other"
        raise InputFileError(msg, hint=f"its inputs are {', '.join(map(str, captured.signature.inputs))}")


def _check_names(captured: CapturedFile, rules: GateRules, artifact: Artifact) -> None:
    """Raise UsageError for an output of the release that no captured answer has: the names are others."""
    wanted = [spec.name for spec in artifact.signature.outputs if spec.name not in rules.ignored]
    seen: dict[str, None] = {}
    for exchange in captured.exchanges():
        seen |= dict.fromkeys(exchange.outputs or ())
        if seen.keys() >= {*wanted}:
            return
    missing = next(name for name in wanted if name not in seen)
    msg = f"no answer in {captured.name} has the output {missing!r} (seen: {', '.join(seen) or 'none'})"
    raise UsageError(msg, hint=f"write the answers under the names of the release: {', '.join(wanted)}")


def _copied(request: ShadowRequest, artifact: Artifact, folder: Path) -> CapturedFile:
    """Return a copy of the captured file, which is read more than once while its writer may go on."""
    copy = folder / "captured"
    try:
        shutil.copyfile(request.captured, copy)
    except OSError as err:
        msg = f"captured requests {request.captured} cannot be read: {err.strerror}"
        raise InputFileError(msg, hint="give a file of captured requests with --captured") from err
    return CapturedFile(
        path=copy,
        name=str(request.captured),
        signature=artifact.signature,
        most=request.most,
    )


def _result(request: ShadowRequest, details: ReleaseDetails, variant: str, tally: _Tally) -> ShadowResult:
    if not tally.counts["rows"] and not tally.counts["refused"]:
        msg = f"{request.captured} holds no request"
        raise InputFileError(msg, hint="capture requests with their answers: see docs/shadow.md")
    _check_doubt(tally, details)
    counts: dict[str, Any] = dict(tally.counts)
    return with_fields_of(
        ShadowResult,
        tally,
        model=details.model,
        version=details.version,
        variant=variant,
        verdict=str(tally.verdict),
        requests=tally.test.requests,
        other_versions=tuple(tally.other_versions),
        max_flip_rate=tally.test.most,
        flip_rate=tally.shares / tally.test.requests if tally.test.requests else None,
        captured=str(request.captured),
        inputs=tally.inputs.finish() if tally.inputs is not None and tally.counts["rows"] else None,
        **counts,
    )


@dataclass(kw_only=True, slots=True)
class _Tally:
    """The counts so far."""

    test: SequentialTest
    strict: SequentialTest  # in which a refused or unfit request counts as changed
    inputs: InputComparison | None  # None where nothing is known of the samples' inputs
    counts: Counter[str] = field(default_factory=Counter)  # by the names of ShadowResult
    other_versions: dict[str, None] = field(default_factory=dict)
    reported_versions: tuple[str, ...] = ()
    is_doubtful: bool = False  # no answer reports this release, and some report another one
    agreement: int = 0  # compared rows whose values are within the limits, less the others
    is_last_line_cut_off: bool = False
    shares: float = 0.0
    first_unfit: int | None = None
    first_changed: int | None = None
    first_why: str = ""
    decided_after: int | None = None

    def add(self, exchange: Exchange, answered: Answered | None) -> None:
        """Take in one request; `answered` is None where the server did not answer."""
        if exchange.is_of_other:
            self.counts["of_other_versions"] += 1
            self.other_versions[exchange.version] = None
            return
        if exchange.is_refused or exchange.is_unfit:
            self.counts["unfit" if exchange.is_unfit else "refused"] += 1
            if exchange.is_unfit and self.first_unfit is None:
                self.first_unfit = exchange.line
            self.strict.add(1.0)
            return
        self.counts["rows"] += exchange.rows
        if self.inputs is not None and exchange.rows:
            self.inputs.add(exchange.inputs)
        if answered is None:
            self.counts["unanswered"] += 1
            self.counts["unreadable"] += exchange.is_unreadable
            self._take(exchange, 1.0, exchange.why)
            return
        self.counts += Counter(
            noise=int(answered.noise.sum()),
            changed=int((answered.outside & ~answered.noise).sum()),
            beyond_limits=int(answered.beyond.sum()),
            changed_near_the_boundary=int((answered.flipped & ~answered.outside).sum()),
        )
        differs = (answered.outside | answered.beyond) & ~answered.noise
        self.agreement += int((~answered.noise).sum()) - 2 * int(differs.sum())
        if answered.share is not None:
            self._take(exchange, answered.share, answered.broken)

    @property
    def verdict(self) -> Verdict:
        """The verdict: whose error a refusal or unfit request is, nobody knows, so many prevent a promotion."""
        is_sure = self.test.verdict is not Verdict.PROMOTE or self.strict.verdict is Verdict.PROMOTE
        return self.test.verdict if is_sure else Verdict.HOLD

    @property
    def until_promoted(self) -> int | None:
        """How many more requests without a changed answer a promotion needs; None where none can come."""
        if self.verdict is not Verdict.HOLD or self.strict.verdict is Verdict.ROLLBACK:
            return None
        return max(self.test.until_promoted, self.strict.until_promoted)

    def _take(self, exchange: Exchange, share: float, why: str) -> None:
        self.shares += share
        if not share:
            self.test.add_equal(1)
            self.strict.add_equal(1)
            return
        self.test.add(share)
        self.strict.add(share)
        if self.first_changed is None:
            self.first_changed, self.first_why = exchange.line, why
        if self.decided_after is None and self.test.verdict is Verdict.ROLLBACK:
            self.decided_after = self.test.requests


def _judged(
    judge: AnswerJudge,
    exchange: Exchange,
    answers: tuple[StoredBatch, StoredBatch],
    positions: dict[str, ValidWhere],
) -> Answered:
    assert exchange.outputs is not None  # noqa: S101 - only answered requests were recorded
    expected, again = (only_valid(side.outputs, exchange.inputs, positions) for side in answers)
    return judge.judge(exchange.outputs, expected, again, rows=exchange.rows)


def _pairs(
    captured: CapturedFile, first: Recording, again: Recording
) -> Iterator[tuple[Exchange, tuple[StoredBatch, StoredBatch] | None]]:
    """Yield every request with both answers of the released file; None where the server gave no answer."""
    recorded = zip(first.batches(), again.batches(), strict=True)
    for exchange in captured.exchanges():
        yield exchange, None if exchange.outputs is None else next(recorded)


def _recorded(  # noqa: PLR0913, PLR0917 - what is recorded, where to, and how
    artifact: Artifact,
    captured: CapturedFile,
    rules: GateRules,
    folder: Path,
    request: ShadowRequest,
    progress: Progress,
) -> Recording:
    description = folder.with_suffix(".json")
    captured.save(description)
    return record_outputs(
        artifact_model(artifact),
        SampleSource(text=_REQUESTS, folder=folder.parent, path=str(description)),
        out=folder,
        ignored=rules.ignored,
        is_non_finite_declared=True,
        time_limit_s=request.time_limit_s,
        progress=progress,
    )
