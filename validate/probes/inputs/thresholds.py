"""Find where a model's output may jump: the numbers that an input is compared with, looked up by, and rounded into."""

from __future__ import annotations

from msgspec import Struct

_Columns = tuple[int, ...] | None


class Threshold(Struct, frozen=True, kw_only=True):
    """A number that the values of an input are compared with, or clipped to, before any arithmetic.

    `columns`: the features that meet it; None for any. `is_equality`: the graph tests for it, as for a code of missing
    values. `is_limit`: values are only clipped to it. `is_exact`: nothing computed from the values is rounded or
    compared, so outputs at the number and one step beside it depend on no rounding. `is_level`: nothing computed from
    them is a divisor or normalised, so the same holds where every value is the number.
    """

    value: float
    columns: _Columns = None
    is_equality: bool = False
    is_limit: bool = False
    is_exact: bool = True
    is_level: bool = True


class Buckets(Struct, frozen=True, kw_only=True):
    """The rounding of values into bucket `floor(scale * value + shift) + after`, where `scale` is never 0.

    `rows`: rows of the table that the bucket indexes; None for no table. `columns`: None for any feature. `is_exact`:
    as for a threshold, at the edges of the buckets; never with arithmetic before.
    """

    scale: float = 1.0
    shift: float = 0.0
    after: int = 0
    rows: int | None = None
    columns: _Columns = None
    is_exact: bool = True


class Keys(Struct, frozen=True, kw_only=True):
    """The keys of a table in which the values of an input are looked up; `columns` is None for any feature."""

    values: tuple[str | float, ...]
    columns: _Columns = None


class Division(Struct, frozen=True, kw_only=True):
    """A division of whole numbers: its result jumps where `scale * value - offset` is a multiple of `step`.

    `step` is at least 2, `scale` never 0; `columns` is None for any feature. `is_float`: with float arithmetic.
    `is_computed`: fractions or other inputs come in.
    """

    step: int
    scale: int = 1
    offset: int = 0
    columns: _Columns = None
    is_float: bool = False
    is_computed: bool = False
