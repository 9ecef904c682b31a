"""Find the rules that ask less of a candidate than earlier rules did, by the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.pipelines.rules.table import RULES, Laxer, RuleOption, Strictness
from paritygate.text import in_full
from paritygate.validate.gate.declared_limits import limit_in_text
from paritygate.validate.gate.rules import GateRules

# What evidence holds of each kind of rule.
_FORMS: Mapping[Laxer, Any] = {
    Laxer.LOWER: dict[str, float] | float,
    Laxer.LIMITS: dict[str, float | str | list[str] | dict[str, dict[str, list[float | None]]] | None],
    Laxer.FEWER: list[str],
    Laxer.MORE: list[str],
    Laxer.LATER: str,
}


def record_of(rules: GateRules) -> dict[str, Any]:
    """Return the rules that can ask less, by their names in the table, as JSON data for evidence."""
    return {rule.argument: _recorded(rule, strictness, rules) for rule, strictness in _rules()}


def check_record(record: Mapping[str, Any]) -> None:
    """Check what evidence holds of the rules.

    Raises:
        ValueError: A rule has another form.
    """
    for rule, strictness in _rules():
        if rule.argument not in record:
            continue
        value = record[rule.argument]
        try:
            from_data(_FORMS[strictness.laxer], value)
        except ValueError as err:
            raise ValueError(f"the recorded rule {rule.argument} is wrong: {err}") from err
        if strictness.laxer is Laxer.LATER and value not in rule.allowed:
            raise ValueError(f"the recorded rule {rule.argument} is {value!r} (allowed: {', '.join(rule.allowed)})")
        if strictness.laxer is Laxer.LIMITS:
            _check_declared(rule.argument, value)


def _check_declared(name: str, limits: Mapping[str, Any]) -> None:
    declared = limits.get("declared", [])
    if not isinstance(declared, list) or not all(isinstance(limits.get(each), int | float) for each in declared):
        raise ValueError(f"the recorded rule {name} declares {declared!r}, which are not all limits with a number")


def relaxed_checks(record: Mapping[str, Any], rules: GateRules) -> Iterator[str]:
    """Yield a message for each check of a record that the rules leave out."""
    for rule, strictness in _rules():
        now = _recorded(rule, strictness, rules)
        then = record.get(rule.argument, now if strictness.laxer is Laxer.LATER else ())
        if strictness.laxer is Laxer.FEWER:
            gone = [name for name in then if name not in now]
            if gone:
                yield strictness.words.format(names=", ".join(gone))
        elif strictness.laxer is Laxer.MORE:
            values = rule.value_in(rules)
            yield from (strictness.words.format(name=name, value=values[name]) for name in now if name not in then)
        elif strictness.laxer is Laxer.LATER and rule.allowed.index(now) > rule.allowed.index(then):
            yield f"{rule.argument}: {now}, and it was {then}"


def relaxed_limits(record: Mapping[str, Any], rules: GateRules, *, is_any: bool = False) -> Iterator[str]:
    """Yield a message for each limit that is looser than in a record, or no longer declared.

    A first declaration does not count, because it states what the service bears. With `is_any`, it does.
    """
    for rule, strictness in _rules():
        then, now = record.get(rule.argument, {}), _recorded(rule, strictness, rules)
        if strictness.laxer is Laxer.LIMITS:
            yield from _relaxed_tolerance(then, now, is_any=is_any)
        elif strictness.laxer is Laxer.LOWER and isinstance(then, Mapping):
            yield from _relaxed_floors(rule.argument, then, now)
        elif strictness.laxer is Laxer.LOWER and now < then:
            yield f"{rule.argument} is {in_full(now)}, and was {in_full(then)}"


def _rules() -> Iterator[tuple[RuleOption, Strictness]]:
    return ((rule, rule.strictness) for rule in RULES if rule.strictness is not None)


def _recorded(rule: RuleOption, strictness: Strictness, rules: GateRules) -> Any:  # noqa: ANN401 - JSON data
    return to_data(rule.value_in(rules) if strictness.recorded is None else strictness.recorded(rules))


def _relaxed_floors(name: str, then: Mapping[str, float], now: Mapping[str, float]) -> Iterator[str]:
    for output, least in then.items():
        if output not in now:
            yield f"no {name} is asked of {output}, and {in_full(least)} was"
        elif now[output] < least:
            yield f"{name} of {output} is {in_full(now[output])}, and was {in_full(least)}"


def _relaxed_tolerance(then: Mapping[str, Any], now: Mapping[str, Any], *, is_any: bool) -> Iterator[str]:
    declared = then.get("declared", ())
    limits = [name for name, limit in then.items() if isinstance(limit, int | float)]
    for name in limits if is_any else declared:
        if name in declared and name not in now["declared"]:
            yield f"{name} is no longer declared, but was {in_full(then[name])}"
        elif now.get(name) is None:
            yield f"{name} has no limit, and was {in_full(then[name])}"
        elif now[name] > then[name]:
            yield f"{name} is {in_full(now[name])}, and was {in_full(then[name])}"
    if is_any:
        # A default depends on the output, so a declared number and a default cannot be compared.
        yield from (f"{name} was not declared" for name in now["declared"] if name not in declared)
    named = [
        (output, name) for each in (then, now) for output, limits in each.get("outputs", {}).items() for name in limits
    ]
    for output, name in dict.fromkeys(named):
        before, after = _of_output(then, output, name), _of_output(now, output, name)
        if _is_looser(before, after, is_any=is_any) and after == [None]:
            yield f"{output}:{name} is no longer declared, but was {limit_in_text(before)}"
        elif _is_looser(before, after, is_any=is_any):
            yield f"{output}:{name} is {limit_in_text(after)}, and was {limit_in_text(before)}"


def _of_output(tolerance: Mapping[str, Any], output: str, name: str) -> list[float | None]:
    """Return the declared limits of an output, else of all outputs, one a column; None where the default applies."""
    of_all = tolerance[name] if name in tolerance.get("declared", ()) else None
    own = tolerance.get("outputs", {}).get(output, {}).get(name, [None])
    return [of_all if limit is None else limit for limit in own]


def _is_looser(before: list[float | None], after: list[float | None], *, is_any: bool) -> bool:
    """Return whether a limit of any column is looser; None is the default limit."""
    count = max(len(before), len(after))
    if not {len(before), len(after)} <= {1, count}:
        return True
    columns = zip(before * (count // len(before)), after * (count // len(after)), strict=True)
    return any((is_any and new is not None) if old is None else new is None or new > old for old, new in columns)
