"""Fits a batch of samples to the inputs of a model: by name, and by dtype only where nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Arrays, Batch
from paritygate.errors import UsageError
from paritygate.signature import Dim, Signature, TensorSpec, is_integer_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_COLUMN_RANK = 2
_PICTURE_RANK = 4
_CHANNELS = frozenset({1, 3, 4})
_ONE_LENGTH = (
    "give every row as many places in one of them as in the other, or give the dims other names: in the model, or, "
    "where it has none for them, in model.inputs of a spec"
)


def fit_inputs(batch: Batch, signature: Signature, *, rename: str = "") -> dict[str, NDArray[np.generic]]:
    """Return the inputs of the signature from a batch; other inputs of the batch are left out.

    Only integers are cast, to the model's integer dtype after a check of the range. One value a row becomes a column
    where the model takes one. `rename` is a hint for renaming the model's input MODEL to the samples' KEY. UsageError
    is raised where an input is missing, of another dtype, or has values beyond the model's dtype.
    """
    fitted: dict[str, NDArray[np.generic]] = {}
    for spec in signature.inputs:
        if spec.name not in batch.inputs:
            seen = ", ".join(batch.inputs) or "none"
            msg = f"the samples have no input {spec.name!r}, which the model expects (seen: {seen})"
            raise UsageError(msg, hint=_how_to_name(spec.name, batch, signature, rename))
        fitted[spec.name] = _fit(spec, _as_column(spec, batch.inputs[spec.name]))
    return fitted


def check_shapes(batch: Batch, inputs: Arrays, signature: Signature) -> None:
    """Check that the inputs have the ranks and sizes that a model takes: fixed sizes, and those declared of its dims.

    A dim has one size in all inputs that share it, also in each row before padding. The number of rows is not checked,
    because functions yield any number, and a file's last batch holds the rest. `inputs` come from `fit_inputs`.
    UsageError names the input and the row.
    """
    for spec in signature.inputs:
        sizes = inputs[spec.name].shape
        if spec.shape is None:
            continue
        axes = [
            axis
            for axis, (size, dim) in enumerate(zip(sizes, spec.shape, strict=False))
            if isinstance(dim, int) and size != dim
        ]
        if len(sizes) == len(spec.shape) and not axes:
            continue
        msg = f"from row {batch.ids[0]!r} on, {spec.name!r} has the shape {list(sizes)}, but the model expects {spec}"
        hint = "give rows of the shape that the model expects"
        if len(sizes) == len(spec.shape) and axes == [0]:
            rows = spec.shape[0]
            hint = f"give {rows} rows a call: samples: {{batch_size: {rows}}} in the spec, or --batch-size {rows}"
        raise UsageError(msg, hint=_hint_of_layout(sizes, spec.shape) or hint)
    _check_dims(batch, inputs, signature)


def _hint_of_layout(sizes: Sequence[int], wanted: Sequence[int | str | None]) -> str:
    """Return how to transpose pictures whose channels are first and not last, or the other way; else nothing."""
    if len(sizes) != len(wanted) or len(sizes) != _PICTURE_RANK:
        return ""
    for channel, other, seen, axes in ((1, 3, "NHWC", "0, 3, 1, 2"), (3, 1, "NCHW", "0, 2, 3, 1")):
        if wanted[channel] in _CHANNELS and wanted[channel] == sizes[other] != sizes[channel]:
            model = "NCHW" if seen == "NHWC" else "NHWC"
            return f"the axes look like {seen} (expected {model}); transpose the samples: x.transpose({axes})"
    return ""


def _check_dims(batch: Batch, inputs: Arrays, signature: Signature) -> None:
    # For each dim, the first input that has it, its axis, and the size.
    first: dict[str, tuple[str, int, int]] = {}
    for spec in signature.inputs:
        sizes = inputs[spec.name].shape
        for axis, (size, dim) in enumerate(zip(sizes, spec.shape or (), strict=False)):
            if not isinstance(dim, str):
                continue
            other, other_axis, other_size = first.setdefault(dim, (spec.name, axis, size))
            if axis == other_axis == 1:
                _check_lengths(batch, other, spec.name, dim)
            if size != other_size:
                msg = (
                    f"from row {batch.ids[0]!r} on, {other!r} has {other_size} places of {dim!r} and {spec.name!r} has "
                    f"{size}, but the model expects one size"
                )
                raise UsageError(msg, hint=_ONE_LENGTH)
            if dim in signature.dims:
                _check_declared(batch, spec, axis, sizes, signature.dims[dim])


def _check_lengths(batch: Batch, name: str, other: str, dim: str) -> None:
    """Check that the rows of two padded inputs had equal lengths."""
    pairs = zip(batch.ids, batch.lengths.get(name, ()), batch.lengths.get(other, ()), strict=False)
    for row_id, length, other_length in pairs:
        if length != other_length:
            msg = (
                f"row {row_id!r} is {length} long in {name!r} and {other_length} in {other!r}, but the model expects "
                f"one {dim!r} for both"
            )
            raise UsageError(msg, hint=_ONE_LENGTH)


def _check_declared(batch: Batch, spec: TensorSpec, axis: int, found: tuple[int, ...], sizes: Dim) -> None:
    size, dim = found[axis], spec.shape[axis] if spec.shape else None
    is_of_rows = axis == 0 and size == batch.rows
    if is_of_rows or sizes.min <= size <= sizes.max:
        return
    lengths = batch.lengths.get(spec.name, ()) if axis == 1 else ()
    row = next((row_id for row_id, length in zip(batch.ids, lengths, strict=False) if length == size), None)
    where = f"from row {batch.ids[0]!r} on" if row is None else f"at row {row!r}"
    msg = (
        f"{where}, {spec.name!r} has the shape {list(found)}: axis {axis}, {dim!r}, is {size}, and model.dims.{dim} "
        f"declares {sizes.min} to {sizes.max}"
    )
    hint = f"declare the served sizes in model.dims.{dim}, or correct the rows"
    raise UsageError(msg, hint=hint)


def _how_to_name(name: str, batch: Batch, signature: Signature, rename: str) -> str:
    hint = "name the samples' keys like the model's inputs"
    if not rename:
        return hint
    names = {spec.name for spec in signature.inputs}
    unused = [key for key in batch.inputs if key not in names]
    # If one key is left over, it is the one to rename.
    key = unused[0] if len(unused) == 1 else "KEY"
    return f"{hint}, or rename these: {rename.replace('MODEL', name).replace('KEY', key)}"


def _as_column(spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return one value a row as the column that skl2onnx's models take, with one more axis."""
    is_column = spec.shape is not None and len(spec.shape) == _COLUMN_RANK and spec.shape[1] == 1
    return array[:, np.newaxis] if is_column and array.ndim == 1 else array


