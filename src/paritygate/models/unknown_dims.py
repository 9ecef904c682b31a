"""Names for the dims that TensorFlow leaves open: it knows that they vary, but has no names for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paritygate.signature import Signature, TensorSpec

__all__ = ["BATCH", "name_unknown_dims"]

BATCH = "batch"


def name_unknown_dims(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Signature:
    """Return a signature in which every dim of None has a name.

    Axis 0 of the inputs is `batch`, and so is that of the outputs where an input has it; every other
    open dim is one of its own, named `<tensor>_dim<axis>`, because TensorFlow does not say which of
    them are equal. A shape of None stays.
    """
    named_inputs = tuple(_named(inputs, has_batch=True))
    has_batch = any(spec.shape and spec.shape[0] == BATCH for spec in named_inputs)
    return Signature(inputs=named_inputs, outputs=tuple(_named(outputs, has_batch=has_batch)))


def _named(specs: Iterable[TensorSpec], *, has_batch: bool) -> Iterable[TensorSpec]:
    for spec in specs:
        if spec.shape is None:
            yield spec
            continue
        shape = [
            dim if dim is not None else BATCH if axis == 0 and has_batch else f"{spec.name}_dim{axis}"
            for axis, dim in enumerate(spec.shape)
        ]
        yield TensorSpec(name=spec.name, dtype=spec.dtype, shape=tuple(shape))
