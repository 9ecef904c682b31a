"""Make inputs to trace a module with, and to try it at other sizes: resized real rows, and generated ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError
from paritygate.signature import Signature, TensorSpec, is_float_dtype

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

# The first batch of real inputs, by the name served; may be empty.
Rows = Mapping[str, "NDArray[np.generic]"]

_SEED = 0
_MASK_WORDS = frozenset({"mask", "masks", "padding", "valid"})
_WORDS = re.compile(r"[a-z]+")


def full_shape(spec: TensorSpec, sizes: Mapping[str, int]) -> list[int]:
    """Return the shape of an input at these sizes of the symbolic dims; raise UsageError if it is not full."""
    if spec.shape is None or None in spec.shape:
        msg = f"the shape of input {spec} is incomplete"
        raise UsageError(msg, hint="give every dim a size or a name, for example [batch, 3, 224, 224]")
    return [sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape if dim is not None]


def torch_dtype(spec: TensorSpec) -> torch.dtype:
    """Return the dtype of an input in PyTorch; raise UsageError if it has none."""
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        msg = f"input {spec}: PyTorch has no dtype {spec.dtype!r}"
        raise UsageError(msg, hint="feed the model numbers, for example token ids as int64")
    return dtype


def input_draws(signature: Signature, sizes: Mapping[str, int], rows: Rows) -> list[Iterator[list[torch.Tensor]]]:
    """Return the inputs to try at these sizes, by kind: real rows, if they fit the signature, and generated ones.

    One draw of each kind is enough. Others follow in case the model refuses it, because an input's meaning is
    uncertain. A draw has one tensor an input, in the order of the signature; the last draw is zeros.
    """
    made_up = _made_up(signature, sizes)
    return [_real(signature, sizes, rows), made_up] if _fits(signature, rows) else [made_up]


def _made_up(signature: Signature, sizes: Mapping[str, int]) -> Iterator[list[torch.Tensor]]:
    import torch

    masks = {spec.name for index, spec in enumerate(signature.inputs) if _may_be_mask(spec, index, signature)}
    longest = {spec.name: most for spec in signature.inputs if (most := _longest(spec, signature, sizes))}

    def drawn(whole: int | None, *, knows_roles: bool) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(_SEED)
        tensors = []
        for spec in signature.inputs:
            shape, dtype = full_shape(spec, sizes), torch_dtype(spec)
            if dtype.is_floating_point:
                tensor = torch.randn(shape, generator=generator)
            elif knows_roles and spec.name in masks:
                tensor = torch.ones(shape)
            elif knows_roles and spec.name in longest:
                tensor = torch.randint(1, longest[spec.name] + 1, shape, generator=generator)
                # As in real batches, one row has the full length.
                tensor[:1] = longest[spec.name]
            elif whole is None:
                tensor = torch.randint(0, 2, shape, generator=generator)
            else:
                tensor = torch.full(shape, whole)
            tensors.append(tensor.to(dtype))
        return tensors

    # Integers are 0 or 1, because few vocabularies have fewer.
    yield drawn(None, knows_roles=True)
    if not all(is_float_dtype(spec.dtype) for spec in signature.inputs):
        yield drawn(1, knows_roles=False)
        yield drawn(None, knows_roles=False)
        yield drawn(0, knows_roles=False)
    yield [torch.zeros_like(tensor) for tensor in drawn(0, knows_roles=False)]


def _may_be_mask(spec: TensorSpec, index: int, signature: Signature) -> bool:
    """Return whether an input may mask places of another one with the same dims."""
    if not _says_places(spec, signature) or is_float_dtype(spec.dtype):
        return False
    before = [other for other in signature.inputs[:index] if not is_float_dtype(other.dtype)]
    return (
        spec.dtype == "bool"
        or bool(_MASK_WORDS & set(_WORDS.findall(spec.name.lower())))
        or any(other.shape == spec.shape for other in before)
    )


def _says_places(spec: TensorSpec, signature: Signature) -> bool:
    dims = spec.shape or ()
    others = [other.shape or () for other in signature.inputs if other is not spec]
    return len(dims) > 1 and any(other[: len(dims)] == dims for other in others)


def _longest(spec: TensorSpec, signature: Signature, sizes: Mapping[str, int]) -> int:
    """Return the largest value of an input that may be the lengths of rows; 0 if it cannot be."""
    if is_float_dtype(spec.dtype) or spec.dtype == "bool" or len(spec.shape or ()) != 1:
        return 0
    return min((sizes[dim] for dim in _measured(spec, signature)), default=0)


def _measured(spec: TensorSpec, signature: Signature) -> list[str]:
    """Return the dims of other inputs whose lengths by row this input may hold."""
    shapes = [other.shape or () for other in signature.inputs if other is not spec]
    return [
        shape[1]
        for shape in shapes
        if len(shape) > 1 and shape[:1] == spec.shape and isinstance(shape[0], str) and isinstance(shape[1], str)
    ]


def _fits(signature: Signature, rows: Rows) -> bool:
    return bool(rows) and all(_fits_spec(spec, rows.get(spec.name)) for spec in signature.inputs)


def _fits_spec(spec: TensorSpec, array: NDArray[Any] | None) -> bool:
    shape = spec.shape or ()
    return (
        array is not None
        and array.dtype.kind in ("fV" if is_float_dtype(spec.dtype) else "biu")
        and array.ndim == len(shape)
        and all(isinstance(dim, str) or dim == size for dim, size in zip(shape, array.shape, strict=True))
    )


def _real(signature: Signature, sizes: Mapping[str, int], rows: Rows) -> Iterator[list[torch.Tensor]]:
    """Yield the rows brought to the sizes: cut, or extended by their own places in another order.

    They are not simply repeated, because the mean of a repeated row stays the same.
    """
    yield _resized(signature, sizes, rows, fills_masks=True)
    yield _resized(signature, sizes, rows, fills_masks=False)


def _resized(signature: Signature, sizes: Mapping[str, int], rows: Rows, *, fills_masks: bool) -> list[torch.Tensor]:
    import numpy as np
    import torch

    # One for all inputs, so that values of one place stay together.
    places: dict[tuple[str, int], NDArray[np.intp]] = {}
    tensors = []
    for spec in signature.inputs:
        array, is_mask = rows[spec.name], _holds_flags(rows[spec.name]) and _says_places(spec, signature)
        for axis, dim in enumerate(spec.shape or ()):
            if not isinstance(dim, str) or array.shape[axis] == sizes[dim]:
                continue
            array = _of_size(array, axis, dim, sizes[dim], places)
            if axis and is_mask and fills_masks:
                array = np.ones_like(array)
        for dim in _measured(spec, signature) if array.dtype.kind in "iu" and array.ndim == 1 else ():
            array = _as_lengths(array, _size_of(dim, signature, rows), sizes[dim])
        if array.dtype.kind == "V":
            array = array.astype(np.float32)
        tensors.append(torch.from_numpy(np.array(array)).to(torch_dtype(spec)))
    return tensors


def _holds_flags(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "b" or bool(((array == 0) | (array == 1)).all())


def _of_size(
    array: NDArray[Any], axis: int, dim: str, size: int, places: dict[tuple[str, int], NDArray[np.intp]]
) -> NDArray[Any]:
    import numpy as np

    before = array.shape[axis]
    if not before:
        # As the initial cache of a model.
        shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        numbers = np.random.default_rng(_SEED).standard_normal(shape)
        return (numbers if array.dtype.kind in "fV" else np.zeros(shape)).astype(array.dtype)
    if (dim, before) not in places:
        further = np.random.default_rng(_SEED).integers(before, size=max(0, size - before))
        places[dim, before] = np.concatenate([np.arange(min(before, size)), further]).astype(np.intp)
    return np.take(array, places[dim, before], axis=axis)


def _size_of(dim: str, signature: Signature, rows: Rows) -> int:
    return next(
        int(rows[spec.name].shape[(spec.shape or ()).index(dim)])
        for spec in signature.inputs
        if dim in (spec.shape or ())
    )


def _as_lengths(array: NDArray[Any], before: int, size: int) -> NDArray[Any]:
    """Return the lengths of resized rows; unchanged if they cannot be lengths."""
    import numpy as np

    if before == size or not array.size or int(array.min()) < 1 or int(array.max()) > before:
        return array
    return np.where(array == before, size, np.minimum(array, size)).astype(array.dtype)
