"""Name dims by axis and size in one batch, for a model without names of dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def signature_in_batch(runner: Runner, read: Callable[[], Iterator[Batch]]) -> Signature | None:
    """Return the signature with dims named by axis and size in the first batch; None without samples.

    Dims of one size at the same axis get one name, which is enough to match them. Later batches of other sizes do not
    fit.

    Raises:
        ParitygateError: The samples do not fit the model, or it fails.
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
