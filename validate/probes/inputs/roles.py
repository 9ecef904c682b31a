"""The role of each input (ids, mask, lengths, picture, numbers or text), inferred with a reason or declared."""

from __future__ import annotations

from msgspec import Struct

from paritygate.text import StrEnum
from paritygate.validate.probes.inputs.padding import Padding
from paritygate.validate.probes.inputs.thresholds import Buckets, Division, Keys, Threshold


class Role(StrEnum):
    """The meaning of an input's values."""

    ID = "id"
    MASK = "mask"
    LENGTH = "length"
    IMAGE = "image"
    NUMBER = "number"
    TEXT = "text"


class Form(StrEnum):
    """A property of all values seen of a number input, which generated values keep.

    Correct conversions may differ where it is broken: half a category means nothing, nor do shares that sum to three. A
    fixed input runs only as seen: of two values for one place, either may be written last.
    """

    FLAG = "flag"
    WHOLE = "whole"
    ONE_HOT = "one-hot"
    SHARES = "shares"
    FIXED = "fixed"


class DeclaredRole(Struct, frozen=True, kw_only=True):
    """The user's declarations about one input; None where nothing is declared.

    What is declared to occur must hold even without a sample; what is declared not to occur does not run. `of` is the
    input whose positions a mask or lengths count. `pad` is the id where the mask is 0. `empty` tells if a row without
    positions occurs. `shortest` is the fewest real positions of a row.
    """

    role: Role | None = None
    low: float | None = None
    high: float | None = None
    of: str | None = None
    pad: int | None = None
    empty: bool | None = None
    padding: tuple[Padding, ...] | None = None
    shortest: int | None = None
    nan: bool | None = None
    infinity: bool | None = None


class InputRole(Struct, frozen=True, kw_only=True):
    """The role of one input, and what the graph and the samples show about it.

    - `why`: the reason for the role, such as `it indexes a table of 8002 rows`.
    - `low`, `high`: the range that makes sense, for ids that of the table if `is_table`; None where unknown.
    - `of`: the input whose positions a mask or lengths count. `axis`: the axis of positions. `pad`: the id of padding.
    - `positions`: the most positions that the graph's tables allow for ids.
    - `columns`: first and last id of each column where columns index their own tables; None for a column without one.
    - `reach`: first and last number of each column that a table, which columns share by parts, has a row for.
    - `is_shifted`: a number is added to ids before the table, so ids outside the range mean nothing.
    - `is_size`: a shape or a loop depends on the values, so nothing outside the range seen runs.
    - `takes_missing`: the model handles NaN or infinity. `form`: None if none, or if the spec declares the role.
    """

    role: Role
    why: str
    low: int | None = None
    high: int | None = None
    of: str | None = None
    pad: int | None = None
    axis: int | None = None
    positions: int | None = None
    is_table: bool = False
    takes_missing: bool = False
    form: Form | None = None
    columns: tuple[tuple[int, int] | None, ...] = ()
    reach: tuple[tuple[int, int] | None, ...] = ()
    is_shifted: bool = False
    is_size: bool = False
    thresholds: tuple[Threshold, ...] = ()
    buckets: tuple[Buckets, ...] = ()
    keys: tuple[Keys, ...] = ()
    divisions: tuple[Division, ...] = ()
    declared: DeclaredRole = DeclaredRole()
