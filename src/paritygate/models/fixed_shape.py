"""Describe a model with fixed dims, and the rule that brings inputs of other sizes to them and outputs back.

Accelerators compile a model for one shape. Rows then run in parts of the fixed number, and copies of the last row fill
up the last part. Other fixed dims are padded on the right with a declared value. The padding is cut off the outputs
again. The rule is data beside the model, in `fixed-shape.json`, and whoever serves the model follows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.files import corrupt_errors, read_json, write_json_atomically
from paritygate.signature import Signature, TensorSpec, is_float_dtype, is_integer_dtype

FIXED_SHAPE_FILE = "fixed-shape.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedShape:
    """The fixed dims of a model, and how inputs are brought to them."""

    dims: Mapping[str, int]  # the size of each fixed dim
    pad: Mapping[str, float] = field(default_factory=dict)  # by input, the value for fixed dims other than rows
    dtypes: Mapping[str, str] = field(default_factory=dict)  # by input, that of the fixed model where it differs
    signature: Signature  # without fixed dims, as the rule gives it to the model

    def __post_init__(self) -> None:
        _check_dims(self)
        _check_rows(self)
        _check_pad(self)
        _check_dtypes(self)
        _check_outputs(self)

    @property
    def rows_dim(self) -> str | None:
        """The fixed dim that counts rows, axis 0 of the inputs; None where rows are not fixed."""
        first = (spec.shape[0] for spec in self.signature.inputs if spec.shape)
        return next((dim for dim in first if isinstance(dim, str) and dim in self.dims), None)

    @property
    def padded_dims(self) -> tuple[str, ...]:
        """The fixed dims that are padded with a value: all except rows."""
        return tuple(name for name in self.dims if name != self.rows_dim)

    @property
    def fixed_signature(self) -> Signature:
        """The signature of the fixed model."""
        fixed = self.signature
        return Signature(
            inputs=tuple(
                replace(self._fixed(spec), dtype=self.dtypes.get(spec.name, spec.dtype)) for spec in fixed.inputs
            ),
            outputs=tuple(self._fixed(spec) for spec in fixed.outputs),
            dims={name: dim for name, dim in fixed.dims.items() if name not in self.dims},
        )

    def _fixed(self, spec: TensorSpec) -> TensorSpec:
        if spec.shape is None:
            return spec
        shape = tuple(self.dims.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
        return replace(spec, shape=shape)

    def __str__(self) -> str:
        return ", ".join(f"{name} {size}" for name, size in self.dims.items())


def write_fixed_shape(rule: FixedShape, folder: Path) -> None:
    """Write the rule beside the files of the fixed model."""
    write_json_atomically(folder / FIXED_SHAPE_FILE, to_data(rule))


def read_fixed_shape(path: Path) -> FixedShape:
    """Return the rule in a file; raise InputFileError if it is missing or corrupt."""
    again = "make the artifact again with: convert-and-validate export"
    if not path.is_file():
        raise InputFileError(f"the rule for fixed dims is missing: {path}", hint=again)
    with corrupt_errors(path, hint=again):
        return from_data(FixedShape, read_json(path))


def _symbols(specs: Iterable[TensorSpec]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)))


def _check_dims(rule: FixedShape) -> None:
    symbols = _symbols(rule.signature.inputs)
    for name, size in rule.dims.items():
        if name not in symbols:
            msg = f"dim {name!r} is not a symbolic dim of the inputs (they have: {', '.join(symbols) or 'none'})"
            raise UsageError(msg, hint="fix one of these dims, or name it in model.inputs")
        allowed = rule.signature.dims.get(name)
        if allowed is not None and not allowed.min <= size <= allowed.max:
            msg = f"dim {name!r} is fixed at {size}, but model.dims allows {allowed.min} to {allowed.max}"
            raise UsageError(msg, hint="fix a size in this range, or widen it in model.dims")


def _check_rows(rule: FixedShape) -> None:
    rows = rule.rows_dim
    if rows is None:
        return
    for spec in rule.signature.inputs:
        shape = spec.shape or ()
        if rows in shape[1:]:
            msg = f"dim {rows!r} counts rows but is not axis 0 of the input {spec}"
            raise UsageError(msg, hint="fix other dims, or rename that one, because rows are cut only at axis 0")
        if shape and shape[0] != rows and not isinstance(shape[0], int):
            msg = f"dim {rows!r} is fixed, but the rows of the input {spec} are counted by another dim"
            raise UsageError(msg, hint=f"name axis 0 of every input {rows!r} in model.inputs")


def _check_pad(rule: FixedShape) -> None:
    needed = {
        spec.name: spec for spec in rule.signature.inputs if any(dim in rule.padded_dims for dim in spec.shape or ())
    }
    for name in rule.pad:
        if name not in needed:
            msg = f"pad names {name!r}, which no fixed dim pads (allowed: {', '.join(needed) or 'none'})"
            raise UsageError(msg, hint="leave it out, because rows are repeated and need no value")
    for name, spec in needed.items():
        if name not in rule.pad:
            msg = f"the input {spec} has a fixed dim besides rows, but pad has no value for it"
            raise UsageError(msg, hint=f"name the value that pads shorter inputs, such as pad: {{{name}: 0}}")
        for dtype in (spec.dtype, rule.dtypes.get(name, spec.dtype)):
            if not _holds(dtype, rule.pad[name]):
                msg = f"pad gives {rule.pad[name]:g} for {name!r}, which {dtype} cannot hold"
                raise UsageError(msg, hint="give a value of the input's dtype")


def _holds(dtype: str, value: float) -> bool:
    import numpy as np

    if is_float_dtype(dtype):
        return math.isfinite(value)
    if not is_integer_dtype(dtype) or not float(value).is_integer():
        return False
    low, high = (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return low <= int(value) <= high


def _check_dtypes(rule: FixedShape) -> None:
    inputs = {spec.name: spec for spec in rule.signature.inputs}
    for name, dtype in rule.dtypes.items():
        if name not in inputs:
            msg = f"dtypes names {name!r}, which is not an input (inputs: {', '.join(inputs)})"
            raise UsageError(msg, hint="name only inputs, because outputs keep their dtypes")
        own = inputs[name].dtype
        is_exact = (own, dtype) == ("int64", "int32") or (is_integer_dtype(own) and dtype == "float32")
        if own != dtype and not is_exact:
            msg = (
                f"the input {inputs[name]} cannot be given as {dtype!r} "
                "(allowed: int32 for int64, float32 for integers and bool)"
            )
            raise UsageError(msg, hint="leave the dtype unchanged, because other casts lose values")


def _check_outputs(rule: FixedShape) -> None:
    rows, symbols = rule.rows_dim, _symbols(rule.signature.inputs)
    for spec in rule.signature.outputs:
        if rows is not None and (spec.shape or ()).count(rows) != 1:
            msg = f"dim {rows!r} is fixed, but the output {spec} does not have it exactly once"
            raise UsageError(msg, hint=f"fix other dims, or name the dim {rows!r} in model.outputs")
        if not rule.padded_dims:
            continue
        if spec.shape is None or any(not isinstance(dim, int) and dim not in symbols for dim in spec.shape):
            msg = f"dims are padded, but the output {spec} has a dim that no input has and cannot be cut back"
            raise UsageError(msg, hint="fix the dim of rows alone, or name the output's dims in model.outputs")
