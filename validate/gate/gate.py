"""The gate: compare a candidate with expected outputs on the same samples, and judge it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from paritygate.batch import Batch
from paritygate.errors import MeasurementError, UsageError, ZeroRowsError
from paritygate.signature import dtype_name, is_comparable_dtype, is_float_dtype, is_integer_dtype
from paritygate.text import meant
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.judgement import detections_coverage, judge_matches
from paritygate.validate.detections.measurement import MatchComparison, check_match_rules
from paritygate.validate.detections.repeats import MatchRepeats
from paritygate.validate.gate.candidate import Candidate, RefusedInputsError
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.symptoms import symptoms_of
from paritygate.validate.gate.undeclared_padding import PaddingComparison
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.gold.figures import GoldStatistics
from paritygate.validate.gold.judgement import judge_gold
from paritygate.validate.gold.measurement import GoldComparison, check_gold_rules
from paritygate.validate.gold.rule import GoldRule
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison
from paritygate.validate.measure.strata import StratifiedComparison, strata_coverage
from paritygate.validate.measure.tolerance import DECISION_LIMITS, Limits, limits_for
from paritygate.validate.measure.valid_positions import ValidWhere, like, only_valid
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.noise_floor import noise_checks
from paritygate.validate.reference.record import check_selected, check_some_left
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.recording import ChunkWriter, StoredBatch, read_chunks
from paritygate.validate.samples.samples import BatchDigest
from paritygate.validate.samples.split import RowsLeftOut, rows_kept
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LABEL_FIRST = "name the integer output first, then the scores: argmax_of: {LABEL: SCORES}, or --argmax-of LABEL=SCORES"


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """The measurement and its checks."""

    measurement: Measurement
    checks: tuple[Check, ...]
    limits: Mapping[str, Limits]
    samples_digest: str
    left_out: tuple[str, ...]  # outputs that were not selected
    strata: Mapping[str, Mapping[str, Measurement]]  # by stratum and its value
    looks_like: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of outputs that failed
    gold: Mapping[str, GoldStatistics] = field(default_factory=dict)  # by the text of the rule
    matches: Mapping[str, MatchStatistics] = field(default_factory=dict)  # by the name of the rule


class _Observer(Protocol):
    """A second measurement of both sides' outputs, beside the comparison value by value."""

    def add(
        self, batch: Batch, actual: Mapping[str, NDArray[np.generic]], expected: Mapping[str, NDArray[np.generic]]
    ) -> None:
        """Take in one batch with all outputs of both sides."""
        ...

    def end_pass(self) -> None:
        """Mark the end of the sequence of batches."""
        ...


