"""What a spec is to declare of a PyTorch module, which says nothing itself: found by running it on real inputs.

The samples say the dtypes and sizes of its inputs, all rows of them: a dim that varies gets a name, one that never does
is fixed. Its answers to batches of different sizes say the same of its outputs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.models.named_call import outputs_by_name
from paritygate.models.torch.module import answer_of

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from paritygate.batch import Batch

__all__ = ["declaration_of"]

_BATCH = "batch"
_NO_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
# How many batches of different sizes the module is asked to answer.
_MOST_ANSWERS = 3
_Axis = tuple[str, int]


@dataclass(kw_only=True, slots=True)
class _Sizes:
    """The sizes of one axis in all rows: equal ones in equal order have equal digests."""

    low: int
    high: int
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, sizes: Sequence[int]) -> None:
        self.low, self.high = min(self.low, *sizes), max(self.high, *sizes)
        self.digest.update(np.asarray(sizes, np.int64).tobytes())


def declaration_of(module: torch.nn.Module, batches: Iterable[Batch]) -> str:
    """Return the lines `inputs: {...}` and `outputs: {...}` of a spec, each after a line break.

    A comment beside the inputs names the dims that are fixed because no row has another size. Nothing is returned where
    the module does not answer, or with no tensor.

    Args:
        module: The module.
        batches: The samples; of their inputs, those that `forward` has parameters for are given to it by name, and
            where it has none of them, all in their order.
    """
    import torch

    sizes: dict[_Axis, _Sizes] = {}
    shown: dict[tuple[object, ...], Batch] = {}
    rows = 0
    for batch in batches:
        arrays = _numbers(batch)
        if batch.rows and arrays:
            rows += batch.rows
            _add_sizes(sizes, batch, arrays)
            kind = tuple(array.shape[1:] for array in arrays.values())
            if len(shown) < _MOST_ANSWERS:
                shown.setdefault(kind, batch)
    names = _names(sizes)
    inputs, outputs = _Shapes(), _Shapes()
    try:
        for batch in shown.values():
            arrays = _numbers(batch)
            known = {names[key]: arrays[key[0]].shape[key[1]] for key in sorted(names, reverse=True)}
            taken, answer = answer_of(module, arrays)
            inputs.add(taken, {_BATCH: batch.rows})
            tensors = {
                name: found for name, found in outputs_by_name(answer).items() if isinstance(found, torch.Tensor)
            }
            outputs.add(tensors, {_BATCH: batch.rows, **known})
    except Exception:  # noqa: BLE001 - why it does not answer is said where it is run with a declaration
        return ""
    if not outputs.shapes:
        return ""
    for (name, axis), dim in names.items():
        if name in inputs.shapes:
            inputs.shapes[name][axis] = dim
    fixed = [
        f"axis {axis} of {_text(name)} is {size}"
        for name, shape in inputs.shapes.items()
        for axis, size in enumerate(shape)
        if isinstance(size, int)
    ]
    said = f"  # in all {rows} rows: {', '.join(fixed)}" if fixed else ""
    return f"\n  inputs: {inputs.text()}{said}\n  outputs: {outputs.text()}"


def _numbers(batch: Batch) -> dict[str, NDArray[np.generic]]:
    """Return the inputs that are no text, of which there are no tensors."""
    return {name: array for name, array in batch.inputs.items() if array.dtype.kind != "U"}


def _add_sizes(sizes: dict[_Axis, _Sizes], batch: Batch, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            if axis == 0 and size == batch.rows:
                continue
            # How long a row was before it was filled up says more than how long it is.
            lengths = batch.lengths.get(name, ()) if axis == 1 else ()
            of_rows = list(lengths) or [size] * batch.rows
            sizes.setdefault((name, axis), _Sizes(low=size, high=size)).add(of_rows)


def _names(sizes: Mapping[_Axis, _Sizes]) -> dict[_Axis, str]:
    """Return the names of the axes that vary: one name for those that are equal in all rows."""
    names: dict[bytes, str] = {}
    return {
        (name, axis): names.setdefault(found.digest.digest(), re.sub(r"\W", "_", f"{name}_{axis}"))
        for (name, axis), found in sizes.items()
        if found.low < found.high
    }


@dataclass(kw_only=True, slots=True)
class _Shapes:
    """The shapes of tensors in several answers: where a size differs, the dim that has that size in each of them."""

    dtypes: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, list[int | str]] = field(default_factory=dict)
    _seen: dict[_Axis, set[int]] = field(default_factory=dict)
    _may_be: dict[_Axis, list[str]] = field(default_factory=dict)

    def add(self, tensors: Mapping[str, torch.Tensor], dims: Mapping[str, int]) -> None:
        """Take in one answer, with the sizes that the named dims have in it."""
        for name, tensor in tensors.items():
            self.dtypes[name] = str(tensor.dtype).removeprefix("torch.")
            shape = self.shapes.setdefault(name, list(tensor.shape))
            for axis, size in enumerate(tensor.shape[: len(shape)]):
                key = (name, axis)
                fits = [dim for dim, found in dims.items() if found == size and (dim != _BATCH or axis == 0)]
                self._may_be[key] = [dim for dim in self._may_be.get(key, fits) if dim in fits]
                seen = self._seen.setdefault(key, set())
                seen.add(size)
                own = size if len(seen) == 1 else re.sub(r"\W", "_", f"{name}_{axis}")
                shape[axis] = self._may_be[key][0] if self._may_be[key] else own

    def text(self) -> str:
        """Return what a spec says of them, in YAML's flow style."""
        return f"{{{', '.join(f'{_text(name)}: {self._of(name)}' for name in self.shapes)}}}"

    def _of(self, name: str) -> str:
        return f"{{dtype: {self.dtypes[name]}, shape: [{', '.join(map(str, self.shapes[name]))}]}}"


def _text(name: str) -> str:
    # JSON's quotes are YAML's, and some plain words are no text to YAML.
    return name if name.isidentifier() and name.lower() not in _NO_WORDS else json.dumps(name)
