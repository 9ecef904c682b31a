"""Which layers compute: all but those that only move, convert, choose or hold values."""

from __future__ import annotations

__all__ = ["MOVING", "QUANTIZE"]

QUANTIZE = "QUANTIZE"
# In the words of networks and of engines: a cast to HALF is no computation in it. Why not a list of what computes? A
# layer of a later version computes until it is known to do not.
MOVING = frozenset(
    {"ASSERTION", "CAST", "CONCATENATION", "CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT", "CONSTANT",
     "DEQUANTIZE", "FILL", "GATHER", "IDENTITY", "ITERATOR", "LOOP_OUTPUT", "NON_ZERO", "NOOP", "ONE_HOT", "PADDING",
     QUANTIZE, "RECURRENCE", "REFORMAT", "REVERSE_SEQUENCE", "SCATTER", "SELECT", "SHAPE", "SHUFFLE", "SLICE",
     "SQUEEZE", "TOPK", "TRIP_LIMIT", "UNSQUEEZE"}
)  # fmt: skip
