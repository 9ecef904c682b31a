"""Describe which values of a node have a lower precision."""

from __future__ import annotations

from msgspec import Struct


class Lowering(Struct, frozen=True, kw_only=True):
    """The positions of the FP32 inputs and outputs of a node that are of a lower precision once it is converted."""

    inputs: frozenset[int]
    outputs: frozenset[int]
