"""Run a candidate on the recorded probes and judge its outputs as on the samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.errors import ParitygateError
from paritygate.precision import Precision
from paritygate.signature import dtype_name, is_float_dtype
from paritygate.validate.detections.judgement import failed_match
from paritygate.validate.gate.candidate import Candidate, RefusedInputsError
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.gate.undeclared_padding import is_excused, left_out_alone
from paritygate.validate.gate.verdict import JudgePlan, failed_checks
from paritygate.validate.measure.blocks import by_block
from paritygate.validate.measure.check import UNDECLARED_PADDING, Check, Kind, Status
from paritygate.validate.measure.flips import label_axes
from paritygate.validate.measure.limits import Limits, limits_of_made_up
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison
from paritygate.validate.measure.profile import OutputProfile, profile_outputs
from paritygate.validate.measure.robust_scale import may_hold_fills
from paritygate.validate.measure.rows_together import RowsTogether
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number
from paritygate.validate.probes.inputs.edge import Edge, OutOfSampleKind, beyond_calibration, edges_in_words
from paritygate.validate.probes.outcome import ProbeFailure, in_words
from paritygate.validate.probes.own_faults import internal_error_message
from paritygate.validate.probes.recording import BatchRecord, ProbeRecord, ProbesRecording, StoredProbeBatch
from paritygate.validate.probes.row_subset import RowSubset, parts_of
from paritygate.validate.probes.skip_reasons import LEFT_OUT_FOR_WANT, DropKind
from paritygate.validate.probes.steady.flat_rows import is_flat_signal
from paritygate.validate.reference.reference_noise import NOISE_FACTOR, largest_in_limits, rows_within
from paritygate.validate.samples.row_digest import digests_of_rows
from paritygate.validate.words.sentence import Words, render, say

# The mean is judged over many rows: a single row may exceed its limit legitimately.
_NOT_OF_ONE_BATCH = frozenset({"mean_abs_diff"})
# Outputs larger than any on the samples widen their spread by this share of the excess.
_SHARE_OF_LARGE = 0.1
# These precisions clip nothing, so everything is compared, the mean too.
_LIKE_FP32 = frozenset({Precision.FP32, Precision.TF32})
# The probe of the samples' own rows. Some run many times, so their mean differs from that of the samples and gets a
# limit wider by this factor.
_OF_SAME_ROWS = "batches"
_WIDER_MEAN = 1.5
# Factor of the limits of lower precisions on values unlike every sample. Equal values round alike: in a picture of one
# color the errors add up, while among real values many cancel.
_ADDED_UP = 2.0
# Other probes compose or lengthen rows of real values.
_OF_VALUES = frozenset({"flat", "values"})
# Names, shapes and dtypes must match on any inputs.
_CONTRACT = "contract"
# The arrays that wait to be judged together. So few values never have the limits of many.
_BYTES_TOGETHER = 1 << 20


class FailedBatch(Struct, frozen=True, kw_only=True):
    """A batch that a candidate failed.

    `at` is its position from 0; `actual` is None where the candidate refused it, `output` None for all outputs.
    `argmax_of` maps labels to their scores, declared or inferred. `edges` are the ways in which all differing rows are
    unlike every sample; with them, a finding may fail nothing.
    """

    at: int
    stored: StoredProbeBatch
    check: str
    words: Words
    actual: Arrays | None = None
    output: str | None = None
    limit: float | None = None
    argmax_of: Mapping[str, str] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    is_finding: bool = False


class ProbeQuestion(Struct, frozen=True, kw_only=True):
    """The rules and hooks of a candidate's probes.

    - `rules`: on generated inputs no limit is stricter than the default; only decisions near the boundary may change.
    - `outputs`: those compared value by value. `runtime`: the candidate's; empty to compare NaN on every runtime.
    - `unfit`: returns why a candidate cannot take inputs, such as with fixed dims, or an empty text.
    - `unclipped`: returns an INT8 candidate's outputs without ranges of activations; None if none exceeds its range.
    - `keep`: stores a failed batch for the user and returns the place, or an empty text.
    - `judges_at_once`: no batch waits for others, because the caller stops at the first failure.
    """

    rules: GateRules
    outputs: tuple[str, ...]
    unfit: Callable[[Arrays], str] = lambda _: ""
    runtime: str = ""
    unclipped: Callable[[Batch], Arrays | None] = lambda _: None
    keep: Callable[[str, FailedBatch], str] = lambda *_: ""
    judges_at_once: bool = False


class ProbeOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one probe.

    - `status`: `error` if the probe itself failed, `edge` with findings, `warning` if nothing or too little could run.
    - `dropped`: batches that run on no candidate, by reason. `unfit`: reasons for batches that only this one cannot
      run.
    - `failures`: the first failed batches. `failed`, `failed_batches`: the number and positions of all.
    - `findings`: the first batch of each edge that differs where no sample is. `found`: the number of such batches.
    - `edge_off`: batches skipped because all their rows are unlike every sample.
    - `error`: a fault of this tool, or empty. `seconds`: the candidate's. `padded`: differences under undeclared masks.
    - `reference_noise`: where the reference differs from itself by far more than a limit.
    - `is_skipped`: not run in this comparison though it applies.
    """

    name: str
    status: Status
    words: Words
    batches: int = 0
    rows: int = 0
    dropped: Mapping[DropKind, int] = field(default_factory=dict)
    unfit: tuple[str, ...] = ()
    failures: tuple[ProbeFailure, ...] = ()
    failed: int = 0
    seconds: float = 0.0
    error: str = ""
    findings: tuple[ProbeFailure, ...] = ()
    found: Mapping[str, int] = field(default_factory=dict)
    edge_off: int = 0
    reference_noise: Words = ()
    padded: tuple[Check, ...] = ()
    failed_batches: frozenset[int] = frozenset()
    is_skipped: bool = False

    @property
    def is_check(self) -> bool:
        """True where anything ran, was left out or went wrong; a probe that does not apply is not a check."""
        return bool(self.batches or self.dropped or self.unfit or self.failed or self.error or self.edge_off)

    @property
    def detail(self) -> str:
        """The outcome, as text."""
        return render(self.words)

    @property
    def kind(self) -> Kind:
        """The way to its status."""
        if self.failed or self.error:
            return Kind.NOT_MEASURED if not self.failed else Kind.MEASURED
        if self.findings:
            return Kind.EDGE
        if self.batches:
            return Kind.MEASURED
        return Kind.NOT_ASKED if self.is_check or self.is_skipped else Kind.DOES_NOT_APPLY

    @property
    def check(self) -> Check:
        """The probe as one of the checks of a comparison."""
        return Check(name=f"probe_{self.name}", status=self.status, kind=self.kind, words=self.words, rows=self.rows)

    @property
    def warnings(self) -> tuple[Check, ...]:
        """A warning where the reference's outputs depend on the batch by far more than a limit."""
        words = self.reference_noise
        return (Check(name="reference_batch", status=Status.WARNING, words=words),) if words else ()


