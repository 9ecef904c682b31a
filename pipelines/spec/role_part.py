"""The role of one input, as in `roles` of a spec."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paritygate.pipelines.spec.part import SpecPart
from paritygate.validate.probes.inputs.padding import Padding
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role

_PaddingKind = Literal["none", "right", "left", "both", "inside"]


class RolePart(SpecPart):
    """The role of one input, for the probes."""

    role: Role | None = Field(default=None, description="id, mask, length, image, number or text; inferred if absent.")
    low: float | None = Field(default=None, allow_inf_nan=False, description="The smallest value that occurs.")
    high: float | None = Field(
        default=None, allow_inf_nan=False, description="The largest value that occurs; of ids, the last one."
    )
    of: str | None = Field(default=None, description="Of a mask or lengths: the input whose positions it is about.")
    pad: int | None = Field(default=None, description="For ids: the value where the mask is 0.")
    empty: bool | None = Field(default=None, description="Of a mask: whether a row without any position occurs.")
    padding: _PaddingKind | list[_PaddingKind] | None = Field(
        default=None, description="Of a mask: the kinds of padding that occur, one or a list."
    )
    shortest: int | None = Field(default=None, ge=1, description="Of a mask: the fewest real positions of a row.")
    nan: bool | None = Field(default=None, description="Whether NaN occurs.")
    infinity: bool | None = Field(default=None, description="Whether infinity occurs.")

    @model_validator(mode="after")
    def _in_order(self) -> RolePart:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low: {self.low:g} is above high: {self.high:g}")
        return self

    @property
    def role_of_input(self) -> DeclaredRole:
        """The role."""
        padding = [self.padding] if isinstance(self.padding, str) else self.padding
        return DeclaredRole(**{**dict(self), "padding": None if padding is None else tuple(map(Padding, padding))})
