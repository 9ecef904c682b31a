"""Find the inputs and outputs that a spec has to declare of a model without a signature, by running it on the samples.

A dim that varies over the rows gets a name, and every other dim is fixed. Batches of several sizes show the same of the
outputs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from paritygate.batch import Arrays, Batch
from paritygate.models.example import dtype_of
from paritygate.signature import BATCH, Signature, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Returns the arrays that the model took of a batch, and the tensors that it returned, by name.
Answer = Callable[["Arrays"], tuple[Mapping[str, Any], Mapping[str, Any]]]

_NO_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
# The most batches of different sizes that the model runs on.
_MOST_ANSWERS = 3
# Of ids of tokens, and of pictures, whose channels are these.
_IDS_RANK = 2
_PICTURE_RANK = 4
_CHANNELS = (1, 3, 4)
_Axis = tuple[str, int]


class _Sizes(Struct, kw_only=True):
    """The sizes of one axis in all rows: equal sizes in equal order have equal digests."""

    low: int
    high: int
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, sizes: Sequence[int]) -> None:
        self.low, self.high = min(self.low, *sizes), max(self.high, *sizes)
        self.digest.update(np.asarray(sizes, np.int64).tobytes())


class SeenSignature(Struct, frozen=True, kw_only=True):
    """Inputs and outputs as `rows` rows of the samples show them; a dim that never varies has that size."""

    signature: Signature
    rows: int


def signature_of_rows(answer: Answer, batches: Iterable[Batch]) -> SeenSignature | None:
    """Return inputs and outputs of a model, by running `answer` on batches of different sizes; texts are left out.

    Returns None where there are no rows or no tensors. Whatever the model raises is passed on, and UsageError is raised
    for an unsupported dtype.
    """
    sizes: dict[_Axis, _Sizes] = {}
    shown: dict[tuple[object, ...], Batch] = {}
    first: Arrays = {}
    rows = 0
    for batch in batches:
        arrays = _numbers(batch)
        if batch.rows and arrays:
            rows += batch.rows
            first = first or arrays
            _add_sizes(sizes, batch, arrays)
            kind = tuple(array.shape[1:] for array in arrays.values())
            if len(shown) < _MOST_ANSWERS:
                shown.setdefault(kind, batch)
    names = _names(sizes, first)
    inputs, outputs = _Shapes(), _Shapes()
    answered = []
    for batch in shown.values():
        arrays = _numbers(batch)
        dim_sizes = {names[key]: arrays[key[0]].shape[key[1]] for key in sorted(names, reverse=True)}
        taken, tensors = answer(arrays)
        inputs.add(taken, {BATCH: batch.rows})
        answered.append((tensors, {BATCH: batch.rows, **dim_sizes}))
    for (name, axis), dim in names.items():
        if name in inputs.shapes:
            inputs.shapes[name][axis] = dim
    # Where no input has one row for each of the batch, neither has an output: a graph of nodes is a row of its own.
    has_batch = any(BATCH in shape for shape in inputs.shapes.values())
    for tensors, dim_sizes in answered:
        outputs.add(tensors, {dim: size for dim, size in dim_sizes.items() if has_batch or dim != BATCH})
    if not outputs.shapes:
        return None
    return SeenSignature(signature=Signature(inputs=inputs.specs(), outputs=outputs.specs()), rows=rows)


def declaration_of(answer: Answer, batches: Iterable[Batch]) -> str:
    """Return the lines `inputs: {...}` and `outputs: {...}` of a spec, each after a line break.

    A comment names the dims that are fixed because they never vary. Returns an empty text where the model fails or
    returns no tensor.
    """
    try:
        seen = signature_of_rows(answer, batches)
    except Exception:  # noqa: BLE001 - why it does not answer is said where it is run with a declaration
        return ""
    if seen is None:
        return ""
    fixed = [
        f"axis {axis} of {_text(spec.name)} is {size}"
        for spec in seen.signature.inputs
        for axis, size in enumerate(spec.shape or ())
        if isinstance(size, int)
    ]
    comment = f"  # in all {seen.rows} rows: {', '.join(fixed)}" if fixed else ""
    return f"\n  inputs: {_flow(seen.signature.inputs)}{comment}\n  outputs: {_flow(seen.signature.outputs)}"


def _flow(specs: Iterable[TensorSpec]) -> str:
    """Return the tensors in YAML's flow style."""
    return f"{{{', '.join(map(_of_tensor, specs))}}}"


