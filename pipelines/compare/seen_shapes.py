"""How inputs and outputs lie beside each other where a model names no dims: by axis and size in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from paritygate.batch import Batch
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def signature_in_batch(runner: Runner, read: Callable[[], Iterator[Batch]]) -> Signature | None:
    """Return the signature with dims called by axis and size, as the first batch and the answer to it have them.

    Two dims have one name where they are of one size at the same axis. That is enough for whoever says which of them
    belong together; where later batches are otherwise, shapes do not fit.

    Args:
        runner: A model, which is asked once.
        read: Starts reading the samples.

    Returns:
        The signature; None where there are no samples, which whoever needs some says.

    Raises:
        ParitygateError: The samples do not fit the model, or it does not answer.
    """
    batch = next(read(), None)
    if batch is None:
        return None
    inputs = fit_inputs(batch, runner.signature)
    outputs = runner.run(inputs)
    return replace(
        runner.signature,
        inputs=tuple(_by_axis_and_size(spec, inputs[spec.name]) for spec in runner.signature.inputs),
        outputs=tuple(_by_axis_and_size(spec, outputs[spec.name]) for spec in runner.signature.outputs),
    )


def _by_axis_and_size(spec: TensorSpec, array: NDArray[np.generic]) -> TensorSpec:
    return replace(spec, shape=tuple(f"{size} at axis {axis}" for axis, size in enumerate(array.shape)))
