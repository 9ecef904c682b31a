"""Declared limits: for all outputs, for one output, or for each of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.precision import Precision
from paritygate.text import meant
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, LIMIT_NAMES, OUTPUT_LIMITS, Tolerance

# One number, one for each column, or numbers by the names of columns.
DeclaredLimit = float | Sequence[float | None] | Mapping[str, float]

_OUTPUTS = "outputs"
# In an option, a column with the default limit.
DEFAULT_LIMIT = "default"
_HINT = "write max_abs_diff: 1e-3 below the variant in the spec, or --tolerance max_abs_diff=1e-3"
_HINT_OF_OUTPUT = (
    "write tolerance: {VARIANT: {outputs: {OUTPUT: {max_abs_diff: 1e-3}}}} in the spec, "
    "or --tolerance OUTPUT:max_abs_diff=1e-3"
)


def parse_tolerance(
    precision: Precision, declared: Mapping[str, Any], columns: Mapping[str, Sequence[str]] | None = None
) -> Tolerance:
    """Return the default tolerance of a precision with the declared limits in place of its own.

    `declared` has limits by name. `outputs` and `OUTPUT:NAME` declare those of one output. Each of these is a number,
    a list with a number for each column, or a mapping by the names of columns.

    Raises:
        UsageError: A name is not a limit or a column, or a value is negative, not finite, or not a count.
    """
    named = _with_outputs(declared)
    outputs = named.pop(_OUTPUTS, {})
    values: dict[str, Any] = {}
    for name, value in named.items():
        if name not in LIMIT_NAMES:
            msg = f"tolerance {name!r} is not known (allowed: {', '.join(LIMIT_NAMES)}){meant(name, LIMIT_NAMES)}"
            raise UsageError(msg, hint=_HINT)
        number = _checked(name, value)
        if name == "decision_mismatches":
            if number != int(number):
                msg = f"tolerance {name}={value} is not a whole number"
                raise UsageError(msg, hint="give a count of decisions; for a rate use mismatch_rate_upper_95")
            number = int(number)
        values[name] = number
    return replace(
        DEFAULT_TOLERANCES[precision],
        **values,
        declared=frozenset(values),
        outputs={
            output: {name: _of_output(output, name, value, columns or {}) for name, value in limits.items()}
            for output, limits in outputs.items()
        },
    )


def limit_in_text(limits: Sequence[float | None]) -> str:
    """Return the limits of an output as the value of an option."""
    return ",".join(DEFAULT_LIMIT if limit is None else repr(limit) for limit in limits)


def limits_of_result(tolerance: Mapping[str, Any], name: str) -> list[float | None]:
    """Return the numbers of a declared limit; None is the default."""
    output, colon, limit = name.rpartition(":")
    numbers: list[float | None] = tolerance["outputs"][output][limit] if colon else [tolerance[name]]
    return numbers


def _with_outputs(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits with those written as `OUTPUT:NAME` below `outputs`, as in a spec."""
    of_all: dict[str, Any] = {}
    outputs: dict[str, dict[str, Any]] = {}
    for key, value in declared.items():
        output, colon, name = key.rpartition(":")
        if key == _OUTPUTS:
            for each, limits in _mapping(key, value).items():
                outputs.setdefault(each, {}).update(_mapping(f"{key}.{each}", limits))
        elif colon:
            outputs.setdefault(output, {})[name] = value
        else:
            of_all[key] = value
    return {**of_all, _OUTPUTS: outputs} if outputs else of_all


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"tolerance {key} is {value!r}, not a mapping by name", hint=_HINT_OF_OUTPUT)
    return value


def _of_output(
    output: str, name: str, value: DeclaredLimit, columns: Mapping[str, Sequence[str]]
) -> tuple[float | None, ...]:
    """Return the limit of an output: one number, or one for each column. None is the default."""
    key = f"{output}:{name}"
    if name not in OUTPUT_LIMITS:
        allowed = ", ".join(OUTPUT_LIMITS)
        msg = f"tolerance {key!r} is not known (allowed for one output: {allowed}){meant(name, OUTPUT_LIMITS)}"
        raise UsageError(msg, hint=_HINT_OF_OUTPUT)
    if isinstance(value, Mapping):
        names = tuple(columns.get(output, ()))
        for column in value:
            if column not in names:
                named = f"there are: {', '.join(names)}" if names else "none are named"
                msg = f"tolerance {key} names column {column!r}, which output {output!r} does not have ({named})"
                raise UsageError(
                    msg, hint=f"name the columns in the spec: outputs: {{{output}: {{columns: [NAME, ...]}}}}"
                )
        return tuple(_checked(key, value[column]) if column in value else None for column in names)
    if isinstance(value, Sequence):
        if not value or (name == "max_row_rel_diff" and len(value) > 1):
            raise UsageError(f"tolerance {key} is wrong (got {len(value)} numbers, expected one)", hint=_HINT_OF_OUTPUT)
        return tuple(None if item is None else _checked(key, item) for item in value)
    return (_checked(key, value),)


def _checked(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        msg = f"tolerance {name}={value} is not a finite number of at least 0"
        raise UsageError(msg, hint="leave the limit out to use the default")
    return float(value)
