"""Read the signature of models that do not declare one from real inputs and one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.errors import UsageError, ZeroRowsError
from paritygate.models.named_call import is_default_output_name, outputs_by_name
from paritygate.signature import BATCH, Signature, TensorSpec, is_integer_dtype, name_unknown_dims

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Example(Struct, frozen=True, kw_only=True):
    """Real inputs that reveal the signature of a model."""

    inputs: Arrays  # of the first batch, by the names served
    shapes: Mapping[str, tuple[int | str | None, ...]]  # over all samples; a varying size is a dim's name or None
    like: Signature | None = None  # of the model that it is compared with; it names as many unnamed outputs
    is_chosen: bool = False  # the user chose the inputs, so the model takes no others

    def of_the_other(self) -> Example:
        """Return the example with only the inputs that the other model takes, unless the user chose them."""
        taken = () if self.like is None or self.is_chosen else [spec.name for spec in self.like.inputs]
        inputs = {name: array for name, array in self.inputs.items() if name in taken}
        return replace(self, inputs=inputs or self.inputs)

    def unlike_the_other(self) -> str:
        """Return a message on an input whose dtype or shape differs from the other model's; empty for none."""
        for spec in () if self.like is None else self.like.inputs:
            array = self.inputs.get(spec.name)
            if array is not None and not _is_taken(spec, array):
                tensor = f"{dtype_of(array)}{list(array.shape)}"
                return f"the samples hold {spec.name!r} as {tensor}, and the other model takes {spec}"
        return ""

    def by_own_names(self, rename: Mapping[str, str]) -> dict[str, NDArray[np.generic]]:
        """Return the inputs by the model's own names; `rename` is `{of the model: served}`."""
        own = {served: name for name, served in rename.items()}
        return {own.get(name, name): array for name, array in self.inputs.items()}


def example_of(read: Callable[[], Iterator[Batch]], like: Signature | None, takes: Sequence[str] = ()) -> Example:
    """Return the first batch, and the shapes over all samples, which are read once.

    Args:
        read: Starts reading the samples.
        like: The signature of the model to compare with, if known.
        takes: The inputs that the user chose; empty for no choice.

    Raises:
        ZeroRowsError: There are no rows.
        UsageError: The samples lack an input of `takes`.
    """
    first: Arrays | None = None
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    for batch in read():
        first = batch.inputs if first is None else first
        for name, array in batch.inputs.items():
            shape = array.shape
            if shape and shape[0] == batch.rows:
                shape = (BATCH, *shape[1:])
            shapes[name] = _common(shapes.get(name, shape), shape)
    if first is None:
        msg = "the samples hold no rows"
        raise ZeroRowsError(msg, hint="give at least one row: nothing was measured, so nothing passes")
    declared = {} if like is None else {spec.name: spec.shape for spec in like.inputs}
    for name in takes:
        if name not in shapes:
            msg = f"the samples have no {name!r}, which --takes names (they have: {', '.join(shapes)})"
            raise UsageError(msg, hint="name inputs that the samples hold")
    for name, shape in shapes.items():
        other_shape = declared.get(name)
        if other_shape is not None and len(other_shape) == len(shape):
            # A fixed size that differs from the samples is specific to the other model, and may be its
            # fault.
            sizes = zip(other_shape[1:], shape[1:], strict=True)
            shapes[name] = (
                *other_shape[:1],
                *(own if isinstance(dim, int) and dim != own else dim for dim, own in sizes),
            )
    chosen = {name: array for name, array in first.items() if not takes or name in takes}
    return Example(inputs=chosen, shapes=shapes, like=like, is_chosen=bool(takes))


def _is_taken(spec: TensorSpec, array: NDArray[np.generic]) -> bool:
    dtype = dtype_of(array)
    is_of_dtype = dtype == spec.dtype or (is_integer_dtype(dtype) and is_integer_dtype(spec.dtype))
    shape = array.shape if spec.shape is None else spec.shape
    # Axis 0 holds any number of rows.
    sizes = zip(shape[1:], array.shape[1:], strict=False)
    is_of_shape = all(not isinstance(dim, int) or dim == size for dim, size in sizes)
    return is_of_dtype and len(shape) == array.ndim and is_of_shape


def _common(one: tuple[int | str | None, ...], other: tuple[int | str | None, ...]) -> tuple[int | str | None, ...]:
    if len(one) != len(other):
        # Running the model reports that it does not take both ranks.
        return one
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def signature_seen(example: Example, inputs: Iterable[str], answer: object, rename: Mapping[str, str]) -> Signature:
    """Return the signature of a model, under the names served, by its `answer` to `inputs` of the example.

    `inputs` are the model's own names. Parts of the answer that are not tensors are left out.

    Raises:
        UsageError: The answer has no tensor, or one of an unsupported dtype.
    """
    served = [rename.get(name, name) for name in inputs]
    parts = outputs_by_name(answer)
    tensors = {name: tensor for name, tensor in parts.items() if hasattr(tensor, "shape") and hasattr(tensor, "dtype")}
    if not tensors:
        returned = ", ".join(f"{name}: {type(part).__name__}" for name, part in parts.items()) or "nothing"
        msg = f"the model returned no tensor (it returned: {returned})"
        raise UsageError(msg, hint="return a tensor, a tuple of tensors, or a mapping of tensors by name")
    names = [rename.get(name, name) for name in tensors]
    if example.like is not None and len(tensors) == len(parts) == len(example.like.outputs):
        is_unnamed = all(map(is_default_output_name, names))
        names = [spec.name for spec in example.like.outputs] if is_unnamed else names
    signature = name_unknown_dims(
        [TensorSpec(name=name, dtype=dtype_of(example.inputs[name]), shape=example.shapes[name]) for name in served], ()
    )
    outputs = [
        TensorSpec(name=name, dtype=dtype_of(tensor), shape=None)
        for name, tensor in zip(names, tensors.values(), strict=True)
    ]
    return replace(signature, outputs=tuple(outputs))


def dtype_of(tensor: Any) -> str:  # noqa: ANN401 - an array, or a tensor of any framework
    """Return NumPy's name for the dtype of an array or of a framework's tensor; `string` for texts."""
    dtype = tensor.dtype
    if getattr(dtype, "kind", "") in {"U", "S", "O"}:
        return "string"
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")
