"""What is asked of a candidate, as one object: made once by the spec or the command line, and handed on whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from paritygate.precision import Precision
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.gold.rule import GoldRule
from paritygate.validate.measure.decisions import Decision
from paritygate.validate.measure.tolerance import Tolerance


class EdgeRule(str, Enum):
    """What a difference comes to in a made-up row that is unlike every sample."""

    FAIL = "fail"
    WARN = "warn"
    OFF = "off"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """A rule that requires a least figure of a float output.

    Attributes:
        figure: The statistic of `DiffStatistics`.
        row: The statistic with the id of its lowest row; empty if the figure is of all rows together.
    """

    figure: str
    row: str = ""


# By the name of the rule, of its check and of its field in `GateRules`.
FLOORS: Mapping[str, Floor] = {
    "min_cosine_similarity": Floor(figure="min_cosine_similarity", row="min_cosine_similarity_id"),
    "min_sqnr": Floor(figure="sqnr_db"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRules:
    """The rules by which a candidate passes or fails.

    Attributes:
        tolerance: The limits, and the precision that they are for: what the candidate is judged as.
        decisions: The rules by which outputs become answers.
        outputs: The outputs to compare; empty for all.
        argmax_of: Integer output: the scores whose argmax it is.
        gold: The metrics against the gold that samples carry.
        matches: The outputs that are lists of detections, matched before they are compared.
        ignored: The outputs that are not compared, each with the reason.
        axes: The channel axis by output, where it is declared.
        passes: How often the whole sequence of batches is run.
        min_rows: Fewer rows are inconclusive.
        columns: By output, the names of its columns, for messages.
        is_non_finite_declared: Whether NaN and infinity in the reference are right.
        min_cosine_similarity: By output, the least cosine similarity of a row's two answers, each as one vector.
        min_sqnr: By output, the least signal-to-quantization-noise ratio in decibels.
        valid_where: By output, the input that says which of its positions count: those where it is set.
        strata: The strata that are measured apart.
        probes: The probes to ask, in the order of the table of those there are.
        edge: What a difference comes to in a made-up row that is unlike every sample; `off` asks none of them.
        seed: Seed of all choices: of rows that are run twice, of probes, of the resamples that intervals come from.
    """

    tolerance: Tolerance
    decisions: tuple[Decision, ...] = ()
    outputs: tuple[str, ...] = ()
    argmax_of: Mapping[str, str] = field(default_factory=dict)
    gold: tuple[GoldRule, ...] = ()
    matches: tuple[MatchRule, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    passes: int = 1
    min_rows: int = 1
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_non_finite_declared: bool = False
    min_cosine_similarity: Mapping[str, float] = field(default_factory=dict)
    min_sqnr: Mapping[str, float] = field(default_factory=dict)
    valid_where: Mapping[str, str] = field(default_factory=dict)
    strata: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    edge: EdgeRule = EdgeRule.WARN
    seed: int = 0

    @property
    def precision(self) -> Precision:
        """What the candidate is judged as."""
        return self.tolerance.precision

    @property
    def matched(self) -> tuple[str, ...]:
        """The outputs that are matched and not compared value by value."""
        return tuple(name for rule in self.matches for name in rule.outputs)

    def outputs_named(self) -> Iterator[str]:
        """Yield every output that a rule names; a name may come more than once."""
        yield from self.outputs
        yield from (decision.output for decision in self.decisions)
        yield from (rule.output for rule in self.gold)
        yield from (name for pair in self.argmax_of.items() for name in pair)
        yield from (*self.matched, *self.ignored, *self.axes, *self.valid_where)
        yield from (*self.tolerance.outputs, *self.columns, *(output for _, output, _ in self.floors()))

    def floors(self) -> Iterator[tuple[str, str, float]]:
        """Yield the name of each rule of `FLOORS`, its output and its least figure."""
        return ((name, output, least) for name in FLOORS for output, least in getattr(self, name).items())