def run_gate(  # noqa: PLR0913 - both sides, the samples, what is asked, and where
    candidate: Candidate,
    expected: ExpectedOutputs,
    read: Callable[[], Iterator[Batch]],
    rules: GateRules,
    *,
    workspace: Path,
    left_out: RowsLeftOut | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> GateResult:
    """Run the candidate on all samples and judge it by the expected outputs.

    `read` starts the samples again for each pass. `workspace` is an empty folder for the first pass. `left_out` counts
    the rows that are not compared. `progress` gets the pass and the number of its finished rows.

    Raises:
        UsageError: A rule names an output that does not exist, or whose dtype does not fit.
        ZeroRowsError: There are no samples.
        MeasurementError: Samples and expected outputs do not hold the same rows.
    """
    rows_left_out = RowsLeftOut() if left_out is None else left_out
    _check_ignored(candidate, expected, rules)
    _check_positions(expected, rules)
    compared = check_asked({name: profile.dtype for name, profile in expected.profiles.items()}, rules)
    profiles = {name: expected.profiles[name] for name in compared}
    limits = {name: limits_for(rules.tolerance, profile) for name, profile in profiles.items()}
    comparison_plan = ComparisonPlan(
        profiles=profiles,
        limits=limits,
        decisions={decision.output: decision for decision in rules.decisions},
        argmax_of=rules.argmax_of,
    )
    comparison = OutputComparison(comparison_plan, is_drawn=True)
    strata = StratifiedComparison(comparison_plan, rules.strata)
    _compare_names(comparison, candidate, expected, compared, rules)
    padding = {name: item for name, item in expected.padding.items() if name in compared}
    of_padding = PaddingComparison(padding, rules)
    gold = {str(rule): _gold_comparison(rule, rules) for rule in rules.gold}
    matches = {rule.name: MatchComparison(rule, rules.strata) for rule in rules.matches}
    repeats = tuple(MatchRepeats(rule) for rule in rules.matches)
    passes = _Passes(
        candidate=candidate,
        expected=expected,
        compared=compared,
        comparison=comparison,
        strata=strata,
        observers=(of_padding, *gold.values(), *matches.values()),
        positions={**{name: item.mask for name, item in padding.items()}, **expected.positions},
        kept=frozenset((*compared, *rules.matched)),
        repeats=repeats,
        left_out=rows_left_out,
        workspace=workspace,
        number=rules.passes,
    )
    digest = passes.run(read, progress)
    measurement = comparison.finish()
    plan = JudgePlan(rules=rules, limits=limits, profiles=profiles, left_out=rows_left_out.rows)
    checks = judge(measurement, plan)
    by_stratum = strata.finish()
    metrics = {name: item.finish(seed=rules.seed) for name, item in gold.items()}
    matched = {name: item.finish() for name, item in matches.items()}
    looked_at = {*compared, *rules.matched, *rules.ignored}
    others = sorted((expected.output_names | candidate.output_names) - looked_at) if rules.outputs else []
    return GateResult(
        measurement=measurement,
        checks=(
            *map(_health_check, expected.health),
            *noise_checks(expected.noise, limits, profiles),
            *checks,
            *resolution_checks(rules.tolerance, profiles, rules.decisions, rules.columns),
            *_left_out_checks(measurement, expected.positions),
            *of_padding.finish(),
            *(judge_gold(item, min_rows=rules.min_rows) for item in metrics.values()),
            *(check for item in matched.values() for check in judge_matches(item)),
            *(check for item in repeats for check in item.finish()),
            *strata_coverage(by_stratum),
            *(check for item in matched.values() for check in detections_coverage(item)),
            *(
                Check(name="fixed_dims", status=Status.WARNING, words=say("fixed_dims", cause=text))
                for text in candidate.warnings
            ),
        ),
        limits=limits,
        samples_digest=digest,
        left_out=tuple(others),
        strata=by_stratum,
        looks_like=symptoms_of(measurement, checks, by_stratum, profiles),
        gold=metrics,
        matches=matched,
    )


def _gold_comparison(rule: GoldRule, rules: GateRules) -> GoldComparison:
    decision = next((item for item in rules.decisions if item.output == rule.output), None)
    return GoldComparison(rule, decision, rules.strata)


def _left_out_checks(measured: Measurement, positions: Mapping[str, ValidWhere]) -> Iterator[Check]:
    """Yield a check with the number of positions that count, for each output; it never fails."""
    for name, where in positions.items():
        statistics = measured.statistics.get(name)
        if statistics is not None:
            values, left_out = statistics.values, statistics.left_out
            words = say("valid_where", values=values, every=values + left_out, input=where.input, left_out=left_out)
            yield Check(name="valid_where", status=Status.PASS, words=words, output=name, rows=statistics.rows)


def _check_positions(expected: ExpectedOutputs, rules: GateRules) -> None:
    recorded = {name: where.input for name, where in expected.positions.items()}
    if recorded != dict(rules.valid_where):
        listed = [
            ", ".join(f"{a}={b}" for a, b in sorted(each.items())) or "none" for each in (recorded, rules.valid_where)
        ]
        msg = f"the reference was recorded with valid_where {listed[0]}, and asked is {listed[1]}: its scale is another"
        raise UsageError(
            msg,
            hint="compare with the model itself, or record it again by a spec that says outputs: "
            "{OUTPUT: {valid_where: INPUT}}: convert-and-validate record --run DIR",
        )


def _health_check(found: Health) -> Check:
    # A check that did not run did not pass, and a fault of the reference is none of the candidate.
    status = Status.PASS if found.kind is Kind.MEASURED else Status.WARNING
    return Check(name=found.name, status=status, kind=found.kind, words=found.words)


def _check_ignored(candidate: Candidate, expected: ExpectedOutputs, rules: GateRules) -> None:
    names = expected.output_names | candidate.output_names
    for name in rules.ignored:
        if name not in names:
            msg = f"output {name!r} cannot be ignored because neither side has it (outputs: {', '.join(sorted(names))})"
            raise UsageError(msg, hint="ignore outputs by the names compared by")
        if name in rules.outputs:
            msg = f"output {name!r} is both selected and ignored"
            raise UsageError(msg, hint="leave it out of --outputs, or do not ignore it")


def check_asked(outputs: Mapping[str, str], rules: GateRules) -> tuple[str, ...]:
    """Return the outputs that are compared value by value, after a check that the rules fit the outputs.

    `outputs` has the dtype of each of the reference's outputs.

    Raises:
        UsageError: A rule names an output that does not exist, or whose dtype does not fit.
    """
    check_selected(rules.outputs, outputs)
    chosen = tuple(name for name in rules.outputs or tuple(outputs) if name not in rules.ignored)
    check_some_left(chosen, rules.ignored)
    uses = {rule.output: f"decision {rule}" for rule in rules.decisions}
    uses |= {name: "argmax_of" for pair in rules.argmax_of.items() for name in pair}
    uses |= {rule.output: f"gold {rule}" for rule in rules.gold}
    check_match_rules(rules.matches, chosen, uses)
    compared = tuple(name for name in chosen if name not in rules.matched)
    check_gold_rules(rules.gold, compared)
    _check_valid_where(rules, chosen)
    _check_decisions(rules)
    for decision in rules.decisions:
        if decision.output not in compared:
            msg = f"decision {decision} is on an output that is not compared (compared: {', '.join(compared)})"
            raise UsageError(msg, hint=f"decide on one of the outputs compared{meant(decision.output, compared)}")
        dtype = outputs[decision.output]
        if not is_float_dtype(dtype):
            msg = f"decision {decision} is on an output of dtype {dtype}, which is compared exactly"
            raise UsageError(
                msg,
                hint="decide on the float scores; for labels write argmax_of: {LABEL: SCORES}, "
                "or --argmax-of LABEL=SCORES",
            )
    named = [
        *((rule, name) for rule, name, _ in rules.floors()),
        *(("tolerance", name) for name in rules.tolerance.outputs),
    ]
    _check_floats(named, {name: outputs[name] for name in compared})
    for label, scores in rules.argmax_of.items():
        if label not in compared or scores not in compared:
            msg = f"argmax_of {label}={scores}: both must be outputs that are compared ({', '.join(compared)})"
            raise UsageError(msg, hint=_LABEL_FIRST)
        if not is_integer_dtype(outputs[label]) or not is_float_dtype(outputs[scores]):
            msg = f"argmax_of {label}={scores}: the first must be an integer output, the second a float one"
            raise UsageError(msg, hint=_LABEL_FIRST)
    return compared


def _check_floats(named: Iterable[tuple[str, str]], compared: Mapping[str, str]) -> None:
    """Check that rules name float outputs; `compared` has the dtypes."""
    floats = [name for name, dtype in compared.items() if is_float_dtype(dtype)]
    for rule, name in named:
        if name not in floats:
            there_are = ", ".join(floats) or "none"
            msg = f"{rule} names {name!r}, which is not a float output that is compared (there are: {there_are})"
            raise UsageError(msg, hint=f"name one of these{meant(name, floats)}")


def _check_valid_where(rules: GateRules, chosen: Collection[str]) -> None:
    for name, mask in rules.valid_where.items():
        if name not in chosen:
            msg = f"valid_where {name}={mask} names {name!r}, which is not an output that is compared"
            raise UsageError(msg, hint=f"outputs compared are: {', '.join(chosen)}")


def _check_decisions(rules: GateRules) -> None:
    outputs = [decision.output for decision in rules.decisions]
    for decision in rules.decisions:
        if outputs.count(decision.output) > 1:
            msg = f"output {decision.output!r} has {outputs.count(decision.output)} decisions, and only one is counted"
            raise UsageError(msg, hint="give one decision an output, and compare once for each of the others")
    unused = sorted(rules.tolerance.declared & DECISION_LIMITS)
    if unused and not (rules.decisions or rules.argmax_of):
        msg = f"tolerance {unused[0]} is declared, but no decision is"
        raise UsageError(
            msg,
            hint="declare it: decisions: {OUTPUT: {threshold: V}} in the spec, or --decision OUTPUT:threshold=V",
        )


def _compare_names(
    comparison: OutputComparison,
    candidate: Candidate,
    expected: ExpectedOutputs,
    compared: tuple[str, ...],
    rules: GateRules,
) -> None:
    has = sorted(candidate.output_names) or ["none"]
    for name in (*compared, *rules.matched):
        if name not in candidate.output_names:
            comparison.violate("outputs", name, say("contract.no_output", output=name, outputs=has))
    if not rules.outputs:
        for name in sorted(candidate.output_names - set(expected.profiles) - set(rules.ignored)):
            comparison.violate("outputs", name, say("contract.more_output", output=name))
    for name in compared:
        labels, wanted = (list(side.classes.get(name, ())) for side in (candidate, expected))
        if labels and wanted and labels != wanted:
            words = say("contract.classes", output=name, found=str(labels), wanted=str(wanted))
            comparison.violate("classes", name, words)
    if candidate.input_names is not None and expected.inputs is not None:
        _compare_inputs(comparison, candidate.input_names, expected.inputs)


def _compare_inputs(comparison: OutputComparison, actual: frozenset[str], expected: frozenset[str]) -> None:
    lacks, more = sorted(expected - actual), sorted(actual - expected)
    if lacks and more:
        # Both lists show whether names differ or the models are unrelated.
        words = say("contract.takes", expected_names=sorted(expected), actual_names=sorted(actual))
        comparison.violate("inputs", None, words)
        return
    for name in lacks:
        comparison.violate("inputs", None, say("contract.no_input", input=name))
    for name in more:
        comparison.violate("inputs", None, say("contract.more_input", input=name))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Passes:
    """All passes over the sequence of batches, each in step with the expected outputs.

    The first pass stores the outputs of `kept`, and later passes are compared with it. Both sides run on the rows of
    `left_out` too, because other batches than the reference's can change the outputs of the remaining rows.
    """

    candidate: Candidate
    expected: ExpectedOutputs
    compared: tuple[str, ...]
    comparison: OutputComparison
    strata: StratifiedComparison
    observers: tuple[_Observer, ...]
    positions: Mapping[str, ValidWhere]
    kept: frozenset[str]
    repeats: tuple[MatchRepeats, ...]
    left_out: RowsLeftOut
    workspace: Path
    number: int

    def run(self, read: Callable[[], Iterator[Batch]], progress: Callable[[int, int], None]) -> str:
        """Run every pass, and return the digest of the samples."""
        first_pass = ChunkWriter(self.workspace) if self.number > 1 else None
        digest_of_first = ""
        for number in range(1, self.number + 1):
            stored: Iterator[StoredBatch] | None = None
            if first_pass is not None and number > 1:
                stored = read_chunks(self.workspace, first_pass.chunks)
            digest = self._run_pass(read, first_pass, stored, functools.partial(progress, number))
            digest_of_first = digest_of_first or digest
            if digest != digest_of_first:
                msg = f"the samples of pass {number} are not those of the first: their digests differ"
                raise MeasurementError(msg, hint="a function that yields samples must yield the same ones every time")
        return digest_of_first

    def _run_pass(
        self,
        read: Callable[[], Iterator[Batch]],
        first_pass: ChunkWriter | None,
        stored: Iterator[StoredBatch] | None,
        progress: Callable[[int], None],
    ) -> str:
        self.candidate.start_pass()
        reader = self.expected.open_reader()
        digest = BatchDigest()
        self.left_out.start()
        for whole in read():
            if whole.rows == 0:
                continue
            digest.add(whole)
            wanted = only_valid(reader.take(whole), whole.inputs, self.positions)
            is_kept = self.left_out.rows_to_keep(whole)
            if not any(is_kept):
                continue
            batch = rows_kept(whole, is_kept)
            outputs = self._compare(whole, batch, wanted, is_kept)
            if stored is not None:
                self._hold_to_first(batch, outputs, like(next(stored).outputs, _rows_of(wanted, is_kept)))
            elif first_pass is not None:
                first_pass.add(outputs, rows=batch.rows, case=batch.case)
            progress(digest.rows)
        if first_pass is not None:
            first_pass.flush()
        if digest.rows == 0:
            msg = "the samples hold no rows"
            raise ZeroRowsError(msg, hint="give at least one row: nothing was measured, so nothing passes")
        reader.end(digest.value)
        self.candidate.end_pass(digest.value)
        self.comparison.end_pass()
        self.strata.end_pass()
        for observer in self.observers:
            observer.end_pass()
        return digest.value

    def _compare(
        self, whole: Batch, batch: Batch, wanted: Mapping[str, NDArray[np.generic]], is_kept: list[bool]
    ) -> Mapping[str, NDArray[np.generic]]:
        """Compare the kept rows of a batch, and return the candidate's outputs to store."""
        answered = _answer(self.candidate, whole.with_answer(wanted), self.comparison, self.expected)
        if answered is None:
            return {}
        actual, wanted = _rows_of(answered, is_kept), _rows_of(wanted, is_kept)
        expected = {name: wanted[name] for name in self.compared}
        self.comparison.add(batch, actual, expected)
        self.strata.add(batch, actual, expected)
        for observer in self.observers:
            observer.add(batch, actual, wanted)
        return {name: array for name, array in actual.items() if self._is_kept(name, array)}

    def _hold_to_first(
        self, batch: Batch, again: Mapping[str, NDArray[np.generic]], first: Mapping[str, NDArray[np.generic]]
    ) -> None:
        self.comparison.add_repeat(first, again)
        for repeat in self.repeats:
            repeat.add(batch, again, first)

    def _is_kept(self, name: str, array: NDArray[np.generic]) -> bool:
        # An output without numbers breaks the contract, and cannot be stored.
        return name in self.kept and is_comparable_dtype(dtype_name(array.dtype))


def _rows_of(outputs: Mapping[str, NDArray[np.generic]], is_kept: list[bool]) -> dict[str, NDArray[np.generic]]:
    """Return the kept rows of each output; an output without rows stays whole."""
    if all(is_kept):
        return dict(outputs)
    return {
        name: array[is_kept] if array.ndim and array.shape[0] == len(is_kept) else array
        for name, array in outputs.items()
    }


def _answer(
    candidate: Candidate, batch: Batch, comparison: OutputComparison, expected: ExpectedOutputs
) -> dict[str, NDArray[np.generic]] | None:
    try:
        return candidate.answer(batch)
    except RefusedInputsError as err:
        if expected.inputs is None and isinstance(err.__cause__, UsageError):
            # Nothing shows that the reference took these inputs, so the samples are wrong.
            raise err.__cause__ from None
        comparison.refuse(batch, str(err))
        return None
