"""Parse values by name: `NAME=VALUE` texts of the command line, or a mapping in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar, get_args

from paritygate.errors import UsageError
from paritygate.text import a_or_an, is_placeholder

_Number = TypeVar("_Number", int, float)
# The classes of a value in Python, and their name. NumPy's numbers belong to these classes.
_KINDS: Mapping[type, tuple[Any, str]] = {
    str: (str, "text"),
    int: (Integral, "whole number"),
    float: (Real, "number"),
    object: (object, "value"),
}


def by_name(argument: str, given: object, example: Mapping[str, Any], *, of: type = str) -> dict[str, Any]:
    """Return an argument that is a mapping by name; an empty one for None.

    `of` is the type of its values: `str`, `int`, `float`, or `object` for any. Hints show the `example`.

    Raises:
        UsageError: It is not a mapping, such as the text that the command takes, or has other values.
    """
    hint = f"write for example {argument}={dict(example)!r}"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        msg = f"{argument} is {given!r}, {a_or_an(type(given).__name__)}: allowed is a mapping by name"
        raise UsageError(msg, hint=hint)
    allowed, what = _KINDS[of]
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, allowed):
            raise UsageError(f"{argument} holds {key!r}: {value!r}: allowed is a {what} by name", hint=hint)
    return dict(given)


def pairs(option: str, texts: Iterable[str], *, example: str) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping. Hints show the `example` of a text.

    Raises:
        UsageError: A text is not of that form, or a name occurs twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        if not sign or not name or not value:
            msg = f"{option} {text!r} is not of the form NAME=VALUE"
            raise UsageError(msg, hint=f"write for example {option} {example}")
        if name in values:
            raise UsageError(f"{option} names {name!r} twice", hint="give each name once")
        values[name] = value
    return values


def column_lists(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each input from `INPUT=COLUMN,...` texts.

    Raises:
        UsageError: A text is not of this form, or an input is named twice.
    """
    lists: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, columns = text.partition("=")
        names = tuple(column.strip() for column in columns.split(","))
        if not name or not all(names) or name in lists:
            msg = f"--columns is wrong (got {text!r}, expected INPUT=COLUMN,COLUMN and each input once)"
            raise UsageError(msg, hint="write for example --columns x=age,income")
        lists[name] = names
    return lists


def columns_by_name(given: object) -> dict[str, tuple[str, ...]]:
    """Return the argument `columns`: one column or several, by input.

    Raises:
        UsageError: It has another form.
    """
    lists: dict[str, tuple[str, ...]] = {}
    for name, columns in by_name("columns", given, {"x": ["age", "income"]}, of=object).items():
        several = (columns,) if isinstance(columns, str) else columns
        if not isinstance(several, list | tuple) or not several or not all(isinstance(item, str) for item in several):
            msg = f"columns is wrong (got {name!r}: {columns!r}, expected a list of names of columns)"
            raise UsageError(msg, hint="write for example columns={'x': ['age', 'income']}")
        lists[name] = tuple(several)
    return lists


def dtypes(casts: Mapping[str, str]) -> dict[str, str]:
    """Return the dtypes that inputs are cast to.

    Raises:
        UsageError: A dtype is not supported.
    """
    from paritygate.validate.samples.columns import CastDtype

    allowed = get_args(CastDtype)
    for name, dtype in casts.items():
        if dtype not in allowed:
            msg = f"the cast of {name!r} is wrong (got {dtype!r}, expected {', '.join(allowed)})"
            raise UsageError(msg, hint=f"write for example --cast {name}=float32")
    return dict(casts)


def numbers(option: str, texts: Iterable[str], *, example: str) -> dict[str, float]:
    """Return `NAME=NUMBER` texts as a mapping.

    Raises:
        UsageError: A text is not of that form, a name occurs twice, or a value is not a number.
    """
    values = pairs(option, texts, example=example)
    return {name: _number(option, name, value, example, float) for name, value in values.items()}


def limits(option: str, texts: Iterable[str], *, example: str) -> dict[str, float | list[float | None]]:
    """Return `NAME=NUMBER` and `OUTPUT:NAME=NUMBER,...` texts as a mapping; `default` becomes None.

    Raises:
        UsageError: A text is not of that form, a name occurs twice, or a value is not a number.
    """
    from paritygate.validate.gate.declared_limits import DEFAULT_LIMIT

    def of_output(name: str, text: str) -> list[float | None]:
        parts = text.split(",")
        return [None if part == DEFAULT_LIMIT else _number(option, name, part, example, float) for part in parts]

    return {
        name: of_output(name, value) if ":" in name else _number(option, name, value, example, float)
        for name, value in pairs(option, texts, example=example).items()
    }


def _number(option: str, name: str, value: str, example: str, of: type[_Number]) -> _Number:
    try:
        return of(value)
    except ValueError:
        msg = f"{option} '{name}={value}': {value!r} is not {a_or_an(_KINDS[of][1])}"
        raise UsageError(msg, hint=f"write for example {option} {example}") from None


def reasons_by_name(option: str, texts: Iterable[str], *, example: str) -> dict[str, str]:
    """Return `NAME=REASON` texts as a mapping; a reason may have `=`. Hints show the `example` of a reason.

    Raises:
        UsageError: A text is not of that form, or a name occurs twice.
    """
    reasons: dict[str, str] = {}
    for text in texts:
        name, _, reason = text.partition("=")
        if not name or not reason.strip():
            msg = f"{option} {text!r} is not of the form OUTPUT=REASON"
            raise UsageError(msg, hint=f"give the reason: {option} {name or 'OUTPUT'}='{example}'")
        if is_placeholder(reason):
            msg = f"{option} {text!r} gives no reason, only the placeholder"
            raise UsageError(msg, hint=f"give the reason: {option} {name}='{example}'")
        if name in reasons:
            raise UsageError(f"{option} names {name!r} twice", hint="give each name once")
        reasons[name] = reason.strip()
    return reasons


def whole_numbers(option: str, texts: Iterable[str], *, example: str) -> dict[str, int]:
    """Return `NAME=N` texts as a mapping.

    Raises:
        UsageError: A text is not of that form, a name occurs twice, or N is not a whole number.
    """
    return {
        name: _number(option, name, value, example, int)
        for name, value in pairs(option, texts, example=example).items()
    }
