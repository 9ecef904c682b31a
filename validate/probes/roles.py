"""What each input of a model is: ids, a mask, lengths, a picture or plain numbers; inferred, and said why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Form", "InputRole", "Role"]


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
    """

    FLAG = "flag"
    WHOLE = "whole"
    ONE_HOT = "one-hot"
    SHARES = "shares"

    def __str__(self) -> str:
        return self.value


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
        form: For numbers: what all values seen have in common; None where nothing, or where the spec says the role.
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

    def to_json(self) -> dict[str, Any]:
        """Return the role as JSON data."""
        return {
            "role": str(self.role),
            "why": self.why,
            "low": self.low,
            "high": self.high,
            "of": self.of,
            "pad": self.pad,
            "axis": self.axis,
            "positions": self.positions,
            "is_table": self.is_table,
            "takes_missing": self.takes_missing,
            "form": None if self.form is None else str(self.form),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InputRole:
        """Return the role that `to_json` wrote."""
        form = data.get("form")
        return cls(**{**data, "role": Role(data["role"]), "form": None if form is None else Form(form)})
