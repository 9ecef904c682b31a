"""The table of the gate's rules: one row a rule, in the order of the help."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.validate.measure.bounds import COVERED_ROWS

if TYPE_CHECKING:
    from paritygate.validate.gate.rules import EdgeRule, GateRules

ABOUT_OUTPUTS = "Options about outputs and inputs"
ABOUT_VERDICT = "Options about the verdict"


class Kind(Enum):
    """The form of a value; options of all but the first four may be repeated."""

    TEXT = auto()
    CHOICE = auto()
    WHOLE = auto()
    PROBES = auto()
    TEXTS = auto()
    # By name: a decision, a reason, a limit, a text, a number, a whole number, a role.
    DECISIONS = auto()
    REASONS = auto()
    LIMITS = auto()
    PAIRS = auto()
    NUMBERS = auto()
    WHOLE_NUMBERS = auto()
    ROLES = auto()


class Scope(Enum):
    """The printed commands that repeat a rule."""

    # Describes an output: applies to each comparison of these models.
    OUTPUTS = auto()
    # Limits the difference: does not apply to a server that runs the released file.
    LIMITS = auto()
    # Selects the generated rows: applies where they are generated again.
    PROBES = auto()


class Laxer(Enum):
    """List which value of a rule requires less of a candidate than another."""

    # A lower number, or none; by output where the rule is.
    LOWER = auto()
    # Limits: higher ones, or a declared one that is gone.
    LIMITS = auto()
    # Fewer names of what is checked.
    FEWER = auto()
    # More names of what is left out.
    MORE = auto()
    # A later one of the texts to choose from.
    LATER = auto()


class Strictness(Struct, frozen=True):
    """Describe how a rule requires less than before; after a failure that needs a reason."""

    laxer: Laxer
    words: str = ""  # `{names}` of `FEWER` are gone; `{name}` of `MORE` is new with its `{value}`
    recorded: Callable[[GateRules], Any] | None = None  # the record in evidence; by default the value


class RuleOption(Struct, frozen=True):
    """A rule, or a setting that both the command `compare` and the function take by name."""

    argument: str  # in Python, and the name of the rule in evidence
    option: str  # with the placeholder of its value
    kind: Kind
    help: str
    default: str | int | None = None  # of an option that is not repeated
    least: int = 0
    allowed: tuple[str, ...] = ()
    example: str = ""  # of the option's value, for hints
    section: str = ABOUT_VERDICT  # of the help; empty for that of all other options
    scope: Scope | None = None  # the printed commands that repeat the rule
    field: str = ""  # of `GateRules`, if the rule alone makes one
    key: str = ""  # of the spec; `outputs.KEY` is below each output; empty if the spec has another form
    made: Callable[[Any], Any] = lambda value: value  # makes the field
    read: Callable[[GateRules], Any] | None = None  # returns the value; by default that of the field
    strictness: Strictness | None = None  # None if the rule cannot ask less, or needs a reason of its own

    @property
    def name(self) -> str:
        """The option alone."""
        return self.option.partition(" ")[0]

    def value_in(self, rules: GateRules) -> Any:  # noqa: ANN401 - each rule has its own type
        """Return the value that rules have."""
        return getattr(rules, self.field) if self.read is None else self.read(rules)


def _constants(rules: GateRules) -> dict[str, str]:
    return {rule.output: rule.constant for rule in rules.decisions if rule.constant}


def _declared_limits(rules: GateRules) -> dict[str, str]:
    from paritygate.validate.gate.declared_limits import limit_in_text

    tolerance = rules.tolerance
    of_outputs = {
        f"{output}:{name}": limit_in_text(values)
        for output, declared in tolerance.outputs.items()
        for name, values in declared.items()
    }
    return {name: repr(getattr(tolerance, name)) for name in sorted(tolerance.declared)} | of_outputs


def _gold(texts: tuple[str, ...]) -> tuple[Any, ...]:
    from paritygate.validate.gold.rule import parse_gold_rule

    return tuple(map(parse_gold_rule, texts))


def _limited_metrics(rules: GateRules) -> list[str]:
    return [str(rule) for rule in rules.gold if rule.ratio is not None or rule.max_drop is not None]


def _matches(texts: tuple[str, ...]) -> tuple[Any, ...]:
    from paritygate.validate.detections.rule import parse_match_rule

    return tuple(map(parse_match_rule, texts))


def _probes(names: tuple[str, ...] | None) -> tuple[str, ...]:
    from paritygate.validate.probes.catalogue import ALL_PROBES

    return tuple(ALL_PROBES) if names is None else names


def _edge(value: str) -> EdgeRule:
    from paritygate.validate.gate.rules import EdgeRule

    return EdgeRule(value)


def _cosines(values: Mapping[str, float]) -> Mapping[str, float]:
    for output, cosine in values.items():
        if not -1 <= cosine <= 1:
            msg = f"min_cosine_similarity {output}={cosine:g} is not a cosine similarity (allowed: -1 to 1)"
            raise UsageError(msg, hint=f"write for example {output}=0.999")
    return values


def _decibels(values: Mapping[str, float]) -> Mapping[str, float]:
    for output, ratio in values.items():
        if not math.isfinite(ratio):
            msg = f"min_sqnr is wrong (got {output}={ratio:g}, expected a finite number of dB)"
            raise UsageError(msg, hint=f"write for example {output}=40")
    return values


RULES: tuple[RuleOption, ...] = (
    RuleOption(
        "precision",
        "--precision",
        Kind.TEXT,
        "Precision of the candidate: selects the default tolerances.",
        default="fp32",
        section="",
        scope=Scope.LIMITS,
        read=lambda rules: str(rules.precision),
    ),
    RuleOption(
        "decisions",
        "--decision OUTPUT:RULE",
        Kind.DECISIONS,
        "How an output becomes an answer: logits:threshold=3 (positive is above; threshold=>=3 for at least), "
        "logits:argmax, logits:top_k=5, logits:multilabel=0.5, each with ,axis=N (needed above rank 2).",
        section="",
        scope=Scope.OUTPUTS,
        read=lambda rules: rules.decisions,
        strictness=Strictness(
            Laxer.FEWER, "no decision on {names}", lambda rules: [decision.output for decision in rules.decisions]
        ),
    ),
    RuleOption(
        "constant_decisions",
        "--constant-decision OUTPUT=REASON",
        Kind.REASONS,
        "Why it is right, below FP32, that all rows are decided alike; recorded.",
        example="all rows are of one class",
        scope=Scope.OUTPUTS,
        read=_constants,
    ),
    RuleOption(
        "tolerance",
        "--tolerance [OUTPUT:]NAME=VALUE",
        Kind.LIMITS,
        "A limit in place of the default: max_abs_diff, mean_abs_diff, max_row_rel_diff, "
        "repeat_max_abs_diff, decision_mismatches, mismatch_rate_upper_95. OUTPUT:NAME=V,default,... sets one a "
        "column.",
        example="max_abs_diff=1e-3",
        scope=Scope.LIMITS,
        read=_declared_limits,
        strictness=Strictness(Laxer.LIMITS, recorded=lambda rules: rules.tolerance),
    ),
    RuleOption(
        "repeat",
        "--repeat",
        Kind.WHOLE,
        "Run the whole sequence of batches this often in one session, and compare every pass.",
        default=1,
        least=1,
        field="passes",
        key="repeat",
        strictness=Strictness(Laxer.LOWER),
    ),
    RuleOption(
        "rename",
        "--map CANDIDATE=REFERENCE",
        Kind.PAIRS,
        "The candidate's name for an input or output, and the reference's.",
        example="output_0=logits",
        section=ABOUT_OUTPUTS,
    ),
    RuleOption(
        "signatures",
        "--signature SIDE=NAME",
        Kind.PAIRS,
        "Which signature of a SavedModel is meant, where it is not serving_default: reference=NAME, candidate=NAME.",
        example="reference=serving_default",
        section=ABOUT_OUTPUTS,
    ),
    RuleOption(
        "takes",
        "--takes SIDE=NAME,...",
        Kind.PAIRS,
        "The columns that one side takes, if the other takes other columns of the same rows: candidate=text. "
        "Then no probes run.",
        example="candidate=text",
        section=ABOUT_OUTPUTS,
    ),
    RuleOption(
        "outputs",
        "--outputs NAME",
        Kind.TEXTS,
        "Compare these outputs only; the others are recorded as left out.",
        section=ABOUT_OUTPUTS,
        scope=Scope.LIMITS,
        field="outputs",
    ),
    RuleOption(
        "argmax_of",
        "--argmax-of LABEL=SCORES",
        Kind.PAIRS,
        "Declare an integer output the argmax of another, or the ids of its best scores: it may differ where the "
        "scores are within the limits.",
        example="label=logits",
        section=ABOUT_OUTPUTS,
        scope=Scope.OUTPUTS,
        field="argmax_of",
        key="argmax_of",
    ),
    RuleOption(
        "gold",
        "--gold METRIC:OUTPUT",
        Kind.TEXTS,
        "A metric against the gold labels: pearson:logits, spearman, accuracy, f1, f1_macro, auc or "
        "MODULE:CALLABLE:OUTPUT. Add a limit with ,ratio=0.99 ,mlperf=99 (or 99.9) or ,max_drop=D. Use "
        ",gold_above=V to turn gold values into labels.",
        field="gold",
        made=_gold,
        strictness=Strictness(Laxer.FEWER, "no limit of the gold metric {names}", _limited_metrics),
    ),
    RuleOption(
        "matches",
        "--match NAME:boxes=B,scores=S,...",
        Kind.TEXTS,
        "Outputs that are lists of detections, matched before they are compared: NAME:boxes=B,scores=S with "
        ",classes=C ,num=N ,iou=0.9 ,score_tolerance=0.01 ,score_floor=0.3 ,max_box_diff=D ,format=xyxy|xywh|cxcywh. "
        "Detections in one output: NAME:output=O,boxes=0:4,scores=4,classes=5 with ,axis=1 ,picture=0 "
        ",other_tolerance=D.",
        section=ABOUT_OUTPUTS,
        scope=Scope.OUTPUTS,
        field="matches",
        made=_matches,
    ),
    RuleOption(
        "ignore",
        "--ignore OUTPUT=REASON",
        Kind.REASONS,
        "Do not compare this output; recorded with the reason.",
        example="random by design",
        section=ABOUT_OUTPUTS,
        scope=Scope.OUTPUTS,
        field="ignored",
        key="outputs.ignore",
    ),
    RuleOption(
        "axes",
        "--axis OUTPUT=N",
        Kind.WHOLE_NUMBERS,
        "The channel axis of an output, whose entries get scales of their own.",
        example="logits=1",
        section=ABOUT_OUTPUTS,
        scope=Scope.OUTPUTS,
        field="axes",
        key="axes",
    ),
    RuleOption(
        "min_cosine_similarity",
        "--min-cosine-similarity OUTPUT=V",
        Kind.NUMBERS,
        "The least cosine similarity of the two answers to any row, -1 to 1.",
        example="embedding=0.999",
        field="min_cosine_similarity",
        key="outputs.min_cosine_similarity",
        made=_cosines,
        strictness=Strictness(Laxer.LOWER),
    ),
    RuleOption(
        "min_sqnr",
        "--min-sqnr OUTPUT=DB",
        Kind.NUMBERS,
        "The least signal-to-quantization-noise ratio of an output, in dB.",
        example="embedding=40",
        field="min_sqnr",
        key="outputs.min_sqnr",
        made=_decibels,
        strictness=Strictness(Laxer.LOWER),
    ),
    RuleOption(
        "valid_where",
        "--valid-where OUTPUT=INPUT",
        Kind.PAIRS,
        "Which positions of an output count: those where the input is set, such as logits=attention_mask.",
        example="logits=attention_mask",
        section=ABOUT_OUTPUTS,
        scope=Scope.OUTPUTS,
        field="valid_where",
        key="outputs.valid_where",
        strictness=Strictness(
            Laxer.MORE, "{name} is compared only where {value} is set", lambda rules: list(rules.valid_where)
        ),
    ),
    RuleOption(
        "roles",
        "--role INPUT=ROLE",
        Kind.ROLES,
        "The role of an input: id, mask, length, image, number or text, or a mapping such as "
        "attention_mask={empty: false, padding: right}.",
        example="attention_mask=mask",
        section=ABOUT_OUTPUTS,
    ),
    RuleOption(
        "non_finite",
        "--non-finite",
        Kind.CHOICE,
        "Refuse a reference with NaN or infinity, or declare that they belong there and must match.",
        default="refuse",
        allowed=("refuse", "match"),
        section=ABOUT_OUTPUTS,
        scope=Scope.OUTPUTS,
        field="is_non_finite_declared",
        key="non_finite",
        made=lambda value: value == "match",
        read=lambda rules: "match" if rules.is_non_finite_declared else "refuse",
    ),
    RuleOption(
        "min_rows",
        "--min-rows",
        Kind.WHOLE,
        "Fewer rows are inconclusive.",
        default=COVERED_ROWS,
        least=1,
        field="min_rows",
        key="min_rows",
    ),
    RuleOption(
        "seed",
        "--seed",
        Kind.WHOLE,
        "Seed of the choice of rows that the reference answers twice.",
        default=0,
        scope=Scope.PROBES,
        field="seed",
        key="seed",
    ),
    RuleOption(
        "probes",
        "--probes none|NAME,...",
        Kind.PROBES,
        "Ask only these of the inputs that are derived from the samples, beside the samples; all of them if absent.",
        field="probes",
        made=_probes,
        strictness=Strictness(Laxer.FEWER, "without the probes {names}"),
    ),
    RuleOption(
        "edge",
        "--edge",
        Kind.CHOICE,
        "How to treat a difference on generated inputs unlike every sample: a failure, a finding, or do not run them.",
        default="warn",
        allowed=("fail", "warn", "off"),
        scope=Scope.PROBES,
        field="edge",
        key="edge",
        made=_edge,
        strictness=Strictness(Laxer.LATER),
    ),
)
PROBES = next(rule for rule in RULES if rule.argument == "probes")
