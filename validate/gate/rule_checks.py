"""Check that the rules fit the outputs of both sides, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from paritygate.errors import UsageError
from paritygate.signature import is_float_dtype, is_integer_dtype, is_number_dtype
from paritygate.text import meant
from paritygate.validate.detections.rule import check_match_rules
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gold.measurement import check_gold_rules
from paritygate.validate.measure.tolerance import DECISION_LIMITS
from paritygate.validate.reference.record import check_selected, check_some_left
from paritygate.validate.reference.recorded import ExpectedOutputs

_LABEL_FIRST = "name the integer output first, then the scores: argmax_of: {LABEL: SCORES}, or --argmax-of LABEL=SCORES"


def check_positions(expected: ExpectedOutputs, rules: GateRules) -> None:
    """Raise UsageError where the reference was recorded with other positions that count."""
    recorded = {name: where.input for name, where in expected.positions.items()}
    if recorded != dict(rules.valid_where):
        listed = [
            ", ".join(f"{a}={b}" for a, b in sorted(each.items())) or "none" for each in (recorded, rules.valid_where)
        ]
        msg = f"the reference was recorded with valid_where {listed[0]}, but this comparison has {listed[1]}"
        raise UsageError(
            msg,
            hint="compare with the model itself, or record it again by a spec with outputs: "
            "{OUTPUT: {valid_where: INPUT}}: convert-and-validate record --run DIR",
        )


def check_ignored(names: frozenset[str], rules: GateRules) -> None:
    """Raise UsageError where an ignored output is none of these names, or selected."""
    for name in rules.ignored:
        if name not in names:
            msg = f"output {name!r} cannot be ignored because neither side has it (outputs: {', '.join(sorted(names))})"
            raise UsageError(msg, hint="ignore outputs that are compared")
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
            raise UsageError(msg, hint=f"decide on one of the compared outputs{meant(decision.output, compared)}")
        dtype = outputs[decision.output]
        if not is_float_dtype(dtype):
            msg = f"decision {decision} is on an output of dtype {dtype}, which is compared exactly"
            raise UsageError(
                msg,
                hint="decide on the float scores; for labels write argmax_of: {LABEL: SCORES}, "
                "or --argmax-of LABEL=SCORES",
            )
    floats = [name for name in compared if is_float_dtype(outputs[name])]
    numbers = [name for name in compared if is_number_dtype(outputs[name]) and name not in rules.argmax_of]
    _check_named(((rule, name) for rule, name, _ in rules.floors()), floats, "a float output")
    _check_named((("tolerance", name) for name in rules.tolerance.outputs), numbers, "a numeric output")
    for label, scores in rules.argmax_of.items():
        if label not in compared or scores not in compared:
            msg = f"argmax_of {label}={scores}: both must be outputs that are compared ({', '.join(compared)})"
            raise UsageError(msg, hint=_LABEL_FIRST)
        if not is_integer_dtype(outputs[label]) or not is_float_dtype(outputs[scores]):
            msg = f"argmax_of {label}={scores}: the first must be an integer output, the second a float one"
            raise UsageError(msg, hint=_LABEL_FIRST)
    return compared


def _check_named(named: Iterable[tuple[str, str]], outputs: Collection[str], what: str) -> None:
    """Check that rules name some of these outputs."""
    for rule, name in named:
        if name not in outputs:
            there_are = ", ".join(outputs) or "none"
            msg = f"{rule} names {name!r}, which is not {what} that is compared (there are: {there_are})"
            raise UsageError(msg, hint=f"name one of these{meant(name, outputs)}")


def _check_valid_where(rules: GateRules, chosen: Collection[str]) -> None:
    for name, mask in rules.valid_where.items():
        if name not in chosen:
            msg = f"valid_where {name}={mask} names {name!r}, which is not an output that is compared"
            raise UsageError(msg, hint=f"compared outputs are: {', '.join(chosen)}")


def _check_decisions(rules: GateRules) -> None:
    outputs = [decision.output for decision in rules.decisions]
    for decision in rules.decisions:
        if outputs.count(decision.output) > 1:
            msg = f"output {decision.output!r} has {outputs.count(decision.output)} decisions (expected one)"
            raise UsageError(msg, hint="give each output one decision, and compare once for each of the others")
    unused = sorted(rules.tolerance.declared & DECISION_LIMITS)
    if unused and not (rules.decisions or rules.argmax_of):
        msg = f"tolerance {unused[0]} is declared, but no decision is"
        raise UsageError(
            msg, hint="declare it: decisions: {OUTPUT: {threshold: V}} in the spec, or --decision OUTPUT:threshold=V"
        )
