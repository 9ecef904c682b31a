"""Make the rules of the gate from options or arguments, and options from the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

from msgspec.structs import replace

from paritygate.codec import to_data
from paritygate.errors import UsageError
from paritygate.pipelines.rules.pairs import by_name, limits, numbers, pairs, reasons_by_name, whole_numbers
from paritygate.pipelines.rules.table import RULES, Kind, RuleOption, Scope
from paritygate.precision import parse_precision
from paritygate.text import in_full
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.decisions import parse_decision, with_constants
from paritygate.validate.measure.tolerance import DECISION_LIMITS
from paritygate.validate.probes.catalogue import probes_named
from paritygate.validate.probes.inputs.roles import DeclaredRole

_BY_NAME: Mapping[Kind, Callable[..., dict[str, Any]]] = {
    Kind.REASONS: reasons_by_name,
    Kind.LIMITS: limits,
    Kind.PAIRS: pairs,
    Kind.NUMBERS: numbers,
    Kind.WHOLE_NUMBERS: whole_numbers,
    Kind.ROLES: pairs,
}
_TYPES = {Kind.LIMITS: float, Kind.NUMBERS: float, Kind.WHOLE_NUMBERS: int, Kind.ROLES: object}


def values_of_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all rules from Click's parameters.

    Raises:
        UsageError: A value is not allowed.
    """
    return {rule.argument: _of_option(rule, given[rule.argument]) for rule in RULES}


def _of_option(rule: RuleOption, given: Any) -> Any:  # noqa: ANN401 - each rule has its own type
    if rule.kind in _BY_NAME:
        return _BY_NAME[rule.kind](rule.name, given, example=rule.example)
    return probes_named(given) if rule.kind is Kind.PROBES else given


def values_of_python(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all rules from the arguments of a function.

    Raises:
        UsageError: A value is not allowed.
    """
    return {rule.argument: _of_python(rule, given[rule.argument]) for rule in RULES}


def _of_python(rule: RuleOption, given: Any) -> Any:  # noqa: ANN401 - each rule has its own type
    name = rule.argument
    if rule.kind is Kind.CHOICE:
        return check_choice(name, given, rule.allowed)
    if rule.kind is Kind.WHOLE:
        return _at_least(name, given, rule.least)
    if rule.kind is Kind.DECISIONS:
        return [f"{output}:{text}" for output, text in by_name(name, given, {"logits": "argmax"}).items()]
    if rule.kind in _BY_NAME:
        return _mapping(rule, given)
    # A text is a sequence of texts too, and never meant as one.
    return (given,) if rule.kind is Kind.TEXTS and isinstance(given, str) else _of_option(rule, given)


def _mapping(rule: RuleOption, given: object) -> dict[str, Any]:
    name, of = rule.argument, _TYPES.get(rule.kind, str)
    if rule.kind is Kind.REASONS:
        return by_name(name, given, {"logits": "REASON"})
    # The parser of limits checks those of one output.
    mapping = given if isinstance(given, Mapping) and rule.kind is Kind.LIMITS else {}
    later = {key: value for key, value in mapping.items() if key == "outputs" or ":" in str(key)}
    rest = {key: mapping[key] for key in mapping if key not in later} if later else given
    return {**by_name(name, rest, _of_option(rule, [rule.example]), of=of), **later}


def _at_least(name: str, given: object, least: int) -> int:
    if not isinstance(given, Integral) or given < least:
        msg = f"{name} {given!r} is not allowed (allowed: {least} and more)"
        raise UsageError(msg, hint=f"write for example {name}={least}")
    return int(given)


def check_choice(name: str, given: str, allowed: Sequence[str]) -> str:
    """Return a value if it is allowed.

    Raises:
        UsageError: The value is not allowed.
    """
    if given not in allowed:
        msg = f"{name} {given!r} is not known (allowed: {', '.join(allowed)})"
        raise UsageError(msg, hint=f"write for example {name}={allowed[0]!r}")
    return given


def gate_rules_of(values: Mapping[str, Any]) -> GateRules:
    """Return the rules of the gate from the values by argument.

    Raises:
        UsageError: A value is not allowed, or two do not fit.
    """
    return GateRules(
        tolerance=parse_tolerance(parse_precision(values["precision"]), values["tolerance"]),
        decisions=with_constants(map(parse_decision, values["decisions"]), values["constant_decisions"]),
        **{rule.field: rule.made(values[rule.argument]) for rule in RULES if rule.field},
    )


def words_of_rules(rules: GateRules, *scopes: Scope) -> Iterator[str]:
    """Yield the options of `compare` for the rules of these scopes."""
    for rule in RULES:
        if rule.scope in scopes:
            for text in _texts(rule, rule.value_in(rules)):
                yield from (rule.name, text)


def _texts(rule: RuleOption, value: Any) -> list[str]:  # noqa: ANN401 - each rule has its own type
    if isinstance(value, Mapping):
        return [f"{name}={each if isinstance(each, str) else in_full(each)}" for name, each in value.items()]
    if rule.default is None:
        return list(map(str, value))
    return [] if value == rule.default and rule.kind is not Kind.TEXT else [str(value)]


def words_of_roles(roles: Mapping[str, DeclaredRole]) -> Iterator[str]:
    """Yield the options of `compare` for the roles of inputs, each as YAML of a spec in one line."""
    for name, role in roles.items():
        declared = {key: value for key, value in to_data(role).items() if value is not None}
        yield from ("--role", f"{name}={json.dumps(declared)}")


def rules_of_outputs(rules: GateRules, outputs: Sequence[str]) -> GateRules:
    """Return the rules for a comparison of these outputs alone; of all outputs if none is named."""
    named = set(outputs)
    if named:
        by_output: dict[str, Any] = {
            rule.field: {name: value for name, value in getattr(rules, rule.field).items() if name in named}
            for rule in RULES
            if rule.field and rule.kind in _BY_NAME
        }
        # A label needs its scores, and outputs that are not selected need not be ignored.
        by_output["argmax_of"] = {a: b for a, b in rules.argmax_of.items() if {a, b} <= named}
        by_output["ignored"] = {}
        limits = {name: declared for name, declared in rules.tolerance.outputs.items() if name in named}
        rules = replace(
            rules,
            **by_output,
            outputs=tuple(outputs),
            tolerance=replace(rules.tolerance, outputs=limits),
            decisions=tuple(decision for decision in rules.decisions if decision.output in named),
            matches=tuple(match for match in rules.matches if set(match.outputs) <= named),
        )
    if rules.decisions or rules.argmax_of:
        return rules
    # The gate refuses a limit on decisions without one.
    return replace(rules, tolerance=replace(rules.tolerance, declared=rules.tolerance.declared - DECISION_LIMITS))
