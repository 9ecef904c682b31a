"""Models that do not say what they take and return: it is seen from real inputs and one answer to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError, ZeroRowsError
from paritygate.models.named_call import is_default_output_name, outputs_by_name
from paritygate.signature import BATCH, Signature, TensorSpec, is_integer_dtype, name_unknown_dims

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """Real inputs by which a model is asked for what it does not say.

    Attributes:
        inputs: Those of the first batch of the samples, by the names served.
        shapes: The shape of each over all samples: a size where it never varies, else the name of a dim, or None.
        like: The signature of the model that it is compared with; None where that is not known. Outputs without names
            are called as its outputs are, if there are as many.
        is_chosen: Whether it was said which of the samples' inputs the model takes: then there are no others.
    """

    inputs: Mapping[str, NDArray[np.generic]]
    shapes: Mapping[str, tuple[int | str | None, ...]]
    like: Signature | None = None
    is_chosen: bool = False

    def of_the_other(self) -> Example:
        """Return the example with only the inputs that the other model takes; as it is where that is not known.

        Where it was said what this model takes, it is that.
        """
        taken = () if self.like is None or self.is_chosen else [spec.name for spec in self.like.inputs]
        inputs = {name: array for name, array in self.inputs.items() if name in taken}
        return replace(self, inputs=inputs or self.inputs)

    def unlike_the_other(self) -> str:
        """Return which input is of another dtype or shape than the other model takes, in words; empty for none."""
        for spec in () if self.like is None else self.like.inputs:
            array = self.inputs.get(spec.name)
            if array is not None and not _is_taken(spec, array):
                found = f"{dtype_of(array)}{list(array.shape)}"
                return f"the samples hold {spec.name!r} as {found}, and the other model takes {spec}"
        return ""

    def by_own_names(self, rename: Mapping[str, str]) -> dict[str, NDArray[np.generic]]:
        """Return the inputs by the names of a model that is served under other names, `{of the model: served}`."""
        own = {served: name for name, served in rename.items()}
        return {own.get(name, name): array for name, array in self.inputs.items()}


def example_of(read: Callable[[], Iterator[Batch]], like: Signature | None, takes: Sequence[str] = ()) -> Example:
    """Return what the samples show, all of which are read.

    Args:
        read: Starts reading the samples.
        like: The signature of the model that is compared with; None where that is not known.
        takes: Which of their inputs the model takes; empty where nobody said it.

    Raises:
        ZeroRowsError: There are none.
        UsageError: They lack an input of `takes`.
    """
    first: Mapping[str, NDArray[np.generic]] | None = None
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
            raise UsageError(msg, hint="name what the samples hold")
    for name, shape in shapes.items():
        said = declared.get(name)
        if said is not None and len(said) == len(shape):
            # A size that the samples do not have is the other model's own, and may be what is wrong with it.
            sizes = zip(said[1:], shape[1:], strict=True)
            shapes[name] = (*said[:1], *(own if isinstance(dim, int) and dim != own else dim for dim, own in sizes))
    chosen = {name: array for name, array in first.items() if not takes or name in takes}
    return Example(inputs=chosen, shapes=shapes, like=like, is_chosen=bool(takes))


def _is_taken(spec: TensorSpec, array: NDArray[np.generic]) -> bool:
    dtype = dtype_of(array)
    is_of_dtype = dtype == spec.dtype or (is_integer_dtype(dtype) and is_integer_dtype(spec.dtype))
    shape = array.shape if spec.shape is None else spec.shape
    # Axis 0 holds the rows, of which any number may be asked at once.
    sizes = zip(shape[1:], array.shape[1:], strict=False)
    is_of_shape = all(not isinstance(dim, int) or dim == size for dim, size in sizes)
    return is_of_dtype and len(shape) == array.ndim and is_of_shape


def _common(one: tuple[int | str | None, ...], other: tuple[int | str | None, ...]) -> tuple[int | str | None, ...]:
    if len(one) != len(other):
        # Whoever runs the model says that it does not take both.
        return one
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def signature_seen(example: Example, inputs: Iterable[str], answer: object, rename: Mapping[str, str]) -> Signature:
    """Return the signature of a model, under the names served, by what it answered.

    Args:
        example: What it was asked.
        inputs: Which of the inputs it takes, by its own names.
        answer: What it returned; what is no tensor is left out.
        rename: The name served, by the model's own name.

    Raises:
        UsageError: It returned no tensor, or one of a dtype that is not supported.
    """
    served = [rename.get(name, name) for name in inputs]
    found = outputs_by_name(answer)
    tensors = {name: tensor for name, tensor in found.items() if hasattr(tensor, "shape") and hasattr(tensor, "dtype")}
    if not tensors:
        returned = ", ".join(f"{name}: {type(part).__name__}" for name, part in found.items()) or "nothing"
        msg = f"the model returned no tensor (it returned: {returned})"
        raise UsageError(msg, hint="return a tensor, a tuple of tensors, or a mapping of tensors by name")
    names = [rename.get(name, name) for name in tensors]
    if example.like is not None and len(tensors) == len(found) == len(example.like.outputs):
        is_unnamed = all(map(is_default_output_name, names))
        names = [spec.name for spec in example.like.outputs] if is_unnamed else names
    known = name_unknown_dims(
        [TensorSpec(name=name, dtype=dtype_of(example.inputs[name]), shape=example.shapes[name]) for name in served],
        (),
    )
    outputs = [
        TensorSpec(name=name, dtype=dtype_of(tensor), shape=None)
        for name, tensor in zip(names, tensors.values(), strict=True)
    ]
    return replace(known, outputs=tuple(outputs))


def dtype_of(tensor: Any) -> str:  # noqa: ANN401 - an array, or a tensor of any framework
    """Return NumPy's name of the dtype of an array, or of a tensor of any framework; `string` of texts."""
    dtype = tensor.dtype
    if getattr(dtype, "kind", "") in {"U", "S", "O"}:
        return "string"
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")
