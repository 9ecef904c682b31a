"""Run a source on the first batch of the samples before anything is converted."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import BackendError, MissingBackendError, UsageError
from paritygate.models.source import SourceKind
from paritygate.text import counted, first_line
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.models.loading import LoadedModel
    from paritygate.signature import Signature, TensorSpec

# How a run serves an input MODEL of the source under the samples' KEY.
HOW_TO_RENAME = "model.rename: {MODEL: KEY} in the spec"


class FirstRows(Struct, frozen=True, kw_only=True):
    """Real inputs, or a note for the user on why there are none."""

    batch: Batch | None = None
    note: str | None = None

    @property
    def inputs(self) -> Mapping[str, NDArray[np.generic]]:
        """The inputs by served name; empty without a batch."""
        return {} if self.batch is None else self.batch.inputs


def first_rows(source: SampleSource) -> FirstRows:
    """Return the first batch of the samples; unreadable samples stop no conversion."""
    try:
        # Closed at once, so that the user's function keeps nothing open during the conversion.
        with closing(cast("Generator[Batch]", open_samples(source)())) as batches:
            batch = next(batches, None)
    except (Exception, SystemExit) as err:  # noqa: BLE001 - the recording says what is wrong with them
        why = first_line(err)
        return FirstRows(note=f"only generated inputs traced and tried the module: {why}")
    return FirstRows(batch=batch)


def readable_batches(source: SampleSource) -> Iterator[Batch]:
    """Yield the batches of the samples up to an error, which the recording reports."""
    try:
        yield from open_samples(source)()
    except (Exception, SystemExit):  # noqa: BLE001 - whatever the user's function raises
        return


def check_declared_outputs(loaded: LoadedModel, signature: Signature, batch: Batch) -> None:
    """Check that the source returns outputs of the declared shapes and dtypes for a batch that fits its inputs.

    The model does not change. Where it does not run here, or not on the batch, its conversion or recording reports
    that.

    Raises:
        UsageError: An output differs from its declaration.
    """
    inputs = fit_inputs(batch, signature)
    try:
        model = _with_own_state(loaded.model) if loaded.ref.kind is SourceKind.TORCH else loaded.model
        runner = open_runner(replace(loaded, ref=replace(loaded.ref, signature=signature), model=model))
    except (_CannotBeCopiedError, BackendError, MissingBackendError):
        return
    try:
        outputs = runner.run(inputs)
    except BackendError:
        return
    sizes = {
        dim: size
        for spec in signature.inputs
        for dim, size in zip(spec.shape or (), inputs[spec.name].shape, strict=True)
        if isinstance(dim, str)
    }
    for spec in signature.outputs:
        if spec.name in outputs:
            _check_output(spec, outputs[spec.name], sizes, batch.rows)


class _CannotBeCopiedError(Exception):
    """A module that cannot be copied, or is not on the CPU."""


def _with_own_state(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of the module with shared parameters and its own buffers and attributes."""
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        # Running it here would move the parameters themselves.
        raise _CannotBeCopiedError
    memo: dict[int, Any] = {id(parameter): parameter for parameter in parameters}
    try:
        return copy.deepcopy(module, memo)
    except Exception as err:
        raise _CannotBeCopiedError from err


def _check_output(spec: TensorSpec, found: NDArray[np.generic], sizes: Mapping[str, int], rows: int) -> None:
    dtype = spec.dtype if found.dtype.kind in "OSU" else found.dtype.name
    declared: Sequence[int | str | None] = found.shape if spec.shape is None else spec.shape
    fits = [_is_of_size(dim, size, sizes) for dim, size in zip(declared, found.shape, strict=False)]
    if dtype == spec.dtype and len(declared) == found.ndim and all(fits):
        return
    msg = (
        f"model.outputs declares {spec}, but the source returns {dtype}{list(found.shape)} "
        f"for the first {counted(rows, 'row')} of the samples"
    )
    right = [
        *(dim if is_right else size for dim, is_right, size in zip(declared, fits, found.shape, strict=False)),
        *found.shape[len(declared) :],
    ]
    shape = ", ".join("null" if dim is None else str(dim) for dim in right)
    hint = f"declare the output, model.outputs: {{{spec.name}: {{dtype: {dtype}, shape: [{shape}]}}}}"
    raise UsageError(msg, hint=f"{hint}, or correct the model")


def _is_of_size(dim: int | str | None, size: int, sizes: Mapping[str, int]) -> bool:
    return dim == size if isinstance(dim, int) else sizes.get(str(dim), size) == size
