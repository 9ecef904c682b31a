"""What a client of a release finds changed in a new version: inputs and outputs by name and dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paritygate.signature import Signature, TensorSpec

# The figure by which versions are held against each other, and what `--allow` calls the changes that it counts.
INTERFACE = "interface"


def interface_changes(was: Signature, now: Signature) -> tuple[str, ...]:
    """Return what breaks a client of a model: one entry for each input or output, in words.

    An output that is new breaks none. Of inputs all have to be given, so that one that is gone is refused, and one that
    is new is missing.

    Args:
        was: What the client was written for.
        now: What it finds.
    """
    added = (f"input {name} is new and required" for name in _names_only_in(now.inputs, was.inputs))
    return (
        *_gone("output", was.outputs, now.outputs),
        *_gone("input", was.inputs, now.inputs),
        *added,
        *_retyped("output", was.outputs, now.outputs),
        *_retyped("input", was.inputs, now.inputs),
    )


def _gone(side: str, was: Sequence[TensorSpec], now: Sequence[TensorSpec]) -> Iterator[str]:
    return (f"{side} {name} is gone" for name in _names_only_in(was, now))


def _names_only_in(side: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> list[str]:
    names = {spec.name for spec in other}
    return [spec.name for spec in side if spec.name not in names]


def _retyped(side: str, was: Sequence[TensorSpec], now: Sequence[TensorSpec]) -> Iterator[str]:
    before = {spec.name: spec.dtype for spec in was}
    for spec in now:
        if before.get(spec.name, spec.dtype) != spec.dtype:
            yield f"{side} {spec.name} is {spec.dtype}, and was {before[spec.name]}"
