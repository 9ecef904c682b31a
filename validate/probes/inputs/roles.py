"""What each input of a model is: ids, a mask, lengths, a picture or plain numbers; inferred, and said why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from paritygate.validate.probes.inputs.padding import Padding
from paritygate.validate.probes.inputs.thresholds import Buckets, Division, Keys, Threshold


class Role(str, Enum):
    """What the values of an input stand for."""

    ID = "id"
    MASK = "mask"
    LENGTH = "length"
    IMAGE = "image"
    NUMBER = "number"
    TEXT = "text"

    def __str__(self) -> str:
        return self.value


class Form(str, Enum):
    """What all values seen of plain numbers have in common: what is made up keeps to it.

    Right conversions may differ where it is broken: half a category means nothing, nor do shares that sum up to three.
    What is fixed is asked as it was seen alone: of two values that name one place, either may be written last.
    """

    FLAG = "flag"
    WHOLE = "whole"
    ONE_HOT = "one-hot"
    SHARES = "shares"
    FIXED = "fixed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredRole:
    """What the user says of one input; None where nothing is said.

    What is said to occur has to hold though no sample shows it, and what is said not to occur is not asked.

    Attributes:
        role: What its values stand for.
        low: The smallest value that occurs.
        high: The largest value that occurs; of ids, the last one.
        of: For a mask or lengths: the input whose positions it is about.
        pad: For ids: what stands where the mask is 0.
        empty: For a mask: whether a row occurs without any position.
        padding: For a mask, or ids with an id for padding: the kinds of padding that occur.
        shortest: For the same: the fewest real positions of a row that occurs.
        nan: Whether NaN occurs.
        infinity: Whether infinity occurs.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRole:
    """What one input is.

    Attributes:
        role: What its values stand for.
        why: How that is known, in words, such as `it indexes a table of 8002 rows`.
        low: Smallest value that makes sense; None where nothing says.
        high: Largest value that makes sense; None where nothing says. Of ids, the last row of the table.
        of: For a mask or lengths: the input whose positions it is about; None where there is none.
        pad: For ids: what stands where the mask is 0; None where that is not known.
        positions: For ids: how many positions a row may have, by the graph's own tables; None where nothing says.
        is_table: For ids: whether the range is that of a table in the graph, and not guessed.
        takes_missing: Whether the model looks for NaN or infinity in it.
        axis: For a mask, ids or a picture: the axis of positions; None where there is none.
        columns: For ids whose columns index tables of their own: the first and the last id of each, None for a column
            that indexes none; empty where one range holds for all.
        reach: For ids whose columns have parts of one table: the first and the last number of each column that the
            whole table has a row for, None for other columns; empty where no table is shared.
        is_shifted: For ids: whether the model adds a number to them before it indexes a table, as to ids from 1 on;
            what lies outside of the range then means nothing.
        thresholds: Numbers that the model compares the values with, or clips them to.
        buckets: What the model rounds the values into.
        keys: What the model looks the values up by in tables.
        divisions: What the model divides its whole numbers by.
        is_size: Whether a shape or the rounds of a loop hang on its values, as far as is known: nothing outside of the
            range seen is asked.
        form: For numbers: what all values seen have in common; None where nothing, or where the spec says the role.
        declared: What the user says of it.
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
