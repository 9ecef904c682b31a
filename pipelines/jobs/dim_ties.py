"""Find symbolic dims that are sums of others in all samples, as `total = past + new` in a decoder with a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paritygate.signature import Signature, is_integer_dtype
from paritygate.validate.probes.derive.summed_dims import sums_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch


class SizesSeen:
    """Collects the sizes of symbolic dims, batch by batch."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._places: dict[str, list[tuple[str, int]]] = {}
        for spec in signature.inputs:
            for axis, dim in enumerate(spec.shape or ()):
                if isinstance(dim, str):
                    self._places.setdefault(dim, []).append((spec.name, axis))
        # One item a shape, in the order of the dims.
        self._sizes: dict[tuple[int, ...], None] = {}
        self._of_rows = set(self._places)
        self._flags = {
            spec.name for spec in signature.inputs if is_integer_dtype(spec.dtype) and len(spec.shape or ()) > 1
        }

    def add(self, batch: Batch) -> None:
        """Add a batch whose inputs have the ranks of the signature."""
        sizes = {dim: int(batch.inputs[name].shape[axis]) for dim, ((name, axis), *_) in self._places.items()}
        self._sizes[tuple(sizes.values())] = None
        self._of_rows &= {dim for dim, size in sizes.items() if size == batch.rows}
        self._flags = {name for name in self._flags if _holds_flags(batch.inputs[name])}

    def ties(self) -> dict[str, str]:
        """Return each dim that always is a sum of others, as an expression, except the dim of the rows."""
        dims = {
            tuple(places): (dim, tuple(sizes[index] for sizes in self._sizes))
            for index, (dim, places) in enumerate(self._places.items())
            if dim not in self._of_rows
        }
        sums = sums_of(_distinct(dims), masks=self._flags) if self._sizes else {}
        return {
            dims[whole][0]: " + ".join(
                [*(dims[part][0] for part in total.parts), *([str(total.plus)] if total.plus else [])]
            )
            for whole, total in sums.items()
        }


_Dims = Mapping[tuple[tuple[str, int], ...], tuple[str, tuple[int, ...]]]


def _distinct(dims: _Dims) -> _Dims:
    """Return the dims with each combination of sizes once, because batches may differ only in their rows."""
    shapes = tuple(dict.fromkeys(zip(*(sizes for _, sizes in dims.values()), strict=True)))
    return {places: (name, tuple(shape[at] for shape in shapes)) for at, (places, (name, _)) in enumerate(dims.items())}


def _holds_flags(array: NDArray[np.generic]) -> bool:
    return array.dtype.kind in "biu" and bool(((array == 0) | (array == 1)).all())
