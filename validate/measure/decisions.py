"""Decisions: the rule that turns an output into the answer the service acts on.

No array is used here, so that commands read rules without NumPy; `flips` decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.signature import TensorSpec, is_float_dtype, is_integer_dtype
from paritygate.text import StrEnum, in_full, meant

# From this rank on, an output holds many decisions a row, and needs the axis of the classes.
RANK_NEEDING_AXIS = 3


# An output of so many columns may be scores, unless its name or width is like that of an embedding or of boxes.
_ROWS_AND_SCORES = 2


_MOST_SCORES = 1000


_OF_EMBEDDINGS = 64


_NO_SCORES = re.compile(r"embed|hidden|state|feature|pool|vector|box|coord|landmark|keypoint", re.IGNORECASE)


def undecided(outputs: Sequence[TensorSpec], decided: Collection[str]) -> str:
    """Return that outputs which may be scores of classes have no decision, and how to declare one; empty for none.

    A model that returns a whole number a row decides by itself.
    """
    names = [spec.name for spec in outputs if spec.name not in decided and _may_be_scores(spec)]
    if not names or any(is_integer_dtype(spec.dtype) and len(spec.shape or ()) == 1 for spec in outputs):
        return ""
    return (
        f"no decision is declared for {', '.join(names)}, so only differences are judged; if the service takes the "
        f"largest, add decisions: {{{names[0]}: {{argmax: true}}}}"
    )


def _may_be_scores(spec: TensorSpec) -> bool:
    shape = spec.shape or ()
    width = shape[-1] if len(shape) == _ROWS_AND_SCORES else None
    is_wide = isinstance(width, int) and 1 < width <= _MOST_SCORES and width % _OF_EMBEDDINGS != 0
    return is_wide and is_float_dtype(spec.dtype) and _NO_SCORES.search(spec.name) is None


class Rule(StrEnum):
    """The rule that turns an output into an answer."""

    THRESHOLD = "threshold"
    ARGMAX = "argmax"
    TOP_K = "top_k"
    MULTILABEL = "multilabel"


class Decision(Struct, frozen=True, kw_only=True):
    """A rule applied to one output.

    THRESHOLD and MULTILABEL: an element is positive above `threshold`, or at it if `is_inclusive`. ARGMAX: the first
    largest entry along `axis`, the last one if None. TOP_K: the set of the `k` largest entries along it. `constant` is
    the reason why all rows of the samples may have the same answer; empty without one.
    """

    output: str
    rule: Rule
    threshold: float = 0.0
    is_inclusive: bool = False
    k: int = 1
    axis: int | None = None
    constant: str = ""

    @property
    def has_threshold(self) -> bool:
        """Return whether each value is compared with one boundary."""
        return self.rule in {Rule.THRESHOLD, Rule.MULTILABEL}

    def __str__(self) -> str:
        text = {
            Rule.THRESHOLD: f"threshold={'>=' if self.is_inclusive else ''}{in_full(self.threshold)}",
            Rule.MULTILABEL: f"multilabel={'>=' if self.is_inclusive else ''}{in_full(self.threshold)}",
            Rule.ARGMAX: "argmax",
            Rule.TOP_K: f"top_k={self.k}",
        }[self.rule]
        axis = "" if self.axis is None else f",axis={self.axis}"
        return f"{self.output}:{text}{axis}"


_GRAMMAR = (
    "OUTPUT:threshold=V, OUTPUT:threshold=>=V, OUTPUT:argmax, OUTPUT:top_k=K or OUTPUT:multilabel=V, each with ,axis=N"
)


def parse_decision(text: str) -> Decision:
    """Return the decision written as `OUTPUT:RULE[=VALUE][,axis=N]`; raise UsageError for any other text."""
    # The output's own name may hold colons (TensorFlow's `dense:0`), so the rule starts after the last one.
    output, colon, rest = text.rpartition(":")
    if not colon or not output:
        msg = f"decision {text!r} is not of the form {_GRAMMAR}"
        raise UsageError(msg, hint="for example --decision logits:threshold=3")
    parts = rest.split(",")
    name, _, value = parts[0].partition("=")
    options: dict[str, Any] = {"rule": name.strip()}
    if value:
        options["value"] = value.strip()
    for part in parts[1:]:
        key, _, number = part.partition("=")
        if key.strip() != "axis" or not _is_integer(number):
            raise UsageError(f"decision {text!r} has {part.strip()!r} (expected axis=N)", hint=f"write {_GRAMMAR}")
        options["axis"] = int(number)
    return make_decision(output, **options)


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text.strip()) is not None


def make_decision(
    output: str, *, rule: str, value: str | float | bool | None = None, axis: int | None = None
) -> Decision:
    """Return the decision with this rule and value of the command line or spec; raise UsageError for a misfit."""
    rules = [str(rule) for rule in Rule]
    if rule not in rules:
        msg = f"decision rule {rule!r} of {output!r} is not known (allowed: {', '.join(rules)}){meant(rule, rules)}"
        raise UsageError(msg, hint=f"write {_GRAMMAR}")
    kind = Rule(rule)
    if kind is Rule.ARGMAX:
        if value not in {None, "", True}:
            msg = f"decision argmax of {output!r} takes no value (seen: {value!r})"
            raise UsageError(msg, hint=f"write {output}: {{argmax: true}}, or --decision {output}:argmax")
        return Decision(output=output, rule=kind, axis=axis)
    if kind is Rule.TOP_K:
        if isinstance(value, bool) or not _is_integer(str(value)) or int(str(value)) < 1:
            msg = f"decision top_k of {output!r} needs a whole number of at least 1 (seen: {value!r})"
            raise UsageError(msg, hint=f"write {output}: {{top_k: 5}}, or --decision {output}:top_k=5")
        return Decision(output=output, rule=kind, k=int(str(value)), axis=axis)
    text = str(value).strip()
    is_inclusive = text.startswith(">=")
    try:
        threshold = float(text.removeprefix(">="))
    except ValueError:
        threshold = float("nan")
    if not math.isfinite(threshold) or isinstance(value, bool):
        msg = f"decision {kind} of {output!r} needs a finite number (seen: {value!r})"
        raise UsageError(msg, hint=f"write {output}: {{{kind}: 0.5}}, or --decision {output}:{kind}=0.5")
    return Decision(output=output, rule=kind, threshold=threshold, is_inclusive=is_inclusive, axis=axis)


def with_constants(decisions: Iterable[Decision], reasons: Mapping[str, str]) -> tuple[Decision, ...]:
    """Return the decisions with the reasons why one is constant; raise UsageError for an output without a decision."""
    result = tuple(
        replace(decision, constant=reasons.get(decision.output, decision.constant)) for decision in decisions
    )
    for output in reasons:
        if output not in {decision.output for decision in result}:
            seen = ", ".join(str(decision) for decision in result) or "none"
            msg = f"the decision on {output!r} is declared constant, but no such decision exists (decisions: {seen})"
            raise UsageError(msg, hint=f"declare the decision: --decision {output}:threshold=V")
    return result


def axes_of(rank: int) -> str:
    """Return which axes of an output of rank 2 or more may hold classes or channels, as text."""
    return "axis 1" if rank == 2 else f"an axis from 1 to {rank - 1}"  # noqa: PLR2004 - a rank


def check_rank(decision: Decision, rank: int) -> None:
    """Raise UsageError where the axis of the classes is missing, out of range, or no axis to choose along."""
    if rank >= RANK_NEEDING_AXIS and decision.axis is None:
        msg = f"decision {decision} is on an output of rank {rank} without the axis of the classes"
        raise UsageError(msg, hint=f"write axis: N beside the rule, or {decision},axis=N, with N from 1 to {rank - 1}")
    if decision.axis is not None and not (-rank <= decision.axis < rank and decision.axis % rank != 0):
        msg = f"decision {decision}: axis {decision.axis} is not a class axis of an output of rank {rank}"
        raise UsageError(msg, hint=f"use {axes_of(rank)}: axis 0 holds the rows" if rank > 1 else "leave the axis out")
    if rank < 2 and decision.rule in {Rule.ARGMAX, Rule.TOP_K}:  # noqa: PLR2004 - a rank
        msg = f"decision {decision} needs an axis to choose along, but the output has rank {rank}"
        raise UsageError(msg, hint="use threshold, or decide on an output of rank 2 or more")


def check_classes(decision: Decision, shape: Sequence[int | str | None]) -> None:
    """Raise UsageError where top-k leaves no class out: such a set never changes. A symbolic dim passes."""
    classes = shape[-1 if decision.axis is None else decision.axis]
    if decision.rule is Rule.TOP_K and isinstance(classes, int) and decision.k >= classes:
        has = "1 class" if classes == 1 else f"{classes} classes"
        msg = f"decision {decision}: the output has {has}, so all of them are always chosen"
        hint = f"use a k below {classes}" if classes > 1 else "use threshold, because the output has one class"
        raise UsageError(msg, hint=hint)