def _of_tensor(spec: TensorSpec) -> str:
    return f"{_text(spec.name)}: {{dtype: {spec.dtype}, shape: [{', '.join(map(str, spec.shape or ()))}]}}"


def _numbers(batch: Batch) -> dict[str, NDArray[np.generic]]:
    """Return the inputs that are no text, because there are no tensors of text."""
    return {name: array for name, array in batch.inputs.items() if array.dtype.kind != "U"}


def _add_sizes(sizes: dict[_Axis, _Sizes], batch: Batch, arrays: Arrays) -> None:
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            if axis == 0 and size == batch.rows:
                continue
            # The length of a row before padding is more precise than its padded length.
            lengths = batch.lengths.get(name, ()) if axis == 1 else ()
            of_rows = list(lengths) or [size] * batch.rows
            sizes.setdefault((name, axis), _Sizes(low=size, high=size)).add(of_rows)


def _names(sizes: Mapping[_Axis, _Sizes], arrays: Arrays) -> dict[_Axis, str]:
    """Return the names of the axes that vary: one name for those that are equal in all rows."""
    groups: dict[bytes, list[_Axis]] = {}
    for axis, axis_sizes in sizes.items():
        if axis_sizes.low < axis_sizes.high:
            groups.setdefault(axis_sizes.digest.digest(), []).append(axis)
    words = [_word(axes, arrays) for axes in groups.values()]
    return {
        axis: word if word and words.count(word) == 1 else _own_name(axes[0], word)
        for axes, word in zip(groups.values(), words, strict=True)
        for axis in axes
    }


def _word(axes: Sequence[_Axis], arrays: Arrays) -> str:
    """Return the usual word for a dim of one or several inputs; empty where there is none."""
    if any(axis == 1 and arrays[name].ndim == _IDS_RANK and arrays[name].dtype.kind in "iu" for name, axis in axes):
        return "sequence"
    sides = {side for name, axis in axes if (side := _side(axis, arrays[name].shape))}
    return "side" if len(sides) > 1 else "".join(sides)


def _side(axis: int, shape: Sequence[int]) -> str:
    """Return which side of a picture an axis is, where it is clear which axis holds the channels."""
    if len(shape) != _PICTURE_RANK or (shape[1] in _CHANNELS) == (shape[3] in _CHANNELS):
        return ""
    first = 2 if shape[1] in _CHANNELS else 1
    return {first: "height", first + 1: "width"}.get(axis, "")


def _own_name(first: _Axis, word: str) -> str:
    name, axis = first
    return re.sub(r"\W", "_", f"{name}_{word or ('length' if axis == 1 else axis)}")


class _Shapes(Struct, kw_only=True):
    """The shapes of tensors in several answers; a size that varies is the dim that has this size in all of them."""

    dtypes: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, list[int | str]] = field(default_factory=dict)
    _seen: dict[_Axis, set[int]] = field(default_factory=dict)
    _may_be: dict[_Axis, list[str]] = field(default_factory=dict)

    def add(self, tensors: Mapping[str, Any], dims: Mapping[str, int]) -> None:
        for name, tensor in tensors.items():
            self.dtypes[name] = dtype_of(tensor)
            shape = self.shapes.setdefault(name, list(tensor.shape))
            for axis, size in enumerate(tensor.shape[: len(shape)]):
                key = (name, axis)
                fits = [dim for dim, dim_size in dims.items() if dim_size == size and (dim != BATCH or axis == 0)]
                self._may_be[key] = [dim for dim in self._may_be.get(key, fits) if dim in fits]
                seen = self._seen.setdefault(key, set())
                seen.add(size)
                own = size if len(seen) == 1 else re.sub(r"\W", "_", f"{name}_{axis}")
                shape[axis] = self._may_be[key][0] if self._may_be[key] else own

    def specs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors with their shapes."""
        return tuple(
            TensorSpec(name=name, dtype=self.dtypes[name], shape=tuple(shape)) for name, shape in self.shapes.items()
        )


def _text(name: str) -> str:
    # JSON's quotes are YAML's, and some plain words are no text to YAML.
    return name if name.isidentifier() and name.lower() not in _NO_WORDS else json.dumps(name)
