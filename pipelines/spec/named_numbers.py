"""Parse numbers by name that are given as `NAME=VALUE`, such as limits and factors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from paritygate.errors import UsageError


def parse_named_numbers(
    texts: Iterable[str],
    check: Callable[[Mapping[str, float]], dict[str, float]],
    *,
    option: str,
    names: Collection[str],
    example: str,
) -> dict[str, float]:
    """Return numbers written as `NAME=VALUE`, with the option, the allowed names and an example for messages.

    `check` returns numbers by name, or raises ValueError for a name or a number that is not allowed.

    Raises:
        UsageError: A text has another form, a name occurs twice, or the name or its number is not allowed.
    """
    numbers: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        problem = _problem(name, value, names, numbers)
        if not problem:
            try:
                numbers |= check({name: float(value)})
            except ValueError as err:
                problem = str(err)
        if problem:
            msg = f"{option} {text!r}: {problem} (allowed names: {', '.join(names)})"
            raise UsageError(msg, hint=f"write for example {option} {example}")
    return numbers


def _problem(name: str, value: str, names: Collection[str], found: Collection[str]) -> str:
    """Return what is wrong with a name or the form of its number; empty if nothing is."""
    if not name or not value:
        return "it is not of the form NAME=VALUE"
    if name not in names:
        return f"{name!r} is not known"
    if name in found:
        return f"{name!r} occurs twice"
    try:
        float(value)
    except ValueError:
        return f"{value!r} is not a number"
    return ""
