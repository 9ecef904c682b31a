"""The base of all mappings of a spec."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SpecPart(BaseModel):
    """A mapping in which unknown keys are errors."""

    # The schema of a spec is made at its first use, with those of its parts, and not of each part as well.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