def _fit(spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
    dtype = array.dtype.name if array.dtype.kind not in "US" else "string"
    if dtype == spec.dtype:
        return array
    if is_integer_dtype(spec.dtype) and array.dtype.kind in "iub":
        return _cast_integers(spec, array)
    msg = f"the samples hold {spec.name!r} as {dtype}, but the model expects {spec.dtype}"
    hint = "give the samples in the dtype that the model expects"
    if "string" not in {dtype, spec.dtype}:
        pandas = f"frame.astype({{{spec.name!r}: {spec.dtype!r}}})"
        cast = f"--cast {spec.name}={spec.dtype} (samples.cast: {{{spec.name}: {spec.dtype}}} in a spec)"
        hint = f"cast it: {cast}, or write {spec.dtype}, with pandas {pandas}"
    raise UsageError(msg, hint=hint)


def _cast_integers(spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
    target = np.dtype(spec.dtype)
    low, high = (0, 1) if target.kind == "b" else (int(np.iinfo(target).min), int(np.iinfo(target).max))
    if array.size:
        least, largest = int(array.min()), int(array.max())
        if least < low or largest > high:
            msg = (
                f"the samples hold {spec.name!r} from {least} to {largest}, "
                f"but the model expects {spec.dtype}, which holds {low} to {high}"
            )
            raise UsageError(msg, hint="export the model with int64 inputs, or correct the samples")
    return array.astype(target)