FAILURES_KEPT = 5


def run_probes(
    candidate: Candidate,
    recording: ProbesRecording,
    question: ProbeQuestion,
    *,
    names: Collection[str] | None = None,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> tuple[ProbeOutcome, ...]:
    """Run a candidate on the recorded probes in `names` (None: all) and judge it.

    Raises:
        ArtifactIntegrityError: A recorded chunk is missing or was changed.
    """
    candidate.start_pass()
    question = with_labels(recording, question)
    return tuple(
        _run_probe(candidate, recording, probe, question, progress)
        for probe in recording.probes
        if names is None or probe.name in names
    )


def _run_probe(
    candidate: Candidate,
    recording: ProbesRecording,
    probe: ProbeRecord,
    question: ProbeQuestion,
    progress: Callable[[str, int], None],
) -> ProbeOutcome:
    started = time.monotonic()
    judged = JudgedProbe(recording, question, name=probe.name)
    batches = rows = edge_off = 0
    unfit: list[str] = []
    failures: list[ProbeFailure] = []
    error = probe.error
    try:
        for at, stored in enumerate(recording.batches(probe)):
            why_not = question.unfit(stored.inputs) or _why_not_held(stored.record, recording, question)
            if why_not:
                unfit.append(f"{stored.record.about}: {why_not}")
                continue
            if question.rules.edge is EdgeRule.OFF and stored.record.is_at_edge:
                edge_off += 1
                continue
            judged.ask(at, stored, candidate)
            batches += 1
            rows += stored.record.rows
            progress(probe.name, rows)
        failures = judged.failures()
    except (ParitygateError, OSError):
        # Known errors, such as exchanged probes, end all probes.
        raise
    except Exception as err:  # noqa: BLE001 - whatever it was, it is an error of this probe alone
        error = error or f"while the candidate ran, {internal_error_message(err)}"
        failures = judged.failed_alone
    findings = judged.findings
    return ProbeOutcome(
        name=probe.name,
        status=_status_of(probe, failures, error, is_whole=batches > 0, has_findings=bool(findings)),
        padded=judged.padded,
        words=in_words(
            failures,
            probe,
            error,
            rows=rows,
            unfit=len(unfit),
            findings=findings,
            found=judged.found,
            edge_off=edge_off,
            padded=[check.output or "" for check in judged.padded],
        ),
        batches=batches,
        rows=rows,
        dropped=probe.dropped_counts,
        unfit=tuple(unfit),
        failures=tuple(failures[:FAILURES_KEPT]),
        failed=len(failures),
        failed_batches=frozenset(failure.batch for failure in failures),
        seconds=time.monotonic() - started,
        error=error,
        findings=findings,
        found=judged.found,
        edge_off=edge_off,
        reference_noise=judged.reference_noise,
    )


def _status_of(
    probe: ProbeRecord, failures: list[ProbeFailure], error: str, *, is_whole: bool, has_findings: bool
) -> Status:
    if failures:
        return Status.FAIL
    if error:
        return Status.ERROR
    if has_findings:
        return Status.EDGE
    return Status.PASS if is_whole and not LEFT_OUT_FOR_WANT & probe.dropped_counts.keys() else Status.WARNING


def _why_not_held(record: BatchRecord, recording: ProbesRecording, question: ProbeQuestion) -> str:
    """Return why the candidate may legitimately differ; empty where it may not."""
    if record.is_far_from_seen and question.rules.precision not in _LIKE_FP32:
        return f"so far from what was seen, {question.rules.precision} may overflow or lose what float32 holds"
    if not record.hangs_on_runtime:
        return ""
    if question.runtime and question.runtime != recording.runtime:
        return f"{question.runtime} may treat NaN and infinity differently from {recording.runtime}"
    if question.rules.precision is Precision.INT8:
        return "what is quantized holds no NaN and no infinity"
    return ""


def _may_clip(record: BatchRecord, precision: Precision) -> bool:
    """Return whether the candidate may clip here, so that only finiteness and contract are checked."""
    if precision in _LIKE_FP32:
        return False
    return record.is_beyond_seen or (record.is_unlike_seen and precision is Precision.INT8)


def with_labels(recording: ProbesRecording, question: ProbeQuestion) -> ProbeQuestion:
    """Return the question with every label that is the argmax of some scores in all reference outputs.

    Where scores nearly tie, a lower precision may change such a label, so it is judged as an undeclared decision. In
    float32 labels are compared exactly, so that ties show.
    """
    if question.rules.precision in _LIKE_FP32:
        return question
    profiles = recording.profiles.values()
    labels = {item.name for item in profiles if not item.is_float and item.name in question.outputs}
    pairs = {
        (label, item.name)
        for label in labels - {*question.rules.argmax_of, *question.rules.tolerance.outputs}
        for item in profiles
        if item.is_float and item.name in question.outputs
    }
    for probe in recording.probes if pairs else ():
        for stored in recording.batches(probe):
            pairs = {pair for pair in pairs if _is_argmax(stored.outputs[pair[0]], stored.outputs[pair[1]])}
    argmax_of = {**dict(sorted(pairs)), **question.rules.argmax_of}
    return replace(question, rules=replace(question.rules, argmax_of=argmax_of))


def _is_argmax(label: NDArray[np.generic], scores: NDArray[np.generic]) -> bool:
    axes = label_axes(scores.shape, label.shape)
    if len(axes) != 1:
        return False
    largest = scores.astype(np.float64).argmax(axis=axes[0], keepdims=label.ndim == scores.ndim)
    return bool((largest == label).all())


class JudgedProbe:
    """Judges the batches of a probe, and all of them together, for the mean.

    Batches that wait are compared together. Each is judged alone, to locate faults, only where that fails.
    """

    def __init__(self, recording: ProbesRecording, question: ProbeQuestion, *, name: str) -> None:
        self._question = question
        self._name = name
        # The outputs that are compared.
        self.held = frozenset({*question.outputs, *question.rules.matched})
        self._profiles = recording.profiles
        self._plan = _plan_of(recording.profiles, question)
        self._all = OutputComparison(self._plan, names_rows=False)
        self._waiting: list[tuple[int, RowSubset]] = []
        self._bytes = 0
        self._failed_alone: list[ProbeFailure] = []
        self._findings: dict[str, ProbeFailure] = {}
        # Where the reference differs from itself by far more than a limit.
        self.reference_noise: Words = ()
        self.found: dict[str, int] = {}
        self._padding = recording.padding
        self._batch_axes = recording.batch_axes
        self._padded: dict[str, Check] = {}
        # The calls before the current batch, as text; empty where they do not matter.
        self.when = ""

    def ask(self, at: int, stored: StoredProbeBatch, candidate: Candidate) -> None:
        """Run the candidate on one batch and judge the outputs."""
        try:
            actual = candidate.answer(self.batch(at, stored))
        except RefusedInputsError as err:
            self.refuse(at, stored, str(err))
            return
        self.judge(at, stored, actual)

    def batch(self, at: int, stored: StoredProbeBatch) -> Batch:
        """Return the batch to run."""
        ids = [f"{self._name}/{at}/{row}" for row in range(stored.record.rows)]
        return Batch(inputs=stored.inputs, ids=ids).with_answer(stored.outputs)

    def refuse(self, at: int, stored: StoredProbeBatch, reason: str) -> None:
        """Record that the candidate refused a batch."""
        self._judge_waiting()
        words = say("probe.refused", reason=reason)
        edges = stored.record.edges if stored.record.is_at_edge else ()
        self._take(FailedBatch(at=at, stored=stored, check="refused", words=words, edges=edges))

    def judge(self, at: int, stored: StoredProbeBatch, actual: Arrays) -> None:
        """Add outputs, which are judged when failures are read or enough of them wait."""
        size = sum(array.nbytes for arrays in (stored.inputs, stored.outputs, actual) for array in arrays.values())
        if self._bytes + size > _BYTES_TOGETHER:
            self._judge_waiting()
        self._waiting.append((at, RowSubset(batch=self.batch(at, stored), stored=stored, actual=actual)))
        self._bytes += size
        if self._question.judges_at_once:
            self._judge_waiting()

    def _judge_waiting(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        passed: set[int] = set()
        for is_in_mean in (True, False) if len(waiting) > 1 else ():
            group = {
                place: parts
                for place, (_, whole) in enumerate(waiting)
                if _is_in_mean(whole.stored.record) is is_in_mean and (parts := self._parts_to_join(whole))
            }
            if len(group) < 2:  # noqa: PLR2004 - one batch is judged alone
                continue
            within = self._within_limits_of_samples([part for parts in group.values() for part in parts])
            if within is not None:
                passed.update(group)
                if is_in_mean:
                    self._all.take_in(within)
        for place, (at, whole) in enumerate(waiting):
            if place not in passed:
                self._judge_alone(at, whole)

    def _missing(self, actual: Arrays) -> str | None:
        matched = [name for rule in self._question.rules.matches for name in rule.outputs]
        return next((name for name in (*self._plan.profiles, *matched) if name not in actual), None)

    def _parts_to_join(self, whole: RowSubset) -> list[RowSubset]:
        """Return the parts of a batch if they can be compared in one array with those of others; else none."""
        rules = self._question.rules
        # Some rules compare whole batches: lists of labels have one order in each.
        if self._padding or rules.matches or rules.argmax_of or self._missing(whole.actual) is not None:
            return []
        parts = [part for part in parts_of(whole, self._batch_axes) if rules.edge is not EdgeRule.OFF or not part.edges]
        have_rows = all(
            array.ndim and len(array) == part.batch.rows and part.actual[name].shape == array.shape
            for part in parts
            for name, array in self._expected(part).items()
        )
        return parts if have_rows and all(map(self._is_scaled_by_samples, parts)) else []

    def _judge_alone(self, at: int, whole: RowSubset) -> None:
        """Judge one batch: rows that are unlike every sample apart from the others."""
        stored, actual = whole.stored, whole.actual
        missing = self._missing(actual)
        if missing is not None:
            words = say("probe.without", output=missing)
            self.fail(FailedBatch(at=at, stored=stored, check="outputs", words=words, actual=actual))
            return
        of_whole: OutputComparison | None = None
        is_cut_off = False
        for part in parts_of(whole, self._batch_axes):
            if part.edges and self._question.rules.edge is EdgeRule.OFF:
                continue
            within = self._within_limits_of_samples([part]) if self._is_scaled_by_samples(part) else None
            of_whole = within if part is whole else None
            check = self._failed_check(part) if within is None else self._failed_match(part)
            check = check or self._failed_where_padded(part)
            if check is None:
                continue
            is_contract = check.name.startswith(_CONTRACT) and not _is_size(part.edges)
            failed = FailedBatch(
                at=at,
                stored=stored,
                check=check.name,
                words=check.words,
                actual=actual,
                output=check.output,
                limit=None if check.limit is None else float(check.limit),
                edges=() if is_contract else part.edges or self._edges_of_clipping(whole, part),
            )
            self._take(failed)
            if not failed.edges:
                return
            is_cut_off = is_cut_off or failed.edges != part.edges
        if is_cut_off or not _is_in_mean(stored.record):
            return
        if of_whole is None:
            self._all.add(whole.batch, actual, self._expected(whole))
        else:
            self._all.take_in(of_whole)

    def _edges_of_clipping(self, whole: RowSubset, part: RowSubset) -> tuple[Edge, ...]:
        """Return the edge of rows on which an INT8 candidate differs only because it clips activations.

        Without the ranges, weights and operators stay the same, so their faults still fail. Rows of the samples never
        clip.
        """
        if self._name == _OF_SAME_ROWS or self._question.rules.precision is not Precision.INT8:
            return ()
        unclipped = self._question.unclipped(whole.batch)
        if unclipped is None or any(name not in unclipped for name in whole.actual):
            return ()
        parts = parts_of(replace(whole, actual=unclipped), self._batch_axes)
        same = next(other for other in parts if other.batch.ids == part.batch.ids and other.edges == part.edges)
        if self._failed_check(same) is not None or self._failed_where_padded(same) is not None:
            return ()
        return (beyond_calibration(part.stored.record.rows),)

    def _expected(self, part: RowSubset) -> Arrays:
        outputs = part.stored.outputs
        return {name: outputs[name] for name in self._plan.profiles if name in outputs}

    def _is_scaled_by_samples(self, part: RowSubset) -> bool:
        limits = self._plan.limits
        return not _may_clip(part.stored.record, self._question.rules.precision) and all(
            _is_scaled_by_samples(array, limits[name]) for name, array in self._expected(part).items()
        )

    def _within_limits_of_samples(self, parts: Sequence[RowSubset]) -> OutputComparison | None:
        """Return the comparison of some rows if those of each part are within the limits of the samples; else None.

        The rows' own outputs only widen these limits, except with fill values or very wide spreads. So other rows
        within them need no second comparison.
        """
        # The mean of float32 is shown, and does not depend on which batches wait together.
        is_each_alone = self._question.rules.precision in _LIKE_FP32
        rows = RowsTogether(OutputComparison(self._plan, names_rows=False), is_each_alone=is_each_alone)
        for part in parts:
            expected = self._expected(part)
            rows.add(part.batch.ids, {name: part.actual[name] for name in expected}, expected)
        if next(_failed(rows, self._plan, self._question, skipped=_NOT_OF_ONE_BATCH), None) is not None:
            return None
        furthest = [state.nearest_row for state in rows.comparison.states.values()] if len(parts) > 1 else []
        # A part alone has these limits of rows where its mean is beyond the limit, which many parts can hide.
        return None if any(row is not None and row.in_limits > 1 for row in furthest) else rows.comparison

    def _failed_match(self, part: RowSubset) -> Check | None:
        outputs = part.stored.outputs
        matches = [rule for rule in self._question.rules.matches if set(rule.outputs) <= set(outputs)]
        return failed_match(matches, part.batch, part.actual, outputs)

    def _failed_check(self, part: RowSubset) -> Check | None:
        """Return the first check that rows of a batch fail, or None; the reference's own noise widens their limits."""
        check = self._check_that_fails(part, self._profiles)
        if check is None or not part.stored.record.noise:
            return check
        return self._check_that_fails(replace(part, actual=self._without_noise(part)), self._profiles)

    def _failed_where_padded(self, part: RowSubset) -> Check | None:
        """Return the check that a part fails under an undeclared mask; excused differences are stored."""
        alone = left_out_alone(self._expected(part), self._padding)
        for name, array in alone.items():
            padding = self._padding[name]
            stored = replace(part.stored, outputs={name: array})
            check = self._check_that_fails(replace(part, stored=stored), {name: padding.profile}, has_decisions=False)
            if check is None:
                continue
            if not is_excused(check, padding, self._question.rules.edge):
                return replace(check, words=say("padding.failed", input=padding.mask.input, difference=check.words))
            self._keep_padded(name, check, part)
        return None

    def _keep_padded(self, name: str, check: Check, part: RowSubset) -> None:
        padding = self._padding[name]
        words = say(
            "padding.probe",
            probe=self._name,
            about=part.stored.record.about,
            input=padding.mask.input,
            check=check.name,
            difference=check.words,
            cause=padding.mask.why,
            advice=padding.advice(name),
        )
        finding = replace(check, name=UNDECLARED_PADDING, status=Status.EDGE, kind=Kind.EDGE, words=words)
        self._padded.setdefault(name, finding)

    @property
    def padded(self) -> tuple[Check, ...]:
        """The first excused difference of each output under an undeclared mask."""
        return tuple(self._padded.values())

    def _without_noise(self, part: RowSubset) -> Arrays:
        """Return the candidate's outputs, with the reference's own in rows that are within its noise."""
        outputs, record = dict(part.actual), part.stored.record
        expected = self._expected(part)
        profiles = {name: self._profiles[name] for name in expected}
        plan = _plan_of_batch(part.stored, profiles, self._question, has_made_up_values=self._name in _OF_VALUES)
        for name, noise in record.noise.items():
            limits, profile = plan.limits.get(name), plan.profiles.get(name)
            is_alike = name in expected and outputs[name].shape == expected[name].shape
            if limits is None or profile is None or not is_alike or len(noise) != len(expected[name]):
                continue
            at, ratio = largest_in_limits(noise, expected[name], limits)
            if ratio > NOISE_FACTOR and not self.reference_noise:
                self.reference_noise = say(
                    "noise.in_batch",
                    probe=self._name,
                    about=record.about,
                    difference=noise[at].max_abs_diff,
                    output=name,
                    ratio=ratio,
                )
            within = rows_within(outputs[name], expected[name], noise, limits=limits, profile=profile)
            outputs[name] = np.where(within.reshape(-1, *[1] * (outputs[name].ndim - 1)), expected[name], outputs[name])
        return outputs

    def _check_that_fails(
        self, part: RowSubset, of_outputs: Mapping[str, OutputProfile], *, has_decisions: bool = True
    ) -> Check | None:
        expected = self._expected(part)
        if _may_clip(part.stored.record, self._question.rules.precision):
            return _broken_contract(part.actual, expected)
        profiles = {name: of_outputs[name] for name in expected}
        plan = _plan_of_batch(
            part.stored,
            profiles,
            self._question,
            has_made_up_values=self._name in _OF_VALUES,
            has_decisions=has_decisions,
        )
        alone = OutputComparison(plan, names_rows=False)
        alone.add(part.batch, part.actual, expected)
        check = next(_failed(alone, plan, self._question, skipped=_NOT_OF_ONE_BATCH), None)
        return check or self._failed_match(part)

    def fail(self, failed: FailedBatch) -> None:
        """Record a failed batch."""
        self._failed_alone.append(self._kept(failed, is_stored=len(self._failed_alone) < FAILURES_KEPT))

    def _take(self, failed: FailedBatch) -> None:
        """Record rows of a batch that differ, either where samples are or where no sample is."""
        if not failed.edges:
            self.fail(failed)
            return
        # Activations beyond their ranges are no property of the rows that samples lack.
        is_calibration = all(edge.kind is OutOfSampleKind.CALIBRATION for edge in failed.edges)
        failed = replace(failed, is_finding=is_calibration or self._question.rules.edge is not EdgeRule.FAIL)
        words = edges_in_words(failed.edges)
        self.found[words] = self.found.get(words, 0) + 1
        if words not in self._findings:
            self._findings[words] = self._kept(failed, is_stored=len(self._findings) < FAILURES_KEPT)
            if not failed.is_finding:
                self._failed_alone.append(self._findings[words])
        elif not failed.is_finding:
            self._failed_alone.append(self._kept(failed, is_stored=False))

    def _kept(self, failed: FailedBatch, *, is_stored: bool) -> ProbeFailure:
        failed = replace(failed, argmax_of=self._question.rules.argmax_of)
        about = failed.stored.record.about
        return ProbeFailure(
            batch=failed.at,
            about=f"{about}, {self.when}" if self.when else about,
            check=failed.check,
            words=failed.words,
            inputs=self._question.keep(self._name, failed) if is_stored else "",
            edges=failed.edges,
        )

    @property
    def findings(self) -> tuple[ProbeFailure, ...]:
        """The first batch of each edge that differs there."""
        return tuple(self._findings.values())

    @property
    def failed_alone(self) -> list[ProbeFailure]:
        """The batches that have failed so far."""
        self._judge_waiting()
        return self._failed_alone

    def failures(self) -> list[ProbeFailure]:
        """Return the failed batches; if none failed alone, the failure of all of them together."""
        if self.failed_alone:
            return self.failed_alone
        # A lower precision's mean is judged on real rows: probes hold more rare values than those.
        skipped = frozenset[str]() if self._question.rules.precision in _LIKE_FP32 else _NOT_OF_ONE_BATCH
        plan = _with_wider_mean(self._plan) if self._name == _OF_SAME_ROWS else self._plan
        together = (
            ProbeFailure(batch=-1, about="all batches together", check=check.name, words=check.words)
            for check in _failed(self._all, plan, self._question, skipped=skipped)
        )
        return list(together)[:1]


def _is_scaled_by_samples(array: NDArray[np.generic], limits: Limits) -> bool:
    """Return whether the array's own values would not tighten the limits that follow from the samples."""
    if not limits.fits(array.shape) or may_hold_fills(array):
        return False
    if not array.ndim:
        return True
    return not any(
        by_block(lambda rows: limits.widens_rows(not_a_number(array[rows], left_out_of(array[rows]))), array.shape)
    )


def _is_in_mean(record: BatchRecord) -> bool:
    """Return whether a batch counts in the mean of all: no output may be clipped."""
    return not (record.is_beyond_seen or record.is_unlike_seen or record.edges or record.noise)


def _is_size(edges: Iterable[Edge]) -> bool:
    """Return whether rows have an undeclared size, for which a candidate has no contract."""
    return any(edge.kind is OutOfSampleKind.SIZE for edge in edges)


def _broken_contract(actual: Arrays, expected: Arrays) -> Check | None:
    """Return where shapes or dtypes differ, or only the candidate is not finite; None if nowhere."""
    for name, array in expected.items():
        values = actual[name]
        dtype, wanted = dtype_name(values.dtype), dtype_name(array.dtype)
        if values.shape != array.shape or dtype != wanted:
            sides = {"actual_dtype": dtype, "actual_shape": values.shape}
            sides |= {"expected_dtype": wanted, "expected_shape": array.shape}
            return Check(
                name=_CONTRACT, status=Status.FAIL, words=say("probe.contract", output=name, **sides), output=name
            )
        if is_float_dtype(array.dtype.name) and (_is_finite(array) & ~_is_finite(values)).any():
            return Check(name="finite", status=Status.FAIL, words=say("probe.not_finite", output=name), output=name)
    return None


def _is_finite(array: NDArray[np.generic]) -> NDArray[np.bool_]:
    is_finite: NDArray[np.bool_] = np.isfinite(array.astype(np.float64))
    return is_finite


def _own_profiles(profiles: Mapping[str, OutputProfile], stored: StoredProbeBatch) -> dict[str, OutputProfile]:
    """Return the profiles widened by one batch's own outputs: rounding grows with them, but not in other batches."""
    widened = {}
    is_real = not (stored.record.is_beyond_seen or stored.record.is_unlike_seen)
    digests = digests_of_rows(Batch(inputs=stored.inputs, ids=[""] * stored.record.rows))
    floats = [each for each in stored.inputs.values() if each.dtype.kind == "f" and each.shape[:1] == (len(digests),)]
    # A flat signal repeats its outputs from place to place.
    places = [
        row
        for row, digest in enumerate(digests)
        if digest not in digests[:row] and not any(is_flat_signal(array[[row]]) for array in floats)
    ]
    for name, profile in profiles.items():
        array = stored.outputs[name]
        axis = profile.axis
        if axis is not None and (axis >= array.ndim or array.shape[axis] != profile.channels):
            axis = None
        has_rows = array.ndim > 0 and len(array) == stored.record.rows
        apart = [(array[places], len(places))] if has_rows else [(array, stored.record.rows)]
        own = profile_outputs(
            name, [(array, stored.record.rows)], axis=axis, dtype=profile.dtype, apart=apart, fills=profile.fills
        )
        widened[name] = _widened(profile, own, axis=axis, is_real=is_real)
    return widened


def _widened(profile: OutputProfile, own: OutputProfile, *, axis: int | None, is_real: bool) -> OutputProfile:
    """Return the samples' profile, widened by a batch's; `axis` is None if the batch has other channels."""

    def of_samples(name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = getattr(profile, name)
        return values if axis == profile.axis else values.max(keepdims=True)

    largest, own_spread = of_samples("max_abs"), of_samples("own_spread")
    beyond = np.zeros_like(largest) if is_real else _SHARE_OF_LARGE * np.maximum(own.max_abs - largest, 0.0)
    spread = np.maximum(np.maximum(of_samples("spread"), own.spread), beyond)
    return replace(
        profile,
        axis=axis,
        center=profile.center if axis == profile.axis else own.center,
        spread=spread,
        # A constant channel has no cap, whatever its values in this batch.
        own_spread=np.where(own_spread > 0, np.maximum(own_spread, spread), 0.0),
        output_spread=None
        if profile.output_spread is None
        else max(profile.output_spread, own.output_spread or 0.0, float(beyond.max(initial=0.0))),
        size=np.where(of_samples("size") > 0, np.maximum(of_samples("size"), own.size), 0.0),
        cap_room=of_samples("cap_room"),
        noise=of_samples("noise"),
        activation_floor=of_samples("activation_floor"),
        max_abs=np.maximum(largest, own.max_abs),
        fills=tuple(sorted({*profile.fills, *own.fills})),
    )


def _plan_of_batch(
    stored: StoredProbeBatch,
    profiles: Mapping[str, OutputProfile],
    question: ProbeQuestion,
    *,
    has_made_up_values: bool,
    has_decisions: bool = True,
) -> ComparisonPlan:
    """Return the limits of one batch, which its own outputs widen."""
    is_lower = question.rules.precision not in _LIKE_FP32
    factor = _ADDED_UP if is_lower and stored.record.is_unlike_seen and has_made_up_values else 1.0
    return _plan_of(_own_profiles(profiles, stored), question, has_decisions=has_decisions, factor=factor)


def _plan_of(
    profiles: Mapping[str, OutputProfile], question: ProbeQuestion, *, has_decisions: bool = True, factor: float = 1.0
) -> ComparisonPlan:
    compared = {name: profiles[name] for name in question.outputs if name in profiles}
    rules = question.rules
    return ComparisonPlan(
        profiles=compared,
        limits={
            name: limits_of_made_up(rules.tolerance, profile).widened(factor) for name, profile in compared.items()
        },
        decisions={rule.output: rule for rule in rules.decisions if rule.output in compared and has_decisions},
        argmax_of={label: scores for label, scores in rules.argmax_of.items() if label in compared},
    )


def _with_wider_mean(plan: ComparisonPlan) -> ComparisonPlan:
    """Return the limits for rows of the samples that run several times."""
    limits = {
        name: replace(
            item, mean_abs_diff=item.mean_abs_diff * _WIDER_MEAN, mean_of_columns=item.mean_of_columns * _WIDER_MEAN
        )
        for name, item in plan.limits.items()
    }
    return replace(plan, limits=limits)


def _failed(
    comparison: OutputComparison | RowsTogether,
    plan: ComparisonPlan,
    question: ProbeQuestion,
    *,
    skipped: frozenset[str] = frozenset(),
) -> Iterator[Check]:
    comparison.end_pass()
    measured = comparison.finish()
    if not measured.rows:
        return
    tolerance = replace(question.rules.tolerance, decision_mismatches=None, mismatch_rate_upper_95=None)
    # The other rules are checked on the samples.
    rules = GateRules(tolerance=tolerance, argmax_of=plan.argmax_of)
    for check in failed_checks(measured, JudgePlan(rules=rules, limits=plan.limits, profiles=plan.profiles)):
        if check.name not in skipped and not _is_near(check, measured):
            yield check


def _is_near(check: Check, measured: Measurement) -> bool:
    """Return whether a check of decisions fails only near the boundary, as a probe may repeat such a row."""
    if check.name != "decision_mismatches" or check.output is None:
        return False
    return measured.decisions[check.output].outside_band == 0
