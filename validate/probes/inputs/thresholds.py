"""Where the answer of a model may jump: what an input is compared with, looked up by, and rounded into."""

from __future__ import annotations

from dataclasses import dataclass

_Columns = tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold:
    """One number that the values of an input are compared with, or clipped to, before any arithmetic.

    Attributes:
        value: The number.
        columns: The features that meet it; None for any.
        is_equality: Whether values are looked for that are equal to it, as a code for what is missing is.
        is_limit: Whether values are only clipped to it: beyond it they are all alike.
        is_exact: Whether nothing computed from the same values is rounded or compared, so that the answer exactly at
            the number, and one step beside it, hangs on no rounding.
        is_level: Whether nothing computed from them is divided by or normalised, so that the same holds where every
            value is the number.
    """

    value: float
    columns: _Columns = None
    is_equality: bool = False
    is_limit: bool = False
    is_exact: bool = True
    is_level: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Buckets:
    """What values are rounded into: bucket `floor(scale * value + shift) + after`.

    Attributes:
        scale: What they are multiplied by before; never 0.
        shift: What is added before; half of one where they are rounded to the nearest.
        after: What is added to the whole number.
        rows: How many rows the table has that the bucket indexes; None where it indexes none.
        columns: The features that are rounded so; None for any.
        is_exact: As of a threshold, for the edges of the buckets; never where there is arithmetic before.
    """

    scale: float = 1.0
    shift: float = 0.0
    after: int = 0
    rows: int | None = None
    columns: _Columns = None
    is_exact: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The keys of a table in which the values of an input are looked up, as those of a vocabulary are.

    Attributes:
        values: The keys: texts, or numbers.
        columns: The features that are looked up; None for any.
    """

    values: tuple[str | float, ...]
    columns: _Columns = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """A division of whole numbers: its answer jumps where `scale * value - offset` is a multiple of `step`.

    Attributes:
        step: What they are divided by, in all; at least 2.
        scale: What they are multiplied by before; never 0.
        offset: What is taken from that.
        columns: The features that are divided; None for any.
        is_float: Whether some of it is computed in floats.
        is_computed: Whether numbers that are not whole, or other inputs, come into it.
    """

    step: int
    scale: int = 1
    offset: int = 0
    columns: _Columns = None
    is_float: bool = False
    is_computed: bool = False
