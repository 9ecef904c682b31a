"""The base of all mappings of a spec."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SpecPart(BaseModel):
    """A mapping in which unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
