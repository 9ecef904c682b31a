"""Run a model with fixed dims on inputs of any size, by the rule next to it.

A batch runs in parts of the fixed number of rows. Copies of the last row fill the last part; the declared value of each
input fills other fixed dims on the right. The padding is cut off the results. So the gate compares outputs for the
samples as they are, by the model as served.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import BackendError
from paritygate.models.fixed_shape import FixedShape
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.runner import Runner, RuntimeFacts, describe_arrays

# float32 holds every integer up to here, and only some beyond.
_EXACT_IN_FLOAT32 = 2**24


class FixedShapeRunner(Runner):
    """A runner of a model with fixed dims that takes the inputs from before they were fixed."""

    def __init__(self, runner: Runner, rule: FixedShape) -> None:
        _check_is_of(rule, runner.signature)
        # The inputs and outputs from before the dims were fixed.
        super().__init__(rule.signature, runner.facts)
        self._runner = runner
        self._rule = rule
        self._counting = Lock()
        self._calls = 0
        self._filled_up = Counter[str]()

    @property
    def facts(self) -> RuntimeFacts:
        """Return what runs, with the rule, how many calls were padded so far, and which padding was not seen."""
        facts = self._runner.facts
        return replace(
            facts,
            notes=(*facts.notes, *_notes(self._rule, self._filled_up, self._calls)),
            warnings=(*facts.warnings, *_warnings(self._rule, self._filled_up, self._calls)),
        )

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        sizes = _sizes(self.signature, feed)
        _check_sizes(self._rule, sizes)
        answers = [self._run_part(part, rows, sizes) for part, rows in self._parts(feed, sizes)]
        return [self._joined(spec, [answer[spec.name] for answer in answers]) for spec in self._outputs]

    def on_one_thread(self) -> contextlib.AbstractContextManager[FixedShapeRunner] | str:
        """Return an opener of the fixed model on one thread, or why there is none."""
        opened = self._runner.on_one_thread()
        return opened if isinstance(opened, str) else self._around(opened)

    def unoptimised(self) -> contextlib.AbstractContextManager[FixedShapeRunner] | None:
        """Return an opener of the fixed model without graph optimisations; None where there is none."""
        opened = self._runner.unoptimised()
        return None if opened is None else self._around(opened)

    @contextlib.contextmanager
    def _around(self, opened: contextlib.AbstractContextManager[Runner]) -> Iterator[FixedShapeRunner]:
        with opened as alone:
            yield FixedShapeRunner(alone, self._rule)

    @property
    def _outputs(self) -> tuple[TensorSpec, ...]:
        return self._rule.signature.outputs

    def _parts(self, inputs: Arrays, sizes: Mapping[str, int]) -> Iterator[tuple[Arrays, int | None]]:
        """Yield the inputs of each call, not padded yet, and their number of rows if that is fixed."""
        rows_dim = self._rule.rows_dim
        if rows_dim is None:
            yield inputs, None
            return
        total, step = sizes[rows_dim], self._rule.dims[rows_dim]
        has_rows = {spec.name: bool(spec.shape) and rows_dim in (spec.shape or ()) for spec in self.signature.inputs}
        for start in range(0, total, step):
            part = {name: array[start : start + step] if has_rows[name] else array for name, array in inputs.items()}
            yield part, min(step, total - start)

    def _run_part(self, part: Arrays, rows: int | None, sizes: Mapping[str, int]) -> Arrays:
        filled = {spec.name: self._filled(spec, part[spec.name]) for spec in self.signature.inputs}
        outputs = self._runner.run(filled)
        left = dict(sizes)
        if rows is not None and self._rule.rows_dim is not None:
            left[self._rule.rows_dim] = rows
        with self._counting:
            self._calls += 1
            self._filled_up.update(dim for dim, size in self._rule.dims.items() if left[dim] < size)
        return {spec.name: self._cut_back(spec, outputs[spec.name], left) for spec in self._outputs}

    def _filled(self, spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the input at its fixed size and in the dtype of the fixed model."""
        for axis, dim in enumerate(spec.shape or ()):
            missing = self._rule.dims[dim] - array.shape[axis] if isinstance(dim, str) and dim in self._rule.dims else 0
            if not missing:
                continue
            if dim == self._rule.rows_dim:
                more = np.repeat(array[-1:], missing, axis=0)
            else:
                shape = (*array.shape[:axis], missing, *array.shape[axis + 1 :])
                more = np.full(shape, self._rule.pad[spec.name], dtype=array.dtype)
            array = np.concatenate([array, more], axis=axis)
        return _cast(spec.name, array, self._rule.dtypes.get(spec.name, spec.dtype))

    def _cut_back(self, spec: TensorSpec, array: NDArray[np.generic], sizes: Mapping[str, int]) -> NDArray[np.generic]:
        fixed = self._rule.dims
        if spec.shape is None:
            return array
        # An output of another size than the fixed one must not be cut into a correct one.
        is_fixed = array.ndim == len(spec.shape) and all(
            size == fixed[dim]
            for dim, size in zip(spec.shape, array.shape, strict=True)
            if isinstance(dim, str) and dim in fixed
        )
        if not is_fixed:
            msg = f"the model with {self._rule} fixed returned {describe_arrays({spec.name: array})} for {spec}"
            raise BackendError(msg, hint="correct the output's dims in the signature")
        slices = (slice(sizes[dim]) if isinstance(dim, str) and dim in fixed else slice(None) for dim in spec.shape)
        return array[tuple(slices)]

    def _joined(self, spec: TensorSpec, arrays: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
        if len(arrays) == 1:
            return np.array(arrays[0], order="C")
        axis = (spec.shape or ()).index(self._rule.rows_dim)
        try:
            return np.concatenate(arrays, axis=axis)
        except ValueError as err:
            shapes = ", ".join(str(list(array.shape)) for array in arrays[:3])
            msg = f"the parts of output {spec} do not fit together: their shapes are {shapes}"
            raise BackendError(msg, hint="leave the dim open: the output's size depends on values of a part") from err


def _notes(rule: FixedShape, filled_up: Mapping[str, int], calls: int) -> list[str]:
    values = ", ".join(f"{name} with {value:g}" for name, value in rule.pad.items())
    steps = [f"static: {rule}"]
    if rule.rows_dim is not None:
        steps.append("missing rows padded with copies of the last one")
    if values:
        steps.append(f"{', '.join(rule.padded_dims)} padded on the right ({values})")
    by_dim = ", ".join(f"{name} in {filled_up.get(name, 0)}" for name in rule.dims)
    counted = f"; of {calls} calls were padded: {by_dim}" if calls else ""
    notes = [f"{'; '.join(steps)}; results cut back{counted}"]
    if rule.dtypes:
        notes.append(f"inputs given in other dtypes: {', '.join(f'{name} {to}' for name, to in rule.dtypes.items())}")
    return notes


def _warnings(rule: FixedShape, filled_up: Mapping[str, int], calls: int) -> list[str]:
    """Return a warning about dims that were never padded, though smaller ones are served: padding is untested."""
    ranges = rule.signature.dims
    uncovered = [
        name
        for name in rule.padded_dims
        if calls and not filled_up.get(name) and (name not in ranges or ranges[name].min < rule.dims[name])
    ]
    dims = " or ".join(uncovered)
    text = f"no sample has a {dims} below the fixed size: how the model answers padded inputs was not seen"
    return [text] if uncovered else []


def _check_is_of(rule: FixedShape, found: Signature) -> None:
    wanted = rule.fixed_signature
    for there, specs in ((found.inputs, wanted.inputs), (found.outputs, wanted.outputs)):
        if {(spec.name, spec.dtype) for spec in there} != {(spec.name, spec.dtype) for spec in specs}:
            msg = (
                f"the fixed shape is for another model (got {'; '.join(map(str, there))}, expected "
                f"{'; '.join(map(str, specs))})"
            )
            raise BackendError(msg, hint="make it again with", command="convert-and-validate export")


def _sizes(signature: Signature, inputs: Arrays) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        for dim, size in zip(spec.shape or (), inputs[spec.name].shape, strict=False):
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                msg = f"dim {dim!r} is both {sizes[dim]} and {size} in {describe_arrays(inputs)}"
                raise BackendError(msg, hint="give all inputs of a batch the same size there")
    return sizes


def _check_sizes(rule: FixedShape, sizes: Mapping[str, int]) -> None:
    for name, fixed in rule.dims.items():
        if name == rule.rows_dim and sizes[name] == 0:
            msg = f"the batch has no rows (expected at least one, to fill a part of {fixed})"
            raise BackendError(msg, hint="give at least one row")
        if name != rule.rows_dim and sizes[name] > fixed:
            msg = f"the inputs have {name} {sizes[name]}, but the model accepts at most {fixed}, its fixed size"
            raise BackendError(msg, hint=f"fix {name} at the largest size that is served, or limit it in model.dims")


def _cast(name: str, array: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    if array.dtype.name == dtype or array.dtype.kind not in "iub":
        return array
    high = _EXACT_IN_FLOAT32 if dtype == "float32" else int(np.iinfo(dtype).max)
    low = -high if dtype == "float32" else int(np.iinfo(dtype).min)
    if array.size:
        least, largest = int(array.min()), int(array.max())
        if least < low or largest > high:
            msg = (
                f"the input {name!r} holds values from {least} to {largest}, but the fixed model takes {dtype}, "
                f"which holds integers exactly from {low} to {high}"
            )
            raise BackendError(msg, hint=f"leave {name} out of the target's dtypes")
    return array.astype(dtype)
