"""Skip inputs that a candidate does not accept by its own declaration, because they do not test it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritygate.models.fixed_shape import FixedShape, read_fixed_shape
from paritygate.signature import Signature, is_integer_dtype

Arrays = Mapping[str, NDArray[np.generic]]

# float32 has every integer up to here, and only some beyond.
_EXACT_IN_FLOAT32 = 2**24


class UnfitInputs:
    """Finds inputs that a candidate does not accept, by fixed dims, its largest batch, or its integer dtype.

    Sizes that its own signature fixes, without a rule that pads inputs, do not count: refusing what the reference
    accepts breaks the contract.
    """

    def __init__(self, signature: Signature, rule: Path | None, largest_batch: int | None = None) -> None:
        self._largest_batch = largest_batch
        self._rule: FixedShape | None = None if rule is None else read_fixed_shape(rule)
        # With fixed dims, inputs may have other dtypes than in the signature, which is the earlier one.
        dtypes = {} if self._rule is None else self._rule.dtypes
        self._dtypes = {spec.name: dtypes.get(spec.name, spec.dtype) for spec in signature.inputs}

    def __call__(self, inputs: Arrays) -> str:
        """Return why the inputs do not fit; empty if they do."""
        return self._beyond_rows(inputs) or self._beyond_dims(inputs) or self._beyond_dtypes(inputs)

    def _beyond_rows(self, inputs: Arrays) -> str:
        rows = max((len(array) for array in inputs.values() if array.ndim), default=0)
        if self._largest_batch is not None and rows > self._largest_batch:
            return f"a batch of {rows} rows, and the server takes {self._largest_batch} at once"
        return ""

    def _beyond_dims(self, inputs: Arrays) -> str:
        rule = self._rule
        for spec in rule.signature.inputs if rule is not None else ():
            for dim, size in zip(spec.shape or (), inputs[spec.name].shape, strict=False):
                if rule is not None and dim in rule.padded_dims and size > rule.dims[str(dim)]:
                    return f"a {dim} of {size}, and it is fixed at {rule.dims[str(dim)]}"
        return ""

    def _beyond_dtypes(self, inputs: Arrays) -> str:
        for name, dtype in self._dtypes.items():
            array = inputs.get(name)
            if array is None or array.dtype.kind not in "iu" or array.dtype.name == dtype or not array.size:
                continue
            low, high = _range(dtype)
            least, largest = int(array.min()), int(array.max())
            if least < low or largest > high:
                return f"{name} from {least} to {largest}, and it takes {dtype}"
        return ""


def _range(dtype: str) -> tuple[int, int]:
    if not is_integer_dtype(dtype):
        return -_EXACT_IN_FLOAT32, _EXACT_IN_FLOAT32
    if dtype == "bool":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
