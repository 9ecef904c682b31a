"""All that is measured of both sides' outputs, batch by batch, and its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast

from msgspec import Struct, field

from paritygate.batch import Arrays, Batch
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.judgement import detections_coverage, judge_matches
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.repeats import MatchRepeats
from paritygate.validate.gate.candidate import Facts
from paritygate.validate.gate.resolution import resolution_checks
from paritygate.validate.gate.rule_checks import check_asked, check_positions
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.symptoms import symptoms_of
from paritygate.validate.gate.undeclared_padding import PaddingComparison
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.gold.figures import GoldStatistics
from paritygate.validate.gold.judgement import judge_gold
from paritygate.validate.gold.measurement import GoldComparison
from paritygate.validate.gold.rule import GoldRule
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.limits import Limits, limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, ExactFigures, Measurement, OutputComparison
from paritygate.validate.measure.strata import StratifiedComparison, strata_coverage
from paritygate.validate.measure.valid_positions import ValidWhere
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.noise_floor import noise_checks
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.words.sentence import say


class GateResult(Struct, frozen=True, kw_only=True):
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


class _State(ExactFigures, Protocol):
    """Figures that take in those of the rows that come next."""

    def take_in(self, other: Any) -> None: ...  # noqa: ANN401 - of its own class


class _Measure(_State, Protocol):
    """One measurement of both sides' outputs."""

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None: ...

    def end_pass(self) -> None: ...


class Measures:
    """Measures both sides' outputs by some rules; `compare` measures value by value."""

    def __init__(
        self, expected: ExpectedOutputs, rules: GateRules, compare: Callable[..., OutputComparison] = OutputComparison
    ) -> None:
        check_positions(expected, rules)
        self.rules = rules
        self._expected = expected
        self.compared = check_asked({name: profile.dtype for name, profile in expected.profiles.items()}, rules)
        self._profiles = {name: expected.profiles[name] for name in self.compared}
        self.limits = {name: limits_for(rules.tolerance, profile) for name, profile in self._profiles.items()}
        plan = ComparisonPlan(
            profiles=self._profiles,
            limits=self.limits,
            decisions={decision.output: decision for decision in rules.decisions},
            argmax_of=rules.argmax_of,
        )
        padding = {name: item for name, item in expected.padding.items() if name in self.compared}
        # Only positions that count are compared.
        self.positions = {**{name: item.mask for name, item in padding.items()}, **expected.positions}
        self._comparison = compare(plan, is_drawn=True)
        self._strata = StratifiedComparison(plan, rules.strata, compare)
        self._padding = PaddingComparison(padding, rules, compare)
        self._gold = {str(rule): _gold_comparison(rule, rules) for rule in rules.gold}
        self._matches = {rule.name: MatchComparison(rule, rules.strata) for rule in rules.matches}
        self._match_repeats = tuple(MatchRepeats(rule) for rule in rules.matches)
        # Those of outputs that are compared, by their names in JSON data.
        self._parts: dict[str, _Measure] = {
            "outputs": cast("_Measure", self._comparison),
            "strata": self._strata,
            "padding": self._padding,
            **{f"gold {name}": item for name, item in self._gold.items()},
        }
        self._states: dict[str, _State] = {
            **self._parts,
            **{f"match {name}": item for name, item in self._matches.items()},
            **{f"repeats {name}": item for name, item in zip(self._matches, self._match_repeats, strict=True)},
        }

    def compare_names(self, candidate: Facts) -> None:
        """Compare the names of inputs, outputs and classes."""
        _compare_names(self._comparison, candidate, self._expected, self.compared, self.rules)

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Add one batch: all outputs of both sides."""
        compared = {name: expected[name] for name in self.compared}
        for part in self._parts.values():
            part.add(batch, actual, compared)
        for matched in self._matches.values():
            matched.add(batch, actual, expected)

    def add_repeat(self, batch: Batch, again: Arrays, first: Arrays) -> None:
        """Add the candidate's outputs of one batch in a later and in the first pass."""
        self._comparison.add_repeat(first, again)
        for repeat in self._match_repeats:
            repeat.add(batch, again, first)

    def refuse(self, batch: Batch, reason: str) -> None:
        """Add a batch that the candidate refused."""
        self._comparison.refuse(batch, reason)

    def end_pass(self) -> None:
        """Mark the end of the sequence of batches."""
        for part in self._parts.values():
            part.end_pass()
        for matched in self._matches.values():
            matched.end_pass()

    def take_in(self, other: Measures) -> None:
        """Add the figures of the rows that come next, by the same rules, from ended passes."""
        for own, more in zip(self._states.values(), other._states.values(), strict=True):
            own.take_in(more)

    def to_data(self) -> dict[str, Any]:
        """Return the exact figures of ended passes as JSON data."""
        return {name: state.to_data() for name, state in self._states.items()}

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the measures whose `to_data` these are; raise ValueError or KeyError for anything else."""
        for name, state in self._states.items():
            state.read(data[name])

    @property
    def rows_beyond(self) -> int:
        """The rows beyond the limits, of the output that has the most."""
        return max((pattern.beyond for pattern in self._comparison.patterns.values()), default=0)

    def checks(self) -> tuple[Check, ...]:
        """Return the checks of the figures value by value, so far."""
        return self._judged(self._comparison.finish(), 0)

    def _judged(self, measurement: Measurement, left_out: int) -> tuple[Check, ...]:
        plan = JudgePlan(rules=self.rules, limits=self.limits, profiles=self._profiles, left_out=left_out)
        return judge(measurement, plan)

    def finish(self, candidate: Facts, *, samples_digest: str, left_out: int = 0) -> GateResult:
        """Return all figures and their checks; `left_out` counts the rows that are not compared."""
        rules, expected = self.rules, self._expected
        measurement = self._comparison.finish()
        checks = self._judged(measurement, left_out)
        strata = self._strata.finish()
        gold = {name: item.finish(seed=rules.seed) for name, item in self._gold.items()}
        matches = {name: item.finish() for name, item in self._matches.items()}
        looked_at = {*self.compared, *rules.matched, *rules.ignored}
        others = sorted((expected.output_names | candidate.output_names) - looked_at) if rules.outputs else []
        return GateResult(
            measurement=measurement,
            checks=(
                *map(_health_check, expected.health),
                *noise_checks(expected.noise, self.limits, self._profiles),
                *checks,
                *resolution_checks(rules.tolerance, self._profiles, rules.decisions, rules.columns),
                *_left_out_checks(measurement, expected.positions),
                *self._padding.finish(),
                *(judge_gold(item, min_rows=rules.min_rows) for item in gold.values()),
                *(check for item in matches.values() for check in judge_matches(item)),
                *(check for item in self._match_repeats for check in item.finish()),
                *strata_coverage(strata),
                *(check for item in matches.values() for check in detections_coverage(item)),
                *(
                    Check(name="fixed_dims", status=Status.WARNING, words=say("fixed_dims", cause=text))
                    for text in candidate.warnings
                ),
            ),
            limits=self.limits,
            samples_digest=samples_digest,
            left_out=(*others, *expected.unread),
            strata=strata,
            looks_like=symptoms_of(measurement, checks, strata, self._profiles),
            gold=gold,
            matches=matches,
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


def _health_check(found: Health) -> Check:
    # A check that did not run did not pass, and a fault of the reference is none of the candidate.
    status = Status.PASS if found.kind is Kind.MEASURED else Status.WARNING
    return Check(name=found.name, status=status, kind=found.kind, words=found.words)


def _compare_names(
    comparison: OutputComparison,
    candidate: Facts,
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
