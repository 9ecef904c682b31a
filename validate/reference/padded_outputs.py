"""The values of the reference where an undeclared mask leaves an output out."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.valid_positions import PaddingMask
from paritygate.validate.words.sentence import Words, say

# A constant so many times beyond the values that count is a fill value.
_FAR = 1000.0


class UndeclaredPadding(Struct, frozen=True, kw_only=True):
    """An undeclared mask, the reference's profile of the values it leaves out, and whether these are fill values.

    Such a constant is the -1e9 of a mask.
    """

    mask: PaddingMask
    profile: OutputProfile
    is_fill: bool

    def advice(self, output: str) -> Words:
        """Return what to write, in the spec or as an option."""
        key = "padding.advice_rows" if self.mask.is_of_empty_rows else "padding.advice"
        return say(key, output=output, input=self.mask.input)


def holds_fill(padding: OutputProfile, counting: OutputProfile) -> bool:
    """Return whether the reference writes a constant into padding that is far beyond all values that count."""
    if not padding.is_float:
        return False
    is_constant = not padding.spread.any()
    bar = _FAR * max(1.0, float(counting.bulk_abs.max(initial=0.0)))
    return bool(padding.fills) or (is_constant and bool((np.abs(padding.center) > bar).all()))
