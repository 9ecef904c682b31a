"""Compare the inputs and outputs of two versions of a model, as a client of the model sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paritygate.signature import Signature, TensorSpec

# The figure that counts such changes; `--allow` takes the same name.
INTERFACE = "interface"


def interface_changes(was: Signature, now: Signature) -> tuple[str, ...]:
    """Describe each input and output that breaks a client of `was`.

    A new output breaks none. A client sends all inputs, so one that is gone is refused, and a new one is missing.
    """
    added = (f"input {name} is new and required" for name in _names_only_in(now.inputs, was.inputs))
    return (
        *_gone("output", was.outputs, now.outputs),
        *_gone("input", was.inputs, now.inputs),
        *added,
        *_retyped("output", was.outputs, now.outputs),
        *_retyped("input", was.inputs, now.inputs),
    )


def signature_changes(was: Signature, now: Signature) -> tuple[str, ...]:
    """Describe every change of inputs and outputs; the names of symbolic dims do not count."""
    new = (f"output {name} is new" for name in _names_only_in(now.outputs, was.outputs))
    return (
        *interface_changes(was, now),
        *new,
        *_reshaped("output", was.outputs, now.outputs),
        *_reshaped("input", was.inputs, now.inputs),
        *(
            f"dim {name} is {now.dims[name].min} to {now.dims[name].max}, and was {dim.min} to {dim.max}"
            for name, dim in was.dims.items()
            if name in now.dims and (now.dims[name].min, now.dims[name].max) != (dim.min, dim.max)
        ),
    )


def _reshaped(side: str, was: Sequence[TensorSpec], now: Sequence[TensorSpec]) -> Iterator[str]:
    before = {spec.name: spec for spec in was}
    for spec in now:
        old = before.get(spec.name)
        if old is not None and _sizes(old) != _sizes(spec):
            yield f"{side} {spec}, and was {old}"


def _sizes(spec: TensorSpec) -> tuple[int | str | None, ...] | None:
    return None if spec.shape is None else tuple("?" if isinstance(dim, str) else dim for dim in spec.shape)


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
