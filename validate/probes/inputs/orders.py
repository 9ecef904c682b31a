"""Pairs of inputs whose order is the same in every sample, such as the begin and the end of a span."""

from __future__ import annotations

import itertools

from msgspec import Struct

from paritygate.batch import Arrays

# Fewer values than this may be in order by chance.
_LEAST_VALUES = 16


class Order(Struct, frozen=True, kw_only=True):
    """Two inputs of one shape: the values of `first` never exceed those of `second`, and never equal them if strict."""

    first: str
    second: str
    is_strict: bool

    def __str__(self) -> str:
        return f"{self.first} {'<' if self.is_strict else '<='} {self.second}"

    def is_kept_by(self, inputs: Arrays) -> bool:
        """Return whether these inputs are in the order."""
        first, second = inputs[self.first], inputs[self.second]
        if first.shape != second.shape:
            return True
        return bool((first < second).all() if self.is_strict else (first <= second).all())  # type: ignore[operator]


class OrderState:
    """Collects the orders over batches; only whole numbers of one dtype and shape are compared."""

    def __init__(self) -> None:
        # By pair: (never above, never equal).
        self._found: dict[tuple[str, str], tuple[bool, bool]] = {}
        self._values = 0
        self._is_first = True

    def add(self, inputs: Arrays) -> None:
        """Add one batch."""
        whole = {name: array for name, array in inputs.items() if array.dtype.kind in "iu" and array.ndim}
        pairs = set(itertools.permutations(whole, 2)) if self._is_first else set(self._found)
        self._is_first = False
        for first, second in pairs:
            one, two = whole[first], whole[second]
            never_above, never_equal = self._found.get((first, second), (True, True))
            is_alike = one.dtype == two.dtype and one.shape == two.shape
            if never_above and is_alike and bool((one <= two).all()):  # type: ignore[operator]
                self._found[first, second] = (True, never_equal and bool((one < two).all()))  # type: ignore[operator]
            else:
                self._found.pop((first, second), None)
        self._values += max((array.size for array in whole.values()), default=0)

    def finish(self) -> tuple[Order, ...]:
        """Return the orders that every batch keeps, without pairs that are always equal."""
        if self._values < _LEAST_VALUES:
            return ()
        return tuple(
            Order(first=first, second=second, is_strict=never_equal)
            for (first, second), (_, never_equal) in sorted(self._found.items())
            if (second, first) not in self._found
        )
