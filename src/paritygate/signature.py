"""Describe the inputs and outputs of a model: names, dtypes, shapes with symbolic dims."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paritygate.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

BATCH = "batch"
_FLOAT_DTYPES = frozenset({"float16", "float32", "float64", "bfloat16"})
_INTEGER_DTYPES = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"})
_STRING = "string"
# Of outputs that are compared, by tolerance or exactly.
DTYPES = _FLOAT_DTYPES | _INTEGER_DTYPES | {_STRING}


@functools.cache
def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Return the name of a dtype in signatures: NumPy's own, and `string` for text of any width."""
    return _STRING if dtype.kind == "U" else dtype.name


def is_float_dtype(name: str) -> bool:
    """Return whether `name` is a floating-point dtype."""
    return name in _FLOAT_DTYPES


def is_integer_dtype(name: str) -> bool:
    """Return whether `name` is an integer dtype or bool."""
    return name in _INTEGER_DTYPES


def is_number_dtype(name: str) -> bool:
    """Return whether differences of values of the dtype have a size: of floats and integers, but not bool and text."""
    return name in DTYPES - {"bool", _STRING}


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One named input or output."""

    name: str  # by which the tensor is fed, fetched and compared
    dtype: str  # NumPy's name, or `bfloat16`, or `string`
    shape: tuple[int | str | None, ...] | None  # by dim a size, symbol or None; None for an unknown rank

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            allowed = ", ".join(sorted(DTYPES))
            msg = f"dtype {self.dtype!r} of {self.name!r} is not supported (allowed: {allowed})"
            is_complex = self.dtype.startswith("complex")
            parts = "return its real and imaginary parts, as torch.view_as_real does"
            raise UsageError(msg, hint=parts if is_complex else "give the dtype by its NumPy name")

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{dims}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dim:
    """The sizes that a symbolic dim may take: 0 < min <= opt <= max."""

    min: int
    opt: int
    max: int

    def __post_init__(self) -> None:
        if not 0 < self.min <= self.opt <= self.max:
            msg = f"dim sizes min={self.min}, opt={self.opt}, max={self.max} are not 0 < min <= opt <= max"
            raise UsageError(msg, hint="for example {min: 1, opt: 8, max: 64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """The inputs and outputs of a model, in their order, and the range of each symbolic dim."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: Mapping[str, Dim] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side in (self.inputs, self.outputs):
            names: set[str] = set()
            for name in (spec.name for spec in side):
                if name in names:
                    msg = f"the name {name!r} occurs twice in the signature"
                    raise UsageError(msg, hint="names must be unique among the inputs and among the outputs")
                names.add(name)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic dims, in the order of their first use."""
        seen: dict[str, None] = {}
        for spec in (*self.inputs, *self.outputs):
            for dim in spec.shape or ():
                if isinstance(dim, str):
                    seen[dim] = None
        return tuple(seen)

    @property
    def batch_dim(self) -> str | None:
        """The symbolic dim that is the first of every input and output, or None."""
        first = {(spec.shape or (None,))[0] for spec in (*self.inputs, *self.outputs)}
        only = next(iter(first))
        return only if len(first) == 1 and isinstance(only, str) else None


def rename_signature(signature: Signature, rename: Mapping[str, str]) -> Signature:
    """Return the signature under the names served; `rename` is `{of the model: served}`, and other names stay.

    Raises:
        UsageError: A name in `rename` is neither an input nor an output of the model.
    """
    names = [spec.name for spec in (*signature.inputs, *signature.outputs)]
    for name in rename:
        if name not in names:
            msg = f"{name!r} cannot be renamed {rename[name]!r} because the model has no such input or output"
            raise UsageError(msg, hint=f"inputs and outputs of the model are: {', '.join(names)}")
    return replace(
        signature,
        inputs=tuple(replace(spec, name=rename.get(spec.name, spec.name)) for spec in signature.inputs),
        outputs=tuple(replace(spec, name=rename.get(spec.name, spec.name)) for spec in signature.outputs),
    )


def with_declared_dims(own: Signature, declared: Signature | None) -> Signature:
    """Return a model's own signature, as served, with declared names or sizes for its open dims.

    Sizes that the model fixes stay. So does a tensor that is not declared, or with another rank.
    """
    if declared is None:
        return own
    return replace(
        own,
        inputs=tuple(_as_declared(spec, declared.inputs) for spec in own.inputs),
        outputs=tuple(_as_declared(spec, declared.outputs) for spec in own.outputs),
    )


def _as_declared(own: TensorSpec, declared: Iterable[TensorSpec]) -> TensorSpec:
    shape_declared = next((spec.shape for spec in declared if spec.name == own.name), None)
    if shape_declared is None or own.shape is None:
        return own if shape_declared is None else replace(own, shape=shape_declared)
    if len(shape_declared) != len(own.shape):
        return own
    shape = [
        dim if isinstance(dim, int) or name is None else name
        for dim, name in zip(own.shape, shape_declared, strict=True)
    ]
    return replace(own, shape=tuple(shape))


def name_unknown_dims(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Signature:
    """Return a signature in which every dim of None has a name, because TensorFlow has none for open dims.

    Axis 0 of the inputs is `batch`, and that of the outputs where an input has it. Every other open dim is
    `<tensor>_dim<axis>`, because TensorFlow does not show which dims are equal. A shape of None stays.
    """
    named_inputs = tuple(_named(inputs, has_batch=True))
    has_batch = any(spec.shape and spec.shape[0] == BATCH for spec in named_inputs)
    return Signature(inputs=named_inputs, outputs=tuple(_named(outputs, has_batch=has_batch)))


def _named(specs: Iterable[TensorSpec], *, has_batch: bool) -> Iterable[TensorSpec]:
    for spec in specs:
        if spec.shape is None:
            yield spec
            continue
        shape = [
            dim if dim is not None else BATCH if axis == 0 and has_batch else f"{spec.name}_dim{axis}"
            for axis, dim in enumerate(spec.shape)
        ]
        yield TensorSpec(name=spec.name, dtype=spec.dtype, shape=tuple(shape))
