"""The rules for a candidate, as one object that the spec or the command line makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from paritygate.precision import Precision
from paritygate.text import StrEnum
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.gold.rule import GoldRule
from paritygate.validate.measure.decisions import Decision
from paritygate.validate.measure.tolerance import Tolerance


class EdgeRule(StrEnum):
    """The status of a difference in a generated row that is unlike every sample."""

    FAIL = "fail"
    WARN = "warn"
    OFF = "off"


class Floor(Struct, frozen=True, kw_only=True):
    """A rule that requires a least figure of a float output: names of statistics in `DiffStatistics`."""

    figure: str
    row: str = ""  # the id of the lowest row; empty if the figure is of all rows together


# By the name of the rule, of its check and of its field in `GateRules`.
FLOORS: Mapping[str, Floor] = {
    "min_cosine_similarity": Floor(figure="min_cosine_similarity", row="min_cosine_similarity_id"),
    "min_sqnr": Floor(figure="sqnr_db"),
}


class GateRules(Struct, frozen=True, kw_only=True):
    """The rules by which a candidate passes or fails. Mappings are by output."""

    tolerance: Tolerance
    decisions: tuple[Decision, ...] = ()
    outputs: tuple[str, ...] = ()  # to compare; empty for all
    argmax_of: Mapping[str, str] = field(default_factory=dict)  # by an integer output, its scores
    gold: tuple[GoldRule, ...] = ()
    matches: tuple[MatchRule, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)  # the reasons
    axes: Mapping[str, int] = field(default_factory=dict)  # channel axes
    passes: int = 1  # over the whole sequence of batches
    min_rows: int = 1  # fewer are inconclusive
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names, for messages
    is_non_finite_declared: bool = False  # NaN and infinity of the reference are correct
    min_cosine_similarity: Mapping[str, float] = field(default_factory=dict)  # of the two outputs for any row
    min_sqnr: Mapping[str, float] = field(default_factory=dict)  # in decibels
    valid_where: Mapping[str, str] = field(default_factory=dict)  # the input that is set where positions count
    strata: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()  # in the order of the catalogue
    edge: EdgeRule = EdgeRule.WARN
    seed: int = 0  # of all random choices: rows that run twice, probes, resamples for intervals

    @property
    def precision(self) -> Precision:
        """The precision that selects the limits."""
        return self.tolerance.precision

    @property
    def matched(self) -> tuple[str, ...]:
        """The outputs of detections, which are not compared value by value."""
        return tuple(name for rule in self.matches for name in rule.outputs)

    def outputs_named(self) -> Iterator[str]:
        """Yield every output that a rule names, some more than once."""
        yield from self.outputs
        yield from (decision.output for decision in self.decisions)
        yield from (rule.output for rule in self.gold)
        yield from (name for pair in self.argmax_of.items() for name in pair)
        yield from (*self.matched, *self.ignored, *self.axes, *self.valid_where)
        yield from (*self.tolerance.outputs, *self.columns, *(output for _, output, _ in self.floors()))

    def floors(self) -> Iterator[tuple[str, str, float]]:
        """Yield the name of each rule of `FLOORS`, its output and its least figure."""
        return ((name, output, least) for name in FLOORS for output, least in getattr(self, name).items())
